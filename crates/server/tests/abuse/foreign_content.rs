//! Content belongs to the tenant of the key that uploaded it. By its digest, or by the name of its upload, another tenant
//! learns nothing: the answers are those about content that nobody has.

use bazel_remote_apis::build::bazel::remote::execution::v2::action_cache_client::ActionCacheClient;
use bazel_remote_apis::build::bazel::remote::execution::v2::content_addressable_storage_client::ContentAddressableStorageClient;
use bazel_remote_apis::build::bazel::remote::execution::v2::{
    ActionResult, BatchReadBlobsRequest, Digest, FindMissingBlobsRequest, GetActionResultRequest,
    GetTreeRequest, UpdateActionResultRequest,
};
use bazel_remote_apis::google::bytestream::byte_stream_client::ByteStreamClient;
use bazel_remote_apis::google::bytestream::{
    QueryWriteStatusRequest, QueryWriteStatusResponse, ReadRequest, WriteRequest, WriteResponse,
};
use tonic::{Code, Status};

use crate::foreign_tenants::{Tenants, bytes, tenants};
use crate::guarded::Guarded;
use crate::keyed::{channel, digest, upload, with_key};

/// Large enough for a file of its own, which an upload can be continued in.
const LARGE_BYTES: usize = 600_000;

/// What one is told about a blob by every call that reads.
pub(crate) async fn answers_about(guarded: &Guarded, key: &str, blob: &Digest) -> Vec<String> {
    let channel = channel(guarded).await;
    let mut cas = ContentAddressableStorageClient::new(channel.clone());
    let digests = vec![blob.clone()];
    let request = FindMissingBlobsRequest { blob_digests: digests.clone(), ..Default::default() };
    let missing = cas.find_missing_blobs(with_key(key, request)).await.map(tonic::Response::into_inner);
    let request = BatchReadBlobsRequest { digests, ..Default::default() };
    let batch = cas.batch_read_blobs(with_key(key, request)).await.map(tonic::Response::into_inner);
    let request = GetTreeRequest { root_digest: Some(blob.clone()), ..Default::default() };
    let tree = match cas.get_tree(with_key(key, request)).await {
        Ok(stream) => stream.into_inner().message().await,
        Err(status) => Err(status),
    };
    let resource_name = format!("blobs/{}/{}", blob.hash, blob.size_bytes);
    let request = ReadRequest { resource_name, ..ReadRequest::default() };
    let read = match ByteStreamClient::new(channel).read(with_key(key, request)).await {
        Ok(stream) => stream.into_inner().message().await,
        Err(status) => Err(status),
    };
    let mut told = vec![
        format!("{:?}", missing.map_err(said)),
        format!("{:?}", batch.map_err(said)),
        format!("{:?}", tree.map_err(said)),
        format!("{:?}", read.map_err(said)),
    ];
    for path in ["/cas", "/some/cas"] {
        for method in ["GET", "HEAD"] {
            let request = guarded.request(key, method, &format!("{path}/{}", blob.hash));
            let response = request.send().await.unwrap();
            told.push(format!("{} {}", response.status(), response.text().await.unwrap()));
        }
    }
    told.into_iter().map(|text| text.replace(&blob.hash, "HASH")).collect()
}

/// A status without the headers that carried it, among which is the time.
pub(crate) fn said(status: Status) -> (Code, String, Vec<u8>) {
    (status.code(), status.message().to_owned(), status.details().to_vec())
}

#[tokio::test]
async fn a_foreign_digest_looks_like_one_of_nothing() {
    let Tenants { guarded, ada, eve } = tenants().await;
    let content = b"what ada built";
    let blob = upload(&guarded, &ada, &[content]).await.remove(0);
    let nothing = digest(b"what nobody has");
    let nothing = Digest { size_bytes: blob.size_bytes, ..nothing };
    let (foreign, absent) =
        (answers_about(&guarded, &eve, &blob).await, answers_about(&guarded, &eve, &nothing).await);
    assert_eq!(foreign, absent);
    assert!(foreign.iter().all(|told| !told.contains("200 OK")), "{foreign:?}");
    let own = answers_about(&guarded, &ada, &blob).await;
    assert!(own.iter().zip(&foreign).all(|(own, foreign)| own != foreign), "its owner has it: {own:?}");
}

