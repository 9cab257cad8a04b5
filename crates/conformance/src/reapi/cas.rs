//! ContentAddressableStorage: blobs many at a time.

use bazel_remote_apis::build::bazel::remote::execution::v2::{
    BatchReadBlobsRequest, BatchReadBlobsResponse, Digest, batch_update_blobs_request::Request as Blob,
    compressor::Value as Compressor, digest_function::Value as Function,
};
use tonic::{Code, Response, Status};

use super::client::Remote;
use super::content::{compress, compressible, decompress, digest, random, unknown_digest};
use crate::finding::must;
use crate::grpc::{done, refused};
use crate::{Check, Finding, Subject};

/// Largest batch that the suite is willing to send.
const MAX_BATCH_BYTES: i64 = 16 << 20;

pub(super) const CHECKS: &[Check] = &[
    Check::new(&["R14"], "FindMissingBlobs names what is missing and nothing else, each once", |s| {
        Box::pin(missing(s))
    }),
    Check::new(&["R15"], "each blob of a batch is taken or refused on its own", |s| {
        Box::pin(batch_update(s))
    }),
    Check::new(&["R15"], "a batch above the announced limit is INVALID_ARGUMENT", |s| {
        Box::pin(update_limit(s))
    }),
    Check::new(&["R15"], "a blob of a batch may come compressed, where that is announced", |s| {
        Box::pin(update_compressed(s))
    }),
    Check::new(&["R16"], "each blob of a batch is found or not on its own", |s| Box::pin(batch_read(s))),
    Check::new(&["R16"], "reading a batch above the announced limit is INVALID_ARGUMENT", |s| {
        Box::pin(read_limit(s))
    }),
    Check::new(&["R16"], "a batch is read compressed only by who accepts it", |s| {
        Box::pin(read_compressed(s))
    }),
];

async fn missing(subject: &Subject) -> Result<(), Finding> {
    let remote = Remote::of(subject);
    let here = remote.put(&[&random(10)?, &random(70_000)?]).await?;
    let gone = [unknown_digest()?, unknown_digest()?];
    let asked = [&here[0], &gone[0], &here[1], &gone[1], &gone[0], &here[0]].map(|digest| digest.clone());
    let mut answer = remote.missing(&asked).await?;
    answer.sort_by(|one, other| one.hash.cmp(&other.hash));
    let mut expected = gone.to_vec();
    expected.sort_by(|one, other| one.hash.cmp(&other.hash));
    must(answer == expected, || format!("two blobs are missing, and FindMissingBlobs named {}", answer.len()))
}

async fn batch_update(subject: &Subject) -> Result<(), Finding> {
    let remote = Remote::of(subject);
    let (good, other) = (random(100)?, random(100)?);
    let lie = digest(&random(100)?);
    let batch = vec![(digest(&good), good.clone()), (lie.clone(), other), (digest(b""), Vec::new())];
    let answer = done("BatchUpdateBlobs", remote.try_put(batch, Function::Unknown).await)?;
    let code = |of: &Digest| {
        let one = answer.responses.iter().find(|one| one.digest.as_ref() == Some(of));
        one.map(|one| Code::from(one.status.as_ref().map_or(0, |status| status.code)))
    };
    let codes = [code(&digest(&good)), code(&lie), code(&digest(b""))];
    must(codes == [Some(Code::Ok), Some(Code::InvalidArgument), Some(Code::Ok)], || {
        format!("a blob, a lie and an empty blob were answered {codes:?}")
    })?;
    must(remote.get(&digest(&good)).await? == good, || "the blob read as something else".into())?;
    remote.must_be_missing(&lie, "it was refused").await
}

/// The announced limit, if it can be tried.
async fn limit(remote: &Remote<'_>) -> Result<usize, Finding> {
    let limit = remote.cache().await?.max_batch_total_size_bytes;
    match usize::try_from(limit) {
        Ok(bytes) if (1..=MAX_BATCH_BYTES).contains(&limit) => Ok(bytes),
        _ => Err(Finding::Skipped(format!("max_batch_total_size_bytes is {limit}"))),
    }
}

async fn update_limit(subject: &Subject) -> Result<(), Finding> {
    let remote = Remote::of(subject);
    let limit = limit(&remote).await?;
    let (one, other) = (compressible(limit / 2 + 1)?, compressible(limit / 2 + 1)?);
    let batch = vec![(digest(&one), one.clone()), (digest(&other), other)];
    let answer = remote.try_put(batch, Function::Unknown).await;
    refused("BatchUpdateBlobs above the limit", answer, &[Code::InvalidArgument])?;
    remote.put_one(&one).await.map(|_| ())
}

