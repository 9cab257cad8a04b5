//! Digests that lie, or are none (I5, I6, I14): refused wherever one can be said, and nothing comes of it.

use bazel_remote_apis::build::bazel::remote::execution::v2::action_cache_client::ActionCacheClient;
use bazel_remote_apis::build::bazel::remote::execution::v2::{
    ActionResult, BatchReadBlobsRequest, BatchUpdateBlobsRequest, Digest, FindMissingBlobsRequest,
    GetTreeRequest, UpdateActionResultRequest, batch_update_blobs_request::Request as Blob, digest_function,
};
use tonic::{Code, Status};

use crate::support::{Served, ask, digest};

/// Digests of which none can be one.
fn malformed() -> Vec<Digest> {
    let good = digest(b"content");
    let with = |hash: String, size_bytes: i64| Digest { hash, size_bytes };
    vec![
        with(good.hash.to_uppercase(), good.size_bytes),
        with(good.hash[1..].to_owned(), good.size_bytes),
        with(format!("{}0", good.hash), good.size_bytes),
        with("g".repeat(64), good.size_bytes),
        with(String::new(), good.size_bytes),
        with("ä".repeat(32), good.size_bytes),
        with(good.hash.clone(), -1),
        with(good.hash, i64::MIN),
    ]
}

async fn update(served: &Served, blobs: Vec<(Digest, &[u8])>) -> Vec<i32> {
    let requests = blobs.into_iter().map(|(digest, data)| Blob {
        digest: Some(digest),
        data: data.to_vec(),
        ..<_>::default()
    });
    let request = BatchUpdateBlobsRequest { requests: requests.collect(), ..Default::default() };
    let told = served.cas().await.batch_update_blobs(request).await.unwrap().into_inner();
    told.responses.iter().map(|told| told.status.as_ref().map_or(0, |status| status.code)).collect()
}

async fn is_missing(served: &Served, digest: &Digest) -> bool {
    let request = FindMissingBlobsRequest { blob_digests: vec![digest.clone()], ..Default::default() };
    !served
        .cas()
        .await
        .find_missing_blobs(request)
        .await
        .unwrap()
        .into_inner()
        .missing_blob_digests
        .is_empty()
}

#[tokio::test]
async fn i5_what_is_no_digest_is_refused_by_every_call_that_takes_one() {
    let served = Served::start().await;
    let code = |told: Result<(), Status>| told.unwrap_err().code();
    for bad in malformed() {
        let mut cas = served.cas().await;
        let find = FindMissingBlobsRequest { blob_digests: vec![bad.clone()], ..Default::default() };
        assert_eq!(code(cas.find_missing_blobs(find).await.map(drop)), Code::InvalidArgument, "{bad:?}");
        let read = BatchReadBlobsRequest { digests: vec![bad.clone()], ..Default::default() };
        assert_eq!(code(cas.batch_read_blobs(read).await.map(drop)), Code::InvalidArgument, "{bad:?}");
        let tree = GetTreeRequest { root_digest: Some(bad.clone()), ..Default::default() };
        assert_eq!(code(cas.get_tree(tree).await.map(drop)), Code::InvalidArgument, "{bad:?}");
        assert_eq!(update(&served, vec![(bad.clone(), b"content")]).await, [Code::InvalidArgument as i32]);
        assert_eq!(code(served.execute(ask(&bad)).await.map(drop)), Code::InvalidArgument, "{bad:?}");
        assert_eq!(code(served.cached(&bad).await.map(drop)), Code::InvalidArgument, "{bad:?}");
        let result = UpdateActionResultRequest {
            action_digest: Some(bad.clone()),
            action_result: Some(ActionResult::default()),
            ..Default::default()
        };
        let mut cache = ActionCacheClient::new(served.channel().await);
        assert_eq!(
            code(cache.update_action_result(result).await.map(drop)),
            Code::InvalidArgument,
            "{bad:?}"
        );
    }
    for number in [digest_function::Value::Md5 as i32, 999, -1] {
        let find = FindMissingBlobsRequest { digest_function: number, ..Default::default() };
        let told = served.cas().await.find_missing_blobs(find).await;
        assert_eq!(code(told.map(drop)), Code::InvalidArgument, "function {number}");
    }
    assert_eq!(served.tasks().await, 0);
    served.stop().await;
}

