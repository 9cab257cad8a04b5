//! The content store over gRPC, against a small server that is as picky as the protocol allows.

use std::collections::HashMap;
use std::io::{Read, Seek, Write};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bazel_remote_apis::build::bazel::remote::execution::v2::capabilities_server::{
    Capabilities, CapabilitiesServer,
};
use bazel_remote_apis::build::bazel::remote::execution::v2::content_addressable_storage_server::{
    ContentAddressableStorage, ContentAddressableStorageServer,
};
use bazel_remote_apis::build::bazel::remote::execution::v2::*;
use bazel_remote_apis::google::bytestream::byte_stream_server::{ByteStream, ByteStreamServer};
use bazel_remote_apis::google::bytestream::*;
use bazel_remote_apis::google::rpc;
use blobs::DigestFunction::{Blake3, Sha256};
use blobs::{Begun, Blobs, Error, Expect, Local, Tenant, UploadRequest};
use bytes::Bytes;
use reapi_client::{Cas, CasError, Client, ContentServer, Options};
use tokio_stream::Iter;
use tonic::{Code, Request, Response, Status, Streaming};

const MAX_BATCH_BYTES: i64 = 1_000;

#[derive(Clone, Default)]
struct Store(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    blobs: HashMap<String, Vec<u8>>,
    batches: Vec<usize>,
    names: Vec<String>,
    tenants: Vec<Option<String>>,
    /// How many calls are still to fail, as from a server that is about to be restarted.
    failures: u32,
}

impl Store {
    /// Counts a call, which may have to fail.
    fn call<T>(&self, request: &Request<T>) -> Result<(), Status> {
        let mut state = self.0.lock().unwrap();
        let tenant = request.metadata().get("lessor-tenant").map(|value| value.to_str().unwrap().to_owned());
        state.tenants.push(tenant);
        match state.failures {
            0 => Ok(()),
            _ => {
                state.failures -= 1;
                Err(Status::unavailable("not now"))
            }
        }
    }

    fn key(digest: &Digest) -> String {
        format!("{}/{}", digest.hash, digest.size_bytes)
    }

    async fn serve(&self) -> Client {
        self.serve_with(Options::default().patience).await
    }

    async fn serve_with(&self, patience: Duration) -> Client {
        let options = Options { connector: Default::default(), tenant: Some("t".to_owned()), patience };
        Client::new(&self.listen().await, &options).unwrap()
    }

    async fn listen(&self) -> String {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let package = "/build.bazel.remote.execution.v2";
        let router = axum::Router::new()
            .route_service(
                &format!("{package}.ContentAddressableStorage/{{call}}"),
                ContentAddressableStorageServer::new(self.clone()),
            )
            .route_service(&format!("{package}.Capabilities/{{call}}"), CapabilitiesServer::new(self.clone()))
            .route_service("/google.bytestream.ByteStream/{call}", ByteStreamServer::new(self.clone()));
        tokio::spawn(async move { axum::serve(listener, router).await });
        format!("http://{address}")
    }
}

#[tonic::async_trait]
impl Capabilities for Store {
    async fn get_capabilities(
        &self,
        request: Request<GetCapabilitiesRequest>,
    ) -> Result<Response<ServerCapabilities>, Status> {
        self.call(&request)?;
        let cache =
            CacheCapabilities { max_batch_total_size_bytes: MAX_BATCH_BYTES, ..CacheCapabilities::default() };
        Ok(Response::new(ServerCapabilities {
            cache_capabilities: Some(cache),
            ..ServerCapabilities::default()
        }))
    }
}

fn status(code: Code) -> Option<rpc::Status> {
    Some(rpc::Status { code: code as i32, ..rpc::Status::default() })
}

#[tonic::async_trait]
impl ContentAddressableStorage for Store {
    async fn find_missing_blobs(
        &self,
        request: Request<FindMissingBlobsRequest>,
    ) -> Result<Response<FindMissingBlobsResponse>, Status> {
        self.call(&request)?;
        let state = self.0.lock().unwrap();
        let mut missing_blob_digests = request.into_inner().blob_digests;
        missing_blob_digests.retain(|digest| !state.blobs.contains_key(&Store::key(digest)));
        Ok(Response::new(FindMissingBlobsResponse { missing_blob_digests }))
    }

