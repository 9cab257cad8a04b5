//! ByteStream.Read: a blob from an offset on.

use tonic::Code;

use super::client::Remote;
use super::content::{compressible, decompress, random, unknown_digest};
use crate::finding::must;
use crate::grpc::{done, refused};
use crate::{Check, Finding, Subject};

pub(super) const CHECKS: &[Check] = &[
    Check::new(&["R20"], "a read begins at its offset and ends at its limit", |s| Box::pin(parts(s))),
    Check::new(&["R20"], "an offset beyond the end is OUT_OF_RANGE", |s| Box::pin(beyond(s))),
    Check::new(&["R20"], "a compressed read counts its offset in plain bytes, and has no limit", |s| {
        Box::pin(compressed(s))
    }),
    Check::new(&["R20"], "a blob that is missing is NOT_FOUND", |s| Box::pin(missing(s))),
];

async fn parts(subject: &Subject) -> Result<(), Finding> {
    let remote = Remote::of(subject);
    let blob = random(300_000)?;
    let name = remote.read_name(&remote.put_one(&blob).await?);
    for (offset, limit) in [(0, 0), (0, 1), (1, 0), (70_001, 100_003), (299_999, 5), (300_000, 0)] {
        let read = remote.read(&name, offset as i64, limit as i64).await;
        let read = done("ByteStream.Read", read.map(tonic::Response::new))?;
        let end = if limit == 0 { blob.len() } else { blob.len().min(offset + limit) };
        must(read == blob[offset..end], || {
            format!("read_offset {offset} and read_limit {limit} gave {} bytes of 300000", read.len())
        })?;
    }
    Ok(())
}

async fn beyond(subject: &Subject) -> Result<(), Finding> {
    let remote = Remote::of(subject);
    let name = remote.read_name(&remote.put_one(&random(1_000)?).await?);
    remote.must_read(&name).await?;
    for offset in [1_001, i64::MAX] {
        let call = format!("Read of 1000 bytes at {offset}");
        refused(&call, remote.read(&name, offset, 0).await, &[Code::OutOfRange])?;
    }
    let negative = [Code::OutOfRange, Code::InvalidArgument];
    refused("Read at -1", remote.read(&name, -1, 0).await, &negative)?;
    refused("Read with the limit -1", remote.read(&name, 0, -1).await, &negative)
}

async fn compressed(subject: &Subject) -> Result<(), Finding> {
    let remote = Remote::of(subject);
    remote.needs_zstd().await?;
    let blob = compressible(200_000)?;
    let name = remote.zstd_name(&remote.put_one(&blob).await?);
    for offset in [0, 100_001] {
        let read = remote.read(&name, offset as i64, 0).await;
        let read = decompress(&done("ByteStream.Read", read.map(tonic::Response::new))?)?;
        must(read == blob[offset..], || {
            format!("read_offset {offset} gave {} plain bytes of 200000", read.len())
        })?;
    }
    refused("a compressed Read with a limit", remote.read(&name, 0, 10).await, &[Code::InvalidArgument])
}

async fn missing(subject: &Subject) -> Result<(), Finding> {
    let remote = Remote::of(subject);
    let name = remote.read_name(&unknown_digest()?);
    refused("Read of what is missing", remote.read(&name, 0, 0).await, &[Code::NotFound])
}