async fn update_compressed(subject: &Subject) -> Result<(), Finding> {
    let remote = Remote::of(subject);
    let announced = remote.cache().await?.supported_batch_update_compressors;
    let blob = compressible(100_000)?;
    let request = |compressor: Compressor, data: Vec<u8>| Blob {
        digest: Some(digest(&blob)),
        data,
        compressor: compressor.into(),
    };
    let unasked = [Compressor::Deflate, Compressor::Brotli];
    for other in unasked.into_iter().filter(|other| !announced.contains(&(*other as i32))) {
        let answer = remote.try_batch(vec![request(other, b"anything".to_vec())], Function::Unknown).await;
        let code =
            answer.map_or_else(|status| status.code(), |answer| first_code(&answer.into_inner().responses));
        must(code == Code::InvalidArgument, || format!("{other:?} is not announced, and answered {code:?}"))?;
    }
    if !announced.contains(&(Compressor::Zstd as i32)) {
        return Err(Finding::Skipped("ZSTD is not among supported_batch_update_compressors".into()));
    }
    let batch = vec![request(Compressor::Zstd, compress(&blob)?)];
    let answer = done("BatchUpdateBlobs", remote.try_batch(batch, Function::Unknown).await)?;
    let code = first_code(&answer.responses);
    must(code == Code::Ok, || format!("a blob that came compressed was answered {code:?}"))?;
    must(remote.get(&digest(&blob)).await? == blob, || "what came compressed read as something else".into())
}

fn first_code(
    responses: &[bazel_remote_apis::build::bazel::remote::execution::v2::batch_update_blobs_response::Response],
) -> Code {
    let first = responses.first();
    first.map_or(Code::Unknown, |one| Code::from(one.status.as_ref().map_or(0, |status| status.code)))
}

async fn try_read(
    remote: &Remote<'_>,
    digests: Vec<Digest>,
    accepted: &[Compressor],
) -> Result<Response<BatchReadBlobsResponse>, Status> {
    let asked = BatchReadBlobsRequest {
        instance_name: remote.instance(),
        digests,
        acceptable_compressors: accepted.iter().map(|compressor| *compressor as i32).collect(),
        ..BatchReadBlobsRequest::default()
    };
    remote.cas().batch_read_blobs(remote.scoped(asked)).await
}

async fn batch_read(subject: &Subject) -> Result<(), Finding> {
    let remote = Remote::of(subject);
    let blob = random(5_000)?;
    let (here, gone) = (remote.put_one(&blob).await?, unknown_digest()?);
    let asked = vec![gone.clone(), here.clone()];
    let answer = done("BatchReadBlobs", try_read(&remote, asked, &[]).await)?.responses;
    let of = |digest: &Digest| answer.iter().find(|one| one.digest.as_ref() == Some(digest));
    let code = |digest: &Digest| of(digest).map(|one| one.status.as_ref().map_or(0, |status| status.code));
    must(answer.len() == 2 && code(&here) == Some(0), || format!("two digests were answered {answer:?}"))?;
    must(of(&here).is_some_and(|one| one.data == blob), || "the blob read as something else".into())?;
    must(code(&gone) == Some(Code::NotFound as i32), || {
        format!("a blob that is missing was answered with code {:?}, not NOT_FOUND", code(&gone))
    })
}

async fn read_limit(subject: &Subject) -> Result<(), Finding> {
    let remote = Remote::of(subject);
    let limit = limit(&remote).await?;
    let (one, other) = (compressible(limit / 2 + 1)?, compressible(limit / 2 + 1)?);
    let digests = vec![remote.put_one(&one).await?, remote.put_one(&other).await?];
    let answer = try_read(&remote, digests.clone(), &[]).await;
    refused("BatchReadBlobs above the limit", answer, &[Code::InvalidArgument])?;
    let answer = done("BatchReadBlobs", try_read(&remote, digests[..1].to_vec(), &[]).await)?;
    must(answer.responses.first().is_some_and(|answer| answer.data == one), || {
        "a blob within the limit read as something else".into()
    })
}

async fn read_compressed(subject: &Subject) -> Result<(), Finding> {
    let remote = Remote::of(subject);
    let blob = compressible(100_000)?;
    let digest = remote.put_one(&blob).await?;
    for accepted in [&[][..], &[Compressor::Identity], &[Compressor::Zstd], &[Compressor::Brotli]] {
        let answer = done("BatchReadBlobs", try_read(&remote, vec![digest.clone()], accepted).await)?;
        let Some(one) = answer.responses.into_iter().next() else {
            return Err(Finding::broken("BatchReadBlobs answered nothing"));
        };
        let read = match one.compressor() {
            Compressor::Identity => one.data,
            Compressor::Zstd if accepted.contains(&Compressor::Zstd) => decompress(&one.data)?,
            other if accepted.contains(&other) => continue,
            other => {
                return Err(Finding::broken(format!("{accepted:?} was accepted, and {other:?} came")));
            }
        };
        must(read == blob, || format!("with {accepted:?} the blob read as something else"))?;
    }
    Ok(())
}