    async fn batch_update_blobs(
        &self,
        request: Request<BatchUpdateBlobsRequest>,
    ) -> Result<Response<BatchUpdateBlobsResponse>, Status> {
        self.call(&request)?;
        let mut state = self.0.lock().unwrap();
        let request = request.into_inner();
        let total: usize = request.requests.iter().map(|blob| blob.data.len()).sum();
        if total as i64 > MAX_BATCH_BYTES {
            return Err(Status::invalid_argument("too large"));
        }
        state.batches.push(request.requests.len());
        let mut responses = Vec::new();
        for blob in request.requests {
            let digest = blob.digest.unwrap();
            let is_right = digest.hash == blobs::Digest::of(Sha256, &blob.data).hash.to_string();
            state.blobs.insert(Store::key(&digest), blob.data);
            let code = if is_right { Code::Ok } else { Code::InvalidArgument };
            responses
                .push(batch_update_blobs_response::Response { digest: Some(digest), status: status(code) });
        }
        Ok(Response::new(BatchUpdateBlobsResponse { responses }))
    }

    async fn batch_read_blobs(
        &self,
        request: Request<BatchReadBlobsRequest>,
    ) -> Result<Response<BatchReadBlobsResponse>, Status> {
        self.call(&request)?;
        let mut state = self.0.lock().unwrap();
        let digests = request.into_inner().digests;
        if digests.iter().map(|digest| digest.size_bytes).sum::<i64>() > MAX_BATCH_BYTES {
            return Err(Status::invalid_argument("too large"));
        }
        state.batches.push(digests.len());
        // In another order than they were asked for, which the protocol leaves open.
        let answer = |digest: Digest| match state.blobs.get(&Store::key(&digest)) {
            Some(data) => batch_read_blobs_response::Response {
                digest: Some(digest),
                data: data.clone(),
                status: status(Code::Ok),
                ..Default::default()
            },
            None => batch_read_blobs_response::Response {
                digest: Some(digest),
                status: status(Code::NotFound),
                ..Default::default()
            },
        };
        let responses = digests.into_iter().rev().map(answer).collect();
        Ok(Response::new(BatchReadBlobsResponse { responses }))
    }

    type GetTreeStream = Iter<std::vec::IntoIter<Result<GetTreeResponse, Status>>>;

    async fn get_tree(&self, _: Request<GetTreeRequest>) -> Result<Response<Self::GetTreeStream>, Status> {
        Err(Status::unimplemented("not used"))
    }

    async fn split_blob(&self, _: Request<SplitBlobRequest>) -> Result<Response<SplitBlobResponse>, Status> {
        Err(Status::unimplemented("not used"))
    }

    type GetChunkMappingStream = Iter<std::vec::IntoIter<Result<GetChunkMappingResponse, Status>>>;

    async fn get_chunk_mapping(
        &self,
        _: Request<GetChunkMappingRequest>,
    ) -> Result<Response<Self::GetChunkMappingStream>, Status> {
        Err(Status::unimplemented("not used"))
    }

    async fn splice_blob(
        &self,
        _: Request<SpliceBlobRequest>,
    ) -> Result<Response<SpliceBlobResponse>, Status> {
        Err(Status::unimplemented("not used"))
    }

    async fn register_chunk_mapping(
        &self,
        _: Request<Streaming<RegisterChunkMappingRequest>>,
    ) -> Result<Response<RegisterChunkMappingResponse>, Status> {
        Err(Status::unimplemented("not used"))
    }
}

#[tonic::async_trait]
impl ByteStream for Store {
    type ReadStream = Iter<std::vec::IntoIter<Result<ReadResponse, Status>>>;

    async fn read(&self, request: Request<ReadRequest>) -> Result<Response<Self::ReadStream>, Status> {
        let name = request.get_ref().resource_name.clone();
        // A stream that breaks off in the middle, and not at its beginning.
        let breaks = self.call(&request).is_err();
        let mut state = self.0.lock().unwrap();
        state.names.push(name.clone());
        let key = name.rsplitn(3, '/').collect::<Vec<_>>();
        let data = state.blobs.get(&format!("{}/{}", key[1], key[0]));
        let data = data.ok_or_else(|| Status::not_found("no such blob"))?;
        let data = &data[request.get_ref().read_offset as usize..];
        let mut pieces: Vec<_> =
            data.chunks(1_000).map(|piece| Ok(ReadResponse { data: piece.to_vec() })).collect();
        if breaks {
            pieces.truncate(pieces.len() / 2);
            pieces.push(Err(Status::unavailable("not now")));
        }
        Ok(Response::new(tokio_stream::iter(pieces)))
    }

