//! Remote execution in the hands of the hostile: which calls there are, and what only they can suffer.

use bazel_remote_apis::build::bazel::remote::execution::v2::{
    BatchUpdateBlobsRequest, Digest, batch_update_blobs_request::Request as Blob,
};
use bytes::Bytes;
use prost::Message;
use tonic::Code;

use crate::endpoints::impatient;
use crate::grpc::{framed, send};
use crate::served_calls::grpc_calls;

const EXECUTION: &str = "build.bazel.remote.execution.v2";

/// The paths of the calls.
pub(crate) fn calls() -> Vec<String> {
    let mut calls = grpc_calls();
    calls.retain(|call| call.starts_with(EXECUTION) || call.starts_with("google."));
    calls
}

/// A6: a message that says it is larger than any may be is refused before it comes; one of nothing but empty fields takes
/// little more memory than it has bytes times the size of what it names.
#[tokio::test]
async fn a6_huge_messages_and_those_of_a_million_empty_fields_are_refused() {
    let served = impatient().await;
    for path in calls() {
        assert_eq!(send(&served, &path, framed(2_000_000_000, b"x")).await, Code::OutOfRange, "{path}");
    }
    // Field 2 (digests), field 2 (requests): each empty, two bytes a piece.
    let empty = |bytes: usize| Bytes::from([0x12, 0x00].repeat(bytes / 2));
    let cas = format!("{EXECUTION}.ContentAddressableStorage");
    let before = peak_kib();
    for (call, bytes) in
        [("FindMissingBlobs", 4 << 20), ("BatchReadBlobs", 4 << 20), ("BatchUpdateBlobs", 7 << 20)]
    {
        let message = empty(bytes);
        let told = send(&served, &format!("{cas}/{call}"), framed(message.len(), &message)).await;
        assert!(
            matches!(told, Code::InvalidArgument | Code::OutOfRange | Code::ResourceExhausted),
            "{call}: {told:?}"
        );
    }
    // All of them, and as much for the tests beside them; `a6_no_repeated_field_…` measures each field alone.
    let grown_mib = (peak_kib() - before) >> 10;
    assert!(grown_mib < 2 * (16 * 7 + 64), "{grown_mib} MiB more than before");
    assert_eq!(served.get("/healthz").await.status, 200);
}

/// Without TLS nothing but the digest protects a blob: whichever byte of an upload changes, the store never has other content
/// under the digest that was meant.
#[tokio::test]
async fn n17_a_flipped_bit_on_the_way_never_stores_wrong_content() {
    let served = impatient().await;
    let content = b"what was meant".to_vec();
    let digest = blobs::Digest::of(blobs::DigestFunction::Sha256, &content);
    let path = format!("/cas/{}", digest.hash);
    let blob = Blob {
        digest: Some(Digest { hash: digest.hash.to_string(), size_bytes: content.len() as i64 }),
        data: content.clone(),
        ..Blob::default()
    };
    let message = BatchUpdateBlobsRequest { requests: vec![blob], ..Default::default() }.encode_to_vec();
    let call = format!("{EXECUTION}.ContentAddressableStorage/BatchUpdateBlobs");
    let within = message.windows(content.len()).position(|part| part == content).unwrap();
    // One bit of each byte, another one each time.
    for bit in (0..message.len()).map(|byte| 8 * byte + byte % 8) {
        let mut flipped = message.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        send(&served, &call, framed(flipped.len(), &flipped)).await;
        let stored = served.client.get(format!("http://{}{path}", served.address)).send().await.unwrap();
        if stored.status() == 200 {
            assert!(bit / 8 < within, "bit {bit} is of the content");
            assert_eq!(stored.bytes().await.unwrap(), content, "bit {bit}");
        }
    }
    for bit in (0..content.len()).map(|byte| 8 * byte + byte % 8) {
        let mut flipped = content.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        let put = served.request("PUT", &path).body(flipped);
        assert_eq!(put.send().await.unwrap().status(), 400, "bit {bit}");
    }
}

/// The most memory that this process ever had.
fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}
