//! ByteStream.Write and QueryWriteStatus: a blob in pieces, visible only as a whole.

use bazel_remote_apis::google::bytestream::WriteRequest;
use tonic::{Code, Response};

use super::client::{PIECE_BYTES, Remote, pieces};
use super::content::{compress, compressible, digest, random};
use crate::finding::must;
use crate::grpc::{done, refused};
use crate::{Check, Finding, Subject};

pub(super) const CHECKS: &[Check] = &[
    Check::new(&["R21"], "a blob is written in pieces, with its name in the first", |s| Box::pin(whole(s))),
    Check::new(&["R21"], "pieces that leave a gap are refused, and make no blob", |s| Box::pin(gap(s))),
    Check::new(&["R21"], "a name must not change within an upload", |s| Box::pin(other_name(s))),
    Check::new(&["R22"], "an upload of what is there ends at once with its whole size", |s| {
        Box::pin(present(s))
    }),
    Check::new(&["R22", "R23"], "a compressed upload of what is there ends with -1", |s| {
        Box::pin(present_compressed(s))
    }),
    Check::new(&["R23"], "a compressed upload counts its offsets in compressed bytes", |s| {
        Box::pin(compressed(s))
    }),
    Check::new(&["R24"], "an upload that was cut short goes on where QueryWriteStatus says", |s| {
        Box::pin(resumed(s))
    }),
    Check::new(&["R25"], "half of a blob is never seen", |s| Box::pin(half(s))),
];

async fn whole(subject: &Subject) -> Result<(), Finding> {
    let remote = Remote::of(subject);
    let blob = random(3 * PIECE_BYTES + 17)?;
    let digest = digest(&blob);
    let answer = remote.upload(&remote.write_name(&digest)?, &blob).await;
    let answer = done("ByteStream.Write", answer.map(Response::new))?;
    must(answer.committed_size == digest.size_bytes, || {
        format!("committed_size is {}, and {} bytes were written", answer.committed_size, blob.len())
    })?;
    must(remote.must_read(&remote.read_name(&digest)).await? == blob, || {
        "what was written read as something else".into()
    })?;
    // Every message may repeat the name.
    let blob = random(2 * PIECE_BYTES)?;
    let digest = super::content::digest(&blob);
    let name = remote.write_name(&digest)?;
    let mut repeated = pieces(&name, &blob);
    repeated.iter_mut().for_each(|piece| piece.resource_name = name.clone());
    done("ByteStream.Write", remote.write(repeated).await.map(Response::new)).map(|_| ())
}

async fn gap(subject: &Subject) -> Result<(), Finding> {
    let remote = Remote::of(subject);
    let blob = random(3 * PIECE_BYTES)?;
    let digest = digest(&blob);
    for offset in [PIECE_BYTES as i64 - 1, PIECE_BYTES as i64 + 1, 0, -1, i64::MAX] {
        let mut wrong = pieces(&remote.write_name(&digest)?, &blob);
        wrong[1].write_offset = offset;
        let call = format!("Write whose second piece is at {offset}");
        refused(&call, remote.write(wrong).await, &[Code::InvalidArgument, Code::OutOfRange])?;
    }
    let mut late = pieces(&remote.write_name(&digest)?, &blob);
    late.iter_mut().for_each(|piece| piece.write_offset += 10_000_000);
    refused(
        "Write that begins beyond the end",
        remote.write(late).await,
        &[Code::InvalidArgument, Code::OutOfRange],
    )?;
    remote.must_be_missing(&digest, "no upload of it was whole").await
}

async fn other_name(subject: &Subject) -> Result<(), Finding> {
    let remote = Remote::of(subject);
    let blob = random(2 * PIECE_BYTES)?;
    let mut changed = pieces(&remote.write_name(&digest(&blob))?, &blob);
    changed[1].resource_name = remote.write_name(&digest(b"another"))?;
    refused("Write with two names", remote.write(changed).await, &[Code::InvalidArgument])
}

async fn present(subject: &Subject) -> Result<(), Finding> {
    let remote = Remote::of(subject);
    let blob = random(3 * PIECE_BYTES)?;
    let digest = remote.put_one(&blob).await?;
    let name = remote.write_name(&digest)?;
    for count in [1, 3] {
        let mut some = pieces(&name, &blob);
        some.truncate(count);
        let answer = done("ByteStream.Write", remote.write(some).await.map(Response::new))?;
        must(answer.committed_size == digest.size_bytes, || {
            format!("{} bytes are there, and committed_size is {}", blob.len(), answer.committed_size)
        })?;
    }
    Ok(())
}

async fn present_compressed(subject: &Subject) -> Result<(), Finding> {
    let remote = Remote::of(subject);
    remote.needs_zstd().await?;
    let blob = random(3 * PIECE_BYTES)?;
    let digest = remote.put_one(&blob).await?;
    let mut some = pieces(&remote.zstd_write_name(&digest)?, &compress(&blob)?);
    some.truncate(1);
    let answer = done("ByteStream.Write", remote.write(some).await.map(Response::new))?;
    must(answer.committed_size == -1, || format!("committed_size is {}, not -1", answer.committed_size))
}

async fn compressed(subject: &Subject) -> Result<(), Finding> {
    let remote = Remote::of(subject);
    remote.needs_zstd().await?;
    for blob in [random(3 * PIECE_BYTES)?, compressible(10 * PIECE_BYTES)?] {
        let (digest, small) = (digest(&blob), compress(&blob)?);
        let answer = remote.upload(&remote.zstd_write_name(&digest)?, &small).await;
        let answer = done("ByteStream.Write", answer.map(Response::new))?;
        let said = answer.committed_size;
        must(said == small.len() as i64 || said == -1, || {
            format!("{} compressed bytes were written, and committed_size is {said}", small.len())
        })?;
        must(remote.must_read(&remote.read_name(&digest)).await? == blob, || {
            "what was written compressed read as something else".into()
        })?;
    }
    Ok(())
}

/// The first messages of an upload, without its end.
fn begun(name: &str, bytes: &[u8], count: usize) -> Vec<WriteRequest> {
    let mut begun = pieces(name, bytes);
    begun.truncate(count);
    begun
}

async fn resumed(subject: &Subject) -> Result<(), Finding> {
    let remote = Remote::of(subject);
    let blob = random(4 * PIECE_BYTES)?;
    let digest = digest(&blob);
    let name = remote.write_name(&digest)?;
    let sent = 2 * PIECE_BYTES as i64;
    // Some servers answer an upload that was cut short, some refuse it.
    let _ = remote.write(begun(&name, &blob, 2)).await;
    let rest = remote.rest_of(&name, &blob, sent).await?;
    done("ByteStream.Write from where it stopped", remote.write(vec![rest]).await.map(Response::new))?;
    must(remote.must_read(&remote.read_name(&digest)).await? == blob, || {
        "what was written in two goes read as something else".into()
    })?;
    let answer = done("QueryWriteStatus", remote.write_status(&name).await.map(Response::new))?;
    must(answer.complete && answer.committed_size == digest.size_bytes, || {
        format!("the blob is there, and QueryWriteStatus answered {answer:?}")
    })
}

async fn half(subject: &Subject) -> Result<(), Finding> {
    let remote = Remote::of(subject);
    let blob = random(4 * PIECE_BYTES)?;
    let digest = digest(&blob);
    let _ = remote.write(begun(&remote.write_name(&digest)?, &blob, 2)).await;
    remote.must_be_missing(&digest, "only half of it was sent").await?;
    let answer = remote.read(&remote.read_name(&digest), 0, 0).await;
    refused("Read of half of a blob", answer, &[Code::NotFound])
}
