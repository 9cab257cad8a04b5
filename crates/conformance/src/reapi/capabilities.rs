//! GetCapabilities: what a server says it can do, and whether it can.

use bazel_remote_apis::build::bazel::remote::execution::v2::{
    SplitBlobRequest, compressor::Value as Compressor, digest_function::Value as Function,
};
use tonic::Code;

use super::client::Remote;
use super::content::random;
use crate::finding::must;
use crate::grpc::{format_status, refused};
use crate::{Check, Finding, Subject};

pub(super) const CHECKS: &[Check] = &[
    Check::new(&["R1"], "an instance's capabilities have a cache, an executor or both", |s| {
        Box::pin(sections(s))
    }),
    Check::new(&["R2"], "the versions are a range within version 2", |s| Box::pin(versions(s))),
    Check::new(
        &["R3"],
        "the cache names its digest functions and limits, and contradicts itself nowhere",
        |s| Box::pin(cache(s)),
    ),
    Check::new(
        &["R4"],
        "the executor names digest functions that the cache has, and ranges of priorities",
        |s| Box::pin(executor(s)),
    ),
    Check::new(&["R5"], "every compressor that is announced is served, and no other", |s| {
        Box::pin(compressors(s))
    }),
    Check::new(&["R5"], "blobs are split only where that is announced", |s| Box::pin(split(s))),
];

async fn sections(subject: &Subject) -> Result<(), Finding> {
    let answer = Remote::of(subject).capabilities().await?;
    must(answer.cache_capabilities.is_some() || answer.execution_capabilities.is_some(), || {
        "the capabilities have neither cache_capabilities nor execution_capabilities".into()
    })
}

async fn versions(subject: &Subject) -> Result<(), Finding> {
    let answer = Remote::of(subject).capabilities().await?;
    let (Some(low), Some(high)) = (&answer.low_api_version, &answer.high_api_version) else {
        return Err(Finding::broken("low_api_version and high_api_version should both be there"));
    };
    let (low, high) = ((low.major, low.minor), (high.major, high.minor));
    must(low.0 == 2 && high.0 == 2 && low <= high, || {
        format!("low_api_version is {low:?} and high_api_version is {high:?}")
    })?;
    let deprecated = answer.deprecated_api_version.map(|old| (old.major, old.minor));
    must(deprecated.is_none_or(|old| old <= low), || {
        format!("deprecated_api_version {deprecated:?} is above low_api_version {low:?}")
    })
}

async fn cache(subject: &Subject) -> Result<(), Finding> {
    let answer = Remote::of(subject).cache().await?;
    let functions = &answer.digest_functions;
    must(!functions.is_empty() && !functions.contains(&(Function::Unknown as i32)), || {
        format!("digest_functions should name functions, and are {functions:?}")
    })?;
    must(answer.max_batch_total_size_bytes >= 0 && answer.max_cas_blob_size_bytes >= 0, || {
        "max_batch_total_size_bytes and max_cas_blob_size_bytes must not be negative".into()
    })?;
    must(answer.action_cache_update_capabilities.is_some(), || {
        "action_cache_update_capabilities should say whether results can be uploaded".into()
    })
}

async fn executor(subject: &Subject) -> Result<(), Finding> {
    let remote = Remote::of(subject);
    let Some(answer) = remote.capabilities().await?.execution_capabilities else {
        return Err(Finding::Skipped("the server announces no execution_capabilities".into()));
    };
    let functions = remote.cache().await?.digest_functions;
    must(functions.contains(&answer.digest_function), || {
        format!("digest_function {} is none of the cache's {functions:?}", answer.digest_function)
    })?;
    must(answer.digest_functions.iter().all(|function| functions.contains(function)), || {
        format!("digest_functions {:?} are not all among the cache's {functions:?}", answer.digest_functions)
    })?;
    let ranges = answer.execution_priority_capabilities.unwrap_or_default().priorities;
    must(ranges.iter().all(|range| range.min_priority <= range.max_priority), || {
        format!("a range of priorities ends before it begins: {ranges:?}")
    })
}

async fn compressors(subject: &Subject) -> Result<(), Finding> {
    let remote = Remote::of(subject);
    let announced = remote.cache().await?.supported_compressors;
    let blob = random(3_000)?;
    let digest = remote.put_one(&blob).await?;
    for (compressor, name) in
        [(Compressor::Zstd, "zstd"), (Compressor::Deflate, "deflate"), (Compressor::Brotli, "brotli")]
    {
        let path =
            format!("{}compressed-blobs/{name}/{}/{}", remote.prefix(), digest.hash, digest.size_bytes);
        let read = remote.read(&path, 0, 0).await;
        if announced.contains(&(compressor as i32)) {
            must(read.is_ok(), || format!("{name} is announced, and reading {path} failed: {read:?}"))?;
        } else {
            let call = format!("reading with {name}, which is not announced,");
            refused(&call, read, &[Code::InvalidArgument, Code::Unimplemented])?;
        }
    }
    Ok(())
}

async fn split(subject: &Subject) -> Result<(), Finding> {
    let remote = Remote::of(subject);
    let announced = remote.cache().await?.split_blob_support;
    let digest = remote.put_one(&random(3_000)?).await?;
    let asked = SplitBlobRequest {
        instance_name: remote.instance(),
        blob_digest: Some(digest),
        ..SplitBlobRequest::default()
    };
    let answer = remote.cas().split_blob(remote.scoped(asked)).await;
    let unserved = answer.as_ref().is_err_and(|status| status.code() == Code::Unimplemented);
    let said = answer.map_or_else(|status| format_status(&status), |_| "OK".into());
    must(unserved != announced, || {
        format!("split_blob_support is {announced}, and SplitBlob answered {said}")
    })
}
