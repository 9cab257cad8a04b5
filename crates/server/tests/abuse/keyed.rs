//! Calls of gRPC with a key: requests that carry it, blobs, and the beginning of an execution.

use std::time::Duration;

use bazel_remote_apis::build::bazel::remote::execution::v2::content_addressable_storage_client::ContentAddressableStorageClient;
use bazel_remote_apis::build::bazel::remote::execution::v2::execution_client::ExecutionClient;
use bazel_remote_apis::build::bazel::remote::execution::v2::{
    Action, BatchUpdateBlobsRequest, Command, Digest, Directory, ExecuteRequest,
    batch_update_blobs_request::Request as Blob,
};
use bazel_remote_apis::google::longrunning::Operation;
use prost::Message;
use tokio::time::timeout;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status, Streaming};

use crate::guarded::Guarded;

/// Long enough for anything that is not stuck.
const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) async fn in_time<T>(work: impl Future<Output = T>) -> T {
    timeout(PATIENCE, work).await.expect("it is stuck")
}

pub(crate) fn endpoint(guarded: &Guarded) -> Endpoint {
    Endpoint::from_shared(format!("http://{}", guarded.served.address)).unwrap()
}

pub(crate) async fn channel(guarded: &Guarded) -> Channel {
    endpoint(guarded).connect().await.unwrap()
}

pub(crate) fn with_key<T>(key: &str, message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.metadata_mut().insert("authorization", format!("Bearer {key}").parse().unwrap());
    request
}

pub(crate) fn digest(bytes: &[u8]) -> Digest {
    let digest = blobs::Digest::of(blobs::DigestFunction::Sha256, bytes);
    Digest { hash: digest.hash.to_string(), size_bytes: bytes.len() as i64 }
}

/// Uploads blobs and gives their digests.
pub(crate) async fn upload(guarded: &Guarded, key: &str, blobs: &[&[u8]]) -> Vec<Digest> {
    let digests: Vec<Digest> = blobs.iter().map(|bytes| digest(bytes)).collect();
    let requests = digests.iter().zip(blobs).map(|(digest, bytes)| Blob {
        digest: Some(digest.clone()),
        data: bytes.to_vec(),
        ..Blob::default()
    });
    let request = BatchUpdateBlobsRequest { requests: requests.collect(), ..Default::default() };
    let mut client = ContentAddressableStorageClient::new(channel(guarded).await);
    let told = client.batch_update_blobs(with_key(key, request)).await.unwrap().into_inner();
    assert!(told.responses.iter().all(|told| told.status.as_ref().is_none_or(|status| status.code == 0)));
    digests
}

/// Begins to execute an action that nobody runs: the name of its operation, and the stream that waits for it.
pub(crate) async fn execute(guarded: &Guarded, key: &str) -> (String, Streaming<Operation>) {
    execute_some(guarded, key, "true").await
}

/// The same, with a command that differs from others.
pub(crate) async fn execute_some(
    guarded: &Guarded,
    key: &str,
    command: &str,
) -> (String, Streaming<Operation>) {
    let mut stream = try_execute(guarded, key, command).await.unwrap();
    let name = in_time(stream.message()).await.unwrap().expect("the stream goes on").name;
    (name, stream)
}

/// Asks for the execution of a command.
pub(crate) async fn try_execute(
    guarded: &Guarded,
    key: &str,
    command: &str,
) -> Result<Streaming<Operation>, Status> {
    let command = Command { arguments: vec![command.to_owned()], ..Command::default() }.encode_to_vec();
    let root = Directory::default().encode_to_vec();
    let action = Action {
        command_digest: Some(digest(&command)),
        input_root_digest: Some(digest(&root)),
        ..Action::default()
    };
    let action = upload(guarded, key, &[&command, &root, &action.encode_to_vec()]).await.pop();
    let request = ExecuteRequest { action_digest: action, ..ExecuteRequest::default() };
    let mut client = ExecutionClient::new(channel(guarded).await);
    Ok(client.execute(with_key(key, request)).await?.into_inner())
}