    async fn write(
        &self,
        request: Request<Streaming<WriteRequest>>,
    ) -> Result<Response<WriteResponse>, Status> {
        self.call(&request)?;
        let mut pieces = request.into_inner();
        let (mut name, mut data) = (String::new(), Vec::new());
        while let Some(piece) = pieces.message().await? {
            if name.is_empty() {
                name = piece.resource_name;
            }
            assert_eq!(piece.write_offset, data.len() as i64);
            data.extend(piece.data);
            if piece.finish_write {
                break;
            }
        }
        let mut state = self.0.lock().unwrap();
        let key = name.rsplitn(3, '/').collect::<Vec<_>>();
        if key[0] != data.len().to_string() || blobs::Digest::of(Sha256, &data).hash.to_string() != key[1] {
            return Err(Status::invalid_argument("the content is not what its digest says"));
        }
        let committed_size = data.len() as i64;
        state.blobs.insert(format!("{}/{}", key[1], key[0]), data);
        state.names.push(name);
        Ok(Response::new(WriteResponse { committed_size }))
    }

    async fn query_write_status(
        &self,
        _: Request<QueryWriteStatusRequest>,
    ) -> Result<Response<QueryWriteStatusResponse>, Status> {
        Err(Status::unimplemented("not used"))
    }
}

fn blob(n: u8) -> (blobs::Digest, Bytes) {
    let content = vec![n; 200];
    (blobs::Digest::of(Sha256, &content), content.into())
}

fn file(content: &[u8]) -> std::fs::File {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(content).unwrap();
    file
}

#[tokio::test]
async fn small_blobs_travel_in_batches_within_what_the_server_announces() {
    let store = Store::default();
    let cas = store.serve().await;
    let all: Vec<_> = (0..9).map(blob).collect();
    let digests: Vec<_> = all.iter().map(|(digest, _)| *digest).collect();
    assert_eq!(cas.find_missing("", &digests).await.unwrap(), digests);
    cas.upload_many("", all[..8].to_vec()).await.unwrap();
    assert_eq!(cas.find_missing("", &digests).await.unwrap(), digests[8..]);
    let read = cas.read_many("", &digests).await.unwrap();
    let expected: Vec<_> = all[..8].iter().map(|(_, content)| Some(content.clone())).chain([None]).collect();
    assert_eq!(read, expected);
    let state = store.0.lock().unwrap();
    assert_eq!(state.batches, [3, 3, 2, 3, 3, 3]);
    assert!(state.tenants.iter().all(|tenant| tenant.as_deref() == Some("t")));
}

#[tokio::test]
async fn large_blobs_travel_as_streams_under_their_names() {
    let store = Store::default();
    let cas = store.serve().await;
    let content: Vec<u8> = (0..1_000_000_u32).map(|n| (n % 251) as u8).collect();
    let digest = blobs::Digest::of(Sha256, &content);
    cas.upload_file("an/instance", &digest, file(&content)).await.unwrap();
    let mut back = tempfile::tempfile().unwrap();
    assert!(cas.read_to_file("", &digest, back.try_clone().unwrap()).await.unwrap());
    let mut read = Vec::new();
    back.rewind().unwrap();
    back.read_to_end(&mut read).unwrap();
    assert!(read == content);
    let other = blobs::Digest::of(Blake3, b"x");
    assert!(!cas.read_to_file("i", &other, tempfile::tempfile().unwrap()).await.unwrap());
    let names = store.0.lock().unwrap().names.clone();
    assert!(names[0].starts_with("an/instance/uploads/") && names[0].ends_with(&format!("/blobs/{digest}")));
    assert_eq!(names[1..], [format!("blobs/{digest}"), format!("i/blobs/blake3/{other}")]);
}

#[tokio::test]
async fn what_fails_on_the_way_is_tried_again_from_the_beginning() {
    let store = Store::default();
    let cas = store.serve().await;
    let content = vec![7; 100_000];
    let digest = blobs::Digest::of(Sha256, &content);
    let fail = |failures| store.0.lock().unwrap().failures = failures;
    fail(2);
    cas.upload_file("", &digest, file(&content)).await.unwrap();
    fail(2);
    let mut back = tempfile::tempfile().unwrap();
    assert!(cas.read_to_file("", &digest, back.try_clone().unwrap()).await.unwrap());
    let mut read = Vec::new();
    back.rewind().unwrap();
    back.read_to_end(&mut read).unwrap();
    assert!(read == content);
    fail(2);
    assert_eq!(cas.find_missing("", &[digest]).await.unwrap(), []);
    fail(1_000);
    let cas = store.serve_with(Duration::ZERO).await;
    assert!(matches!(cas.find_missing("", &[digest]).await, Err(CasError::Unavailable(_))));
}