#[tokio::test]
async fn a_foreign_result_looks_like_none() {
    let Tenants { guarded, ada, eve } = tenants().await;
    let action = Some(upload(&guarded, &ada, &[b"an action"]).await.remove(0));
    let mut cache = ActionCacheClient::new(channel(&guarded).await);
    let result = ActionResult { exit_code: 7, ..ActionResult::default() };
    let request = UpdateActionResultRequest {
        action_digest: action.clone(),
        action_result: Some(result),
        ..Default::default()
    };
    cache.update_action_result(with_key(&ada, request)).await.unwrap();
    let get = GetActionResultRequest { action_digest: action, ..Default::default() };
    let own = cache.get_action_result(with_key(&ada, get.clone())).await.unwrap().into_inner();
    assert_eq!(own.exit_code, 7);
    let foreign = cache.get_action_result(with_key(&eve, get.clone())).await.unwrap_err();
    assert_eq!(foreign.code(), Code::NotFound);
    let nothing = Digest { size_bytes: 9, ..digest(b"no action of anyone") };
    let absent = GetActionResultRequest { action_digest: Some(nothing.clone()), ..Default::default() };
    let absent = cache.get_action_result(with_key(&eve, absent)).await.unwrap_err();
    let hash = get.action_digest.unwrap_or_default().hash;
    let named = |status, hash: &str| format!("{:?}", said(status)).replace(hash, "HASH");
    assert_eq!(named(foreign, &hash), named(absent, &nothing.hash));
    let path = format!("/ac/{}", digest(b"a key").hash);
    let put = guarded.request(&ada, "PUT", &path).body("ada's").send().await.unwrap();
    assert_eq!(put.status(), 200);
    assert_eq!(guarded.get(&ada, &path).await.status, 200);
    let none = format!("/ac/{}", digest(b"a key of nobody").hash);
    let (foreign, absent) =
        (bytes(guarded.request(&eve, "GET", &path)).await, bytes(guarded.request(&eve, "GET", &none)).await);
    assert_eq!(foreign.0, 404);
    assert_eq!(foreign.1.replace(&path[4..], "HASH"), absent.1.replace(&none[4..], "HASH"));
}

/// Writes from an offset on.
pub(crate) async fn write(
    guarded: &Guarded,
    key: &str,
    name: &str,
    data: &[u8],
    offset: usize,
    finish_write: bool,
) -> Result<WriteResponse, Status> {
    let message = WriteRequest {
        resource_name: name.to_owned(),
        write_offset: offset as i64,
        finish_write,
        data: data.to_vec(),
    };
    let mut client = ByteStreamClient::new(channel(guarded).await);
    client.write(with_key(key, tokio_stream::once(message))).await.map(tonic::Response::into_inner)
}

async fn status(guarded: &Guarded, key: &str, name: &str) -> QueryWriteStatusResponse {
    let request = QueryWriteStatusRequest { resource_name: name.to_owned() };
    let mut client = ByteStreamClient::new(channel(guarded).await);
    client.query_write_status(with_key(key, request)).await.unwrap().into_inner()
}

#[tokio::test]
async fn an_upload_is_known_and_continued_within_its_tenant_only() {
    let Tenants { guarded, ada, eve } = tenants().await;
    let content: Vec<u8> = (0..LARGE_BYTES).map(|n| (n * n / 7) as u8).collect();
    let half = LARGE_BYTES / 2;
    let name = format!("uploads/u-1/blobs/{}/{LARGE_BYTES}", digest(&content).hash);
    let kept = write(&guarded, &ada, &name, &content[..half], 0, false).await.unwrap();
    assert_eq!(kept.committed_size, half as i64);
    assert_eq!(status(&guarded, &ada, &name).await.committed_size, half as i64);

    let foreign = status(&guarded, &eve, &name).await;
    let absent = status(&guarded, &eve, &name.replace("u-1", "u-2")).await;
    assert_eq!(foreign, absent);
    assert_eq!((foreign.committed_size, foreign.complete), (0, false));
    let mut answers = Vec::new();
    for name in [name.clone(), name.replace("u-1", "u-2")] {
        answers.push(said(write(&guarded, &eve, &name, &content[half..], half, true).await.unwrap_err()));
    }
    assert_eq!(answers[0], answers[1], "the rest alone is no blob");

    // A whole upload under the same name is another one; what it has does not show.
    let whole = write(&guarded, &eve, &name, &content, 0, true).await.unwrap();
    assert_eq!(whole.committed_size, LARGE_BYTES as i64);
    let own = status(&guarded, &ada, &name).await;
    assert_eq!((own.committed_size, own.complete), (half as i64, false));
    let done = write(&guarded, &ada, &name, &content[half..], half, true).await.unwrap();
    assert_eq!(done.committed_size, LARGE_BYTES as i64);
}
