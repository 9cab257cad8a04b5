//! Requests that no honest client sends: the right status, nothing corrupt, nothing left hanging.

use std::time::Duration;

use bazel_remote_apis::build::bazel::remote::execution::v2::{
    Action, batch_update_blobs_request::Request as Blob, compressor::Value as Compressor,
    digest_function::Value as Function,
};
use futures_util::future::join_all;
use prost::Message;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Response, Status};

use super::actions::Draft;
use super::client::{PIECE_BYTES, Remote, pieces};
use super::content::{compress, digest, random, random_hex};
use super::trees::{doubled, parent};
use crate::finding::must;
use crate::grpc::{done, refused};
use crate::{Check, Finding, Subject};

/// What a bomb becomes when it is let off.
const BOMB_BYTES: usize = 64 << 20;
/// How deep a tree goes; deeper than a path may be long.
const DEPTH: usize = 1_000;
/// Uploads of one blob at once.
const RACERS: usize = 12;
/// The pause before looking again at an upload, and how often that is done.
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(20);
const MAX_LOOKS: usize = 100;

/// How a tree may be refused that is too much for anybody.
const TOO_MUCH: [Code; 3] = [Code::InvalidArgument, Code::FailedPrecondition, Code::ResourceExhausted];

pub(super) const CHECKS: &[Check] = &[
    Check::new(&["R23"], "a compressed upload that becomes more than it announced is refused", |s| {
        Box::pin(bomb(s))
    }),
    Check::new(
        &["R15", "R23"],
        "a compressed blob of a batch that becomes more than announced is refused",
        |s| Box::pin(batch_bomb(s)),
    ),
    Check::new(&["R23"], "what is not compressed, or not to its end, is refused as compressed", |s| {
        Box::pin(not_compressed(s))
    }),
    Check::new(&["R12", "R30"], "an input tree deeper than any path is answered, and hurts nobody", |s| {
        Box::pin(deep(s))
    }),
    Check::new(&["R30"], "an input tree of 2^30 paths is refused", |s| Box::pin(huge(s))),
    Check::new(&["R25"], "uploads of one blob at once, in any mix, all succeed", |s| Box::pin(racing(s))),
    Check::new(&["R25"], "of two uploads at once the one that lies is refused", |s| Box::pin(one_lies(s))),
    Check::new(
        &["R24", "R25"],
        "the upload of a client that vanishes is not seen, and can be repeated",
        |s| Box::pin(vanished(s)),
    ),
];

async fn bomb(subject: &Subject) -> Result<(), Finding> {
    let remote = Remote::of(subject);
    remote.needs_zstd().await?;
    let named = digest(&random(1_000)?);
    let bomb = compress(&vec![0; BOMB_BYTES])?;
    let answer = remote.upload(&remote.zstd_write_name(&named)?, &bomb).await;
    refused("64 MiB in the name of 1000 bytes", answer, &[Code::InvalidArgument])?;
    remote.must_be_missing(&named, "only a bomb was uploaded in its name").await
}

async fn batch_bomb(subject: &Subject) -> Result<(), Finding> {
    let remote = Remote::of(subject);
    if !remote.cache().await?.supported_batch_update_compressors.contains(&(Compressor::Zstd as i32)) {
        return Err(Finding::Skipped("ZSTD is not among supported_batch_update_compressors".into()));
    }
    let named = digest(&random(1_000)?);
    let blob = Blob {
        digest: Some(named.clone()),
        data: compress(&vec![0; BOMB_BYTES])?,
        compressor: Compressor::Zstd.into(),
    };
    let answer = remote.try_batch(vec![blob], Function::Unknown).await;
    let code = match answer {
        Err(status) => status.code(),
        Ok(answer) => {
            let first = answer.into_inner().responses.into_iter().next();
            Code::from(first.and_then(|one| one.status).map_or(0, |status| status.code))
        }
    };
    must(code == Code::InvalidArgument, || format!("64 MiB in the name of 1000 bytes were {code:?}"))?;
    remote.must_be_missing(&named, "only a bomb was uploaded in its name").await
}

async fn not_compressed(subject: &Subject) -> Result<(), Finding> {
    let remote = Remote::of(subject);
    remote.needs_zstd().await?;
    let blob = random(10_000)?;
    let (digest, whole) = (digest(&blob), compress(&blob)?);
    let half = &whole[..whole.len() / 2];
    for (what, bytes) in [("plain bytes", &blob[..]), ("half of a stream", half)] {
        let answer = remote.upload(&remote.zstd_write_name(&digest)?, bytes).await;
        refused(&format!("{what} as zstd"), answer, &[Code::InvalidArgument])?;
    }
    remote.must_be_missing(&digest, "no upload of it was whole").await
}

async fn deep(subject: &Subject) -> Result<(), Finding> {
    let remote = Remote::of(subject);
    remote.needs_execution().await?;
    let mut below = parent(&[(&random_hex(8)?, &digest(b""))]);
    let mut level = below.encode_to_vec();
    let mut levels = vec![level.clone()];
    for _ in 1..DEPTH {
        below = parent(&[("deeper", &digest(&level))]);
        level = below.encode_to_vec();
        levels.push(level.clone());
    }
    remote.put(&levels.iter().map(Vec::as_slice).collect::<Vec<_>>()).await?;
    let action = remote.prepare(&Draft { root: below, ..Draft::of("true")? }).await?;
    if let Err(status) = remote.outcome(remote.ask(&action)).await? {
        refused("a tree of 1000 levels", Err::<(), _>(status), &TOO_MUCH)?;
    }
    let action = remote.action("true").await?;
    remote.run(remote.ask(&action)).await.map(|_| ())
}