/// A build ran while the coordinator was restarted: what took longer to come back than one and a half seconds cost the
/// worker the outputs of the action that it had just finished.
#[tokio::test]
async fn outputs_wait_for_a_store_that_takes_its_time_to_restart() {
    let store = Store::default();
    let cas = store.serve().await;
    let (digest, content) = blob(1);
    store.0.lock().unwrap().failures = 8;
    cas.upload_many("", vec![(digest, content)]).await.unwrap();
}

#[tokio::test]
async fn w9_w15_content_that_is_not_what_its_digest_says_is_refused_at_once() {
    let store = Store::default();
    let cas = store.serve().await;
    let (digest, _) = blob(1);
    let lie = (digest, Bytes::from_static(b"something else"));
    assert!(matches!(cas.upload_many("", vec![lie]).await, Err(CasError::Refused(_))));
    let changed = file(&[2; 200]);
    assert!(matches!(cas.upload_file("", &digest, changed).await, Err(CasError::Refused(_))));
    let cut = file(&[1; 100]);
    assert!(cas.upload_file("", &digest, cut).await.is_err(), "it became shorter since it was named");
}

#[tokio::test]
async fn a_store_that_is_not_there_is_unavailable() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let options = Options { patience: Duration::ZERO, ..Options::default() };
    let cas = Client::new(&format!("http://{address}"), &options).unwrap();
    assert!(matches!(cas.find_missing("", &[blob(1).0]).await, Err(CasError::Unavailable(_))));
    assert!(Client::new("not a url", &Options::default()).is_err());
}

/// The store of a node before this server.
async fn node(store: &Store, directory: &std::path::Path) -> ContentServer {
    let url = store.listen().await;
    let local = Local::new(blobs::Store::open(directory, blobs::Options::default()).unwrap());
    ContentServer::with_patience(&url, Default::default(), Arc::new(local), Duration::from_secs(5)).unwrap()
}

#[tokio::test]
async fn content_of_a_server_that_is_not_what_its_digest_says_is_never_given_out() {
    let (store, directory) = (Store::default(), tempfile::tempdir().unwrap());
    let node = node(&store, directory.path()).await;
    let tenant = Tenant::new("t").unwrap();
    for size in [200, 1_000_000] {
        let right = vec![1; size];
        let digest = blobs::Digest::of(Sha256, &right);
        let mut wrong = right.clone();
        *wrong.last_mut().unwrap() = 2;
        store.0.lock().unwrap().blobs.insert(digest.to_string(), wrong);
        let got = node.get_many(&tenant, &[digest]).await;
        assert!(matches!(got[..], [Err(Error::Damaged(_))]), "{got:?}");
        let mut read = 0;
        let refused = match node.read(&tenant, digest, 0, None).await {
            Err(error) => error,
            Ok(mut reader) => loop {
                match reader.next().await {
                    Ok(piece) => read += piece.expect("it does not end well").len(),
                    Err(error) => break error,
                }
            },
        };
        assert!(matches!(refused, Error::Damaged(_)) && read < size, "{refused}");
        store.0.lock().unwrap().blobs.insert(digest.to_string(), right.clone());
        let got = node.get_many(&tenant, &[digest]).await;
        assert!(matches!(&got[..], [Ok(content)] if *content == right), "what was wrong is not kept");
    }
}

#[tokio::test]
async fn a_node_repeats_uploads_and_goes_on_with_reads_that_fail_on_the_way() {
    let (store, directory) = (Store::default(), tempfile::tempdir().unwrap());
    let node = node(&store, directory.path()).await;
    let tenant = Tenant::new("t").unwrap();
    let content = Bytes::from((0..3_000_000_u32).map(|n| (n % 251) as u8).collect::<Vec<_>>());
    let digest = blobs::Digest::of(Sha256, &content);
    let upload = UploadRequest::new(Expect::Digest(digest));
    let Begun::Writer(mut writer) = node.write(&tenant, upload).await.unwrap() else { panic!("it is new") };
    writer.write(0, content.clone()).await.unwrap();
    store.0.lock().unwrap().failures = 2;
    writer.finish().await.unwrap();
    assert!(store.0.lock().unwrap().blobs[&digest.to_string()] == content);

    // Another node, which has no copy.
    let other = tempfile::tempdir().unwrap();
    let node = self::node(&store, other.path()).await;
    store.0.lock().unwrap().failures = 1;
    let mut reader = node.read(&tenant, digest, 0, None).await.unwrap();
    let mut read = Vec::new();
    while let Some(piece) = reader.next().await.unwrap() {
        read.extend_from_slice(&piece);
    }
    assert!(read == content);
}