/// Right length, wrong size; right size, wrong content: neither is ever seen, and the honest one beside them is.
#[tokio::test]
async fn i5_a_digest_that_lies_about_size_or_content_is_refused_and_never_seen() {
    let served = Served::start().await;
    let honest = digest(b"honest");
    let wrong_size = Digest { size_bytes: 100, ..digest(b"too short") };
    let wrong_content = digest(b"what it is not");
    let told = update(
        &served,
        vec![
            (wrong_size.clone(), b"too short"),
            (honest.clone(), b"honest"),
            (wrong_content.clone(), b"what it is, yes"),
        ],
    )
    .await;
    let invalid = Code::InvalidArgument as i32;
    assert_eq!(told, [invalid, 0, invalid]);
    assert!(is_missing(&served, &wrong_size).await && is_missing(&served, &wrong_content).await);
    assert!(!is_missing(&served, &honest).await);
    // A right hash with another size names nothing, also where the blob is.
    assert!(is_missing(&served, &Digest { size_bytes: 7, ..honest.clone() }).await);
    let served = served.restart().await;
    assert!(is_missing(&served, &wrong_content).await && !is_missing(&served, &honest).await);
    served.stop().await;
}

#[tokio::test]
async fn i6_the_empty_blob_is_there_and_takes_no_room() {
    let served = Served::start().await;
    let empty = digest(b"");
    assert!(!is_missing(&served, &empty).await);
    assert_eq!(update(&served, vec![(empty.clone(), b"")]).await, [0]);
    let read = BatchReadBlobsRequest { digests: vec![empty], ..Default::default() };
    let told = served.cas().await.batch_read_blobs(read).await.unwrap().into_inner();
    assert!(
        told.responses[0].data.is_empty()
            && told.responses[0].status.as_ref().is_none_or(|told| told.code == 0)
    );
    assert_eq!(served.blobs.store().usage().blobs, 0);
    served.stop().await;
}

/// A million digests do not fit into one message; as many as fit are looked up, and answered in one.
#[tokio::test]
async fn i14_batches_above_their_limits_are_refused() {
    let served = Served::start().await;
    let mut cas = served.cas().await;
    let digests =
        |count: usize| (0..count).map(|n| Digest { size_bytes: n as i64, ..digest(b"x") }).collect();
    let find = |count| FindMissingBlobsRequest { blob_digests: digests(count), ..Default::default() };
    let told = cas.find_missing_blobs(find(50_000)).await.unwrap().into_inner();
    assert_eq!(told.missing_blob_digests.len(), 50_000);
    let refused = cas.find_missing_blobs(find(1_000_000)).await.unwrap_err();
    assert_eq!(refused.code(), Code::OutOfRange, "{refused:?}");
    let half = vec![7; 2 << 20];
    let requests: Vec<Blob> =
        (0..2).map(|_| Blob { digest: Some(digest(&half)), data: half.clone(), ..Blob::default() }).collect();
    let refused = cas.batch_update_blobs(BatchUpdateBlobsRequest { requests, ..Default::default() }).await;
    assert_eq!(refused.unwrap_err().code(), Code::InvalidArgument);
    let large = vec![Digest { size_bytes: 5 << 20, ..digest(b"x") }];
    let refused = cas.batch_read_blobs(BatchReadBlobsRequest { digests: large, ..Default::default() }).await;
    assert_eq!(refused.unwrap_err().code(), Code::InvalidArgument);
    served.stop().await;
}