async fn huge(subject: &Subject) -> Result<(), Finding> {
    let remote = Remote::of(subject);
    remote.needs_execution().await?;
    let draft = Draft::of("true")?;
    let [command, ..] = draft.messages();
    let action = Action {
        command_digest: Some(digest(&command)),
        input_root_digest: Some(doubled(&remote).await?),
        ..draft.action
    };
    let action = action.encode_to_vec();
    remote.put(&[&command, &action]).await?;
    let answer = remote.outcome(remote.ask(&digest(&action))).await?;
    refused("a tree of 2^30 paths", answer, &TOO_MUCH)
}

async fn racing(subject: &Subject) -> Result<(), Finding> {
    let remote = Remote::of(subject);
    let blob = random(8 * PIECE_BYTES)?;
    let digest = digest(&blob);
    let small = compress(&blob)?;
    let zstd = remote.needs_zstd().await.is_ok();
    let one = |number: usize| {
        let (blob, small, digest) = (&blob, &small, digest.clone());
        async move {
            match number % 3 {
                0 => remote.put_one(blob).await.map(|_| ()),
                1 if zstd => {
                    let answer = remote.upload(&remote.zstd_write_name(&digest)?, small).await;
                    done("ByteStream.Write of zstd", answer.map(Response::new)).map(|_| ())
                }
                _ => {
                    let answer = remote.upload(&remote.write_name(&digest)?, blob).await;
                    done("ByteStream.Write", answer.map(Response::new)).map(|_| ())
                }
            }
        }
    };
    join_all((0..RACERS).map(one)).await.into_iter().collect::<Result<(), Finding>>()?;
    must(remote.must_read(&remote.read_name(&digest)).await? == blob, || {
        "a blob that many uploaded at once read as something else".into()
    })
}

async fn one_lies(subject: &Subject) -> Result<(), Finding> {
    let remote = Remote::of(subject);
    let (blob, mut lie) = (random(4 * PIECE_BYTES)?, random(4 * PIECE_BYTES)?);
    lie[0] = !blob[0];
    let digest = digest(&blob);
    let (honest, liar) = (remote.write_name(&digest)?, remote.write_name(&digest)?);
    let (honest, liar) = tokio::join!(remote.upload(&honest, &blob), remote.upload(&liar, &lie));
    done("ByteStream.Write", honest.map(Response::new))?;
    // Once the blob is there, nobody looks at what else is sent in its name.
    if let Err(status) = liar {
        refused("ByteStream.Write of other content", Err::<(), _>(status), &[Code::InvalidArgument])?;
    }
    must(remote.must_read(&remote.read_name(&digest)).await? == blob, || {
        "a blob that somebody lied about read as something else".into()
    })
}

async fn vanished(subject: &Subject) -> Result<(), Finding> {
    let remote = Remote::of(subject);
    let blob = random(6 * PIECE_BYTES)?;
    let digest = digest(&blob);
    let name = remote.write_name(&digest)?;
    let sent = vanish(&remote, &name, &blob, 3).await?;
    remote.must_be_missing(&digest, "its client vanished in the middle").await?;
    for look in 1.. {
        let rest = remote.rest_of(&name, &blob, sent).await?;
        let written = remote.write(vec![rest]).await;
        // What the server had received of the first upload may come to count a moment after its client is gone.
        if written.is_err() && look < MAX_LOOKS {
            tokio::time::sleep(LOOK_AGAIN_AFTER).await;
            continue;
        }
        done("ByteStream.Write from where it stopped", written.map(Response::new))?;
        break;
    }
    let other = remote.upload(&remote.write_name(&digest)?, &blob).await;
    done("ByteStream.Write", other.map(Response::new))?;
    must(remote.must_read(&remote.read_name(&digest)).await? == blob, || {
        "a blob whose first client vanished read as something else".into()
    })
}

/// Sends so many pieces, and is gone once the server has them, or has had time for it; how many bytes were sent.
async fn vanish(remote: &Remote<'_>, name: &str, bytes: &[u8], count: usize) -> Result<i64, Finding> {
    let (sender, receiver) = mpsc::channel(count);
    for piece in pieces(name, bytes).into_iter().take(count) {
        sender.try_send(piece).map_err(|_| Finding::broken("the channel is full"))?;
    }
    let (asked, mut client) = (remote.scoped(ReceiverStream::new(receiver)), remote.streams());
    let writing = tokio::spawn(async move { client.write(asked).await.map(|_| ()) });
    let sent = (count * PIECE_BYTES) as i64;
    for _ in 0..MAX_LOOKS {
        if remote.write_status(name).await.is_ok_and(|answer| answer.committed_size == sent) {
            break;
        }
        tokio::time::sleep(LOOK_AGAIN_AFTER).await;
    }
    writing.abort();
    let ended: Result<Result<(), Status>, _> = writing.await;
    must(ended.is_err(), || "an upload ended before all of it was sent".into())?;
    drop(sender);
    Ok(sent)
}
