//! Batches of compressed blobs (I15): what a batch decompresses to is bounded before anything is decompressed.

use bazel_remote_apis::build::bazel::remote::execution::v2::{
    BatchReadBlobsRequest, BatchUpdateBlobsRequest, batch_update_blobs_request::Request as Blob, compressor,
};
use blobs::{ZstdDecompressor, ZstdEncoder};
use tonic::Code;

use crate::support::{Served, digest};

const MIB: usize = 1 << 20;
const MAX_BATCH_BYTES: usize = blobs::MAX_BATCH_BYTES as usize;

fn zstd(content: &[u8]) -> Blob {
    Blob {
        digest: Some(digest(content)),
        data: ZstdEncoder::compress(content).unwrap().to_vec(),
        compressor: compressor::Value::Zstd.into(),
    }
}

/// Only the compressed bytes of a batch counted, so that a third of a megabyte took gigabytes.
#[tokio::test]
async fn i14_i15_a_batch_of_bombs_is_refused_before_anything_is_decompressed() {
    let served = Served::start().await;
    let bomb = zstd(&vec![0; MAX_BATCH_BYTES]);
    let small = zstd(b"small");
    for (what, requests) in [
        ("many bombs", vec![bomb.clone(); 64]),
        ("one bomb, and one byte too many", vec![bomb.clone(), zstd(b"x")]),
        (
            "a compressed and a plain blob",
            vec![zstd(&vec![0; MAX_BATCH_BYTES - MIB]), plain(&vec![1; MIB + 1])],
        ),
        ("one that announces more than there is", vec![small.clone(), announced(&small, i64::MAX)]),
    ] {
        let request = BatchUpdateBlobsRequest { requests, ..Default::default() };
        assert!(prost::Message::encoded_len(&request) < 2 * MIB, "{what}");
        let refused = served.cas().await.batch_update_blobs(request).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{what}: {refused:?}");
        assert!(
            refused.message().contains(&format!("at most {MAX_BATCH_BYTES} bytes")),
            "{what}: {}",
            refused.message()
        );
    }
    assert_eq!(served.blobs.store().usage().blobs, 0, "nothing was stored");
    served.stop().await;
}

#[tokio::test]
async fn a_batch_of_compressed_blobs_is_stored_and_read_compressed() {
    let served = Served::start().await;
    let contents: Vec<Vec<u8>> = (0..=3).map(|n| vec![n; MAX_BATCH_BYTES / 4]).chain([Vec::new()]).collect();
    let requests = contents.iter().map(|content| zstd(content)).collect();
    let told = served
        .cas()
        .await
        .batch_update_blobs(BatchUpdateBlobsRequest { requests, ..Default::default() })
        .await
        .unwrap()
        .into_inner();
    for (told, content) in told.responses.iter().zip(&contents) {
        assert_eq!(told.digest.as_ref(), Some(&digest(content)));
        assert_eq!(told.status.as_ref().unwrap().code, 0, "{:?}", told.status);
    }
    let read = BatchReadBlobsRequest {
        digests: contents.iter().map(|content| digest(content)).collect(),
        acceptable_compressors: vec![compressor::Value::Zstd.into()],
        ..Default::default()
    };
    let read = served.cas().await.batch_read_blobs(read).await.unwrap().into_inner();
    for (read, content) in read.responses.iter().zip(&contents) {
        let data = match compressor::Value::try_from(read.compressor).unwrap() {
            compressor::Value::Zstd => {
                ZstdDecompressor::new().unwrap().decompress(&read.data, content.len() as u64).unwrap()
            }
            _ => read.data.clone().into(),
        };
        assert!(data == content);
    }
    assert_eq!(read.responses[0].compressor, i32::from(compressor::Value::Zstd));
    served.stop().await;
}

/// One that is broken in whatever way is refused alone, and leaves nothing.
#[tokio::test]
async fn i14_i15_broken_blobs_of_a_compressed_batch_are_refused_one_by_one() {
    let served = Served::start().await;
    let content: Vec<u8> =
        (0..MIB as u32 / 32).flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    let good = zstd(&content[..1_000]);
    let changed = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut blob = zstd(&content);
        change(&mut blob.data);
        blob
    };
    let zeros = zstd(&vec![0; MIB]);
    let requests = vec![
        changed(&|data| data.truncate(data.len() / 2)),
        changed(&|data| data.truncate(0)),
        changed(&|data| data.push(0)),
        changed(&|data| data.extend_from_slice(&ZstdEncoder::compress(b"more").unwrap())),
        changed(&|data| *data = content[..1_000].to_vec()),
        announced(&zeros, 1),
        announced(&zeros, MIB as i64 + 1),
        good.clone(),
        Blob { digest: Some(digest(b"something else")), ..zstd(b"something new!") },
    ];
    let request = BatchUpdateBlobsRequest { requests, ..Default::default() };
    let told = served.cas().await.batch_update_blobs(request).await.unwrap().into_inner();
    for (n, told) in told.responses.iter().enumerate() {
        let expected = if told.digest == good.digest { Code::Ok } else { Code::InvalidArgument };
        assert_eq!(told.status.as_ref().unwrap().code, expected as i32, "{n}: {:?}", told.status);
    }
    assert_eq!((told.responses.len(), served.blobs.store().usage().blobs), (9, 1));
    served.stop().await;
}

fn plain(content: &[u8]) -> Blob {
    Blob { digest: Some(digest(content)), data: content.to_vec(), ..Blob::default() }
}

/// The same blob with another size in its digest.
fn announced(blob: &Blob, size_bytes: i64) -> Blob {
    let digest = blob.digest.clone().map(|digest| {
        bazel_remote_apis::build::bazel::remote::execution::v2::Digest { size_bytes, ..digest }
    });
    Blob { digest, ..blob.clone() }
}
