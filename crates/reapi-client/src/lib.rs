//! The client of the Remote Execution API, shared by the worker, `lessor run` and the benchmarks.
//!
//! [`Client`] has the stubs of a server's services and implements [`Cas`]: batches stay within the server's limit,
//! memory is bounded by one batch or one piece of a stream per call, and calls that fail on the way are repeated.

mod batches;
mod cas;
mod content_server;
mod observed;
mod retry;
mod stream;

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bazel_remote_apis::google::longrunning::operations_client::OperationsClient;
use bazel_remote_apis::google::rpc;
use blobs::Digest;
use bytes::Bytes;
use credentials::Connector;
use execution::digest;
use execution::reapi::action_cache_client::ActionCacheClient;
use execution::reapi::batch_update_blobs_request::Request as Blob;
use execution::reapi::capabilities_client::CapabilitiesClient;
use execution::reapi::content_addressable_storage_client::ContentAddressableStorageClient;
use execution::reapi::execution_client::ExecutionClient;
use execution::reapi::{
    self, ActionResult, BatchReadBlobsRequest, BatchUpdateBlobsRequest, FindMissingBlobsRequest,
    GetActionResultRequest, GetCapabilitiesRequest, ServerCapabilities, UpdateActionResultRequest,
};
use tokio::sync::OnceCell;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};
use wire::bytestream::byte_stream_client::ByteStreamClient;

pub use batches::{Transfer, batches, transfers};
pub use cas::{Cas, CasError, MAX_SMALL_BYTES};
pub use content_server::{ContentServer, MAX_READS};
pub use observed::{ObservedCas, Traffic};
use retry::retried;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest time of one call that is not a stream.
const CALL_TIMEOUT: Duration = Duration::from_secs(60);
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(20);
const STREAM_WINDOW_BYTES: u32 = 4 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 16 << 20;
/// Most content of one batch, whatever the server allows: with its framing it fits into a message of 4 MiB.
const MAX_BATCH_BYTES: u64 = 3 << 20;
/// The size of a blob's fields in a batch beside its content.
const BLOB_OVERHEAD_BYTES: u64 = 128;
/// Most digests in one FindMissingBlobs request: about 1 MiB.
const MAX_FIND_DIGESTS: usize = 10_000;
/// Largest message of an execution: a result that names many outputs.
const MAX_OPERATION_BYTES: usize = 64 << 20;

#[derive(Clone, Debug)]
pub struct Options {
    /// The tenant that the calls are made for.
    pub tenant: Option<String>,
    /// Made for the URL of the server.
    pub connector: Connector,
    /// How long a call that fails on the way is repeated: long enough for a restart of the server, so that the outputs of
    /// an action are not lost, and bounded, because the server may be unreachable from here only.
    pub patience: Duration,
}

impl Default for Options {
    fn default() -> Options {
        Options { tenant: None, connector: Connector::default(), patience: Duration::from_secs(60) }
    }
}

pub struct Client {
    connection: Channel,
    channel: Scoped,
    headers: Headers,
    /// The server's limit, once it is known.
    max_batch_bytes: Arc<OnceCell<u64>>,
    patience: Duration,
}

/// A connection that adds the tenant and the API key to every call.
pub type Scoped = InterceptedService<Channel, Headers>;

impl Client {
    /// Connects on first use, and again when the connection is lost.
    pub fn new(url: &str, options: &Options) -> io::Result<Client> {
        let invalid = |error: &dyn std::fmt::Display| {
            io::Error::new(io::ErrorKind::InvalidInput, format!("{url}: {error}"))
        };
        let endpoint = Endpoint::from_shared(url.to_owned())
            .map_err(|error| invalid(&error))?
            .tcp_nodelay(true)
            .connect_timeout(CONNECT_TIMEOUT)
            .http2_keep_alive_interval(KEEP_ALIVE_INTERVAL)
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES);
        let tenant = options.tenant.as_ref().map(|tenant| tenant.parse().map_err(|error| invalid(&error)));
        let headers = Headers {
            tenant: tenant.transpose()?,
            authorization: options.connector.authorization_metadata(),
        };
        let connection = options.connector.connect_lazy(&endpoint);
        let channel = InterceptedService::new(connection.clone(), headers.clone());
        let patience = options.patience;
        Ok(Client { connection, channel, headers, max_batch_bytes: Arc::default(), patience })
    }

    /// The same connection, with calls for another tenant.
    pub fn for_tenant(&self, tenant: &str) -> Result<Client, CasError> {
        let invalid = |_| CasError::Refused(format!("the tenant {tenant:?} cannot be named in a header"));
        let headers = Headers { tenant: Some(tenant.parse().map_err(invalid)?), ..self.headers.clone() };
        let channel = InterceptedService::new(self.connection.clone(), headers.clone());
        Ok(Client {
            connection: self.connection.clone(),
            channel,
            headers,
            max_batch_bytes: self.max_batch_bytes.clone(),
            patience: self.patience,
        })
    }

    pub fn storage(&self) -> ContentAddressableStorageClient<Scoped> {
        ContentAddressableStorageClient::new(self.channel.clone())
    }

    pub fn byte_stream(&self) -> ByteStreamClient<Scoped> {
        ByteStreamClient::new(self.channel.clone())
    }

    pub fn action_cache(&self) -> ActionCacheClient<Scoped> {
        ActionCacheClient::new(self.channel.clone()).max_decoding_message_size(MAX_OPERATION_BYTES)
    }

    pub fn execution(&self) -> ExecutionClient<Scoped> {
        ExecutionClient::new(self.channel.clone()).max_decoding_message_size(MAX_OPERATION_BYTES)
    }

    pub fn operations(&self) -> OperationsClient<Scoped> {
        OperationsClient::new(self.channel.clone())
    }

    /// Asks once. A server that does not answer within `timeout` is UNAVAILABLE.
    pub async fn capabilities(
        &self,
        instance: &str,
        timeout: Duration,
    ) -> Result<ServerCapabilities, Status> {
        let request = GetCapabilitiesRequest { instance_name: instance.to_owned() };
        let mut client = CapabilitiesClient::new(self.channel.clone());
        match tokio::time::timeout(timeout, client.get_capabilities(request)).await {
            Ok(response) => Ok(response?.into_inner()),
            Err(_) => Err(Status::unavailable("it does not answer")),
        }
    }

    /// The action's result in the action cache, if there is one.
    pub async fn action_result(
        &self,
        instance: &str,
        action: &Digest,
    ) -> Result<Option<ActionResult>, CasError> {
        let call = || async {
            let request = GetActionResultRequest {
                instance_name: instance.to_owned(),
                action_digest: Some(digest::to_proto(action)),
                digest_function: digest::function_to_proto(action.function).into(),
                ..GetActionResultRequest::default()
            };
            match self.action_cache().get_action_result(timed(request)).await {
                Ok(response) => Ok(Some(response.into_inner())),
                Err(status) if matches!(status.code(), Code::NotFound | Code::Unimplemented) => Ok(None),
                Err(status) => Err(status.into()),
            }
        };
        retried(self.patience, call).await
    }

    /// Puts a result into the action cache.
    pub async fn update_action_result(
        &self,
        instance: &str,
        action: &Digest,
        result: &ActionResult,
    ) -> Result<(), CasError> {
        let call = || async {
            let request = UpdateActionResultRequest {
                instance_name: instance.to_owned(),
                action_digest: Some(digest::to_proto(action)),
                action_result: Some(result.clone()),
                digest_function: digest::function_to_proto(action.function).into(),
                ..UpdateActionResultRequest::default()
            };
            self.action_cache().update_action_result(timed(request)).await?;
            Ok(())
        };
        retried(self.patience, call).await
    }

    /// Uploads small blobs of one digest function, with an answer for each in order.
    async fn upload_each(
        &self,
        instance: &str,
        blobs: &[(Digest, Bytes)],
    ) -> Result<Vec<Result<(), Status>>, CasError> {
        let max_bytes = self.max_batch_bytes(instance).await?;
        let mut answered = HashMap::with_capacity(blobs.len());
        for batch in batches(blobs.iter().collect(), |(digest, _)| batch_bytes(digest), max_bytes, usize::MAX)
        {
            let call = || async {
                let upload = |(digest, content): &&(Digest, Bytes)| Blob {
                    digest: Some(digest::to_proto(digest)),
                    data: content.to_vec(),
                    compressor: 0,
                };
                let request = BatchUpdateBlobsRequest {
                    instance_name: instance.to_owned(),
                    requests: batch.iter().map(upload).collect(),
                    digest_function: function_of(batch.first().map(|(digest, _)| digest)),
                };
                Ok(self.storage().batch_update_blobs(timed(request)).await?.into_inner())
            };
            for answer in retried(self.patience, call).await?.responses {
                let function = batch.first().map(|(digest, _)| digest.function);
                let digest = digest::from_proto(answer.digest.as_ref(), function, "the response").ok();
                answered.extend(digest.map(|digest| (digest, check(answer.status))));
            }
        }
        let unanswered = || Err(Status::unavailable("the server did not answer for this blob"));
        Ok(blobs.iter().map(|(digest, _)| answered.get(digest).cloned().unwrap_or_else(unanswered)).collect())
    }

    /// A server that announces no limit gets batches of a size that every server accepts.
    async fn max_batch_bytes(&self, instance: &str) -> Result<u64, CasError> {
        let call = || async {
            match self.capabilities(instance, CALL_TIMEOUT).await {
                Ok(can) => Ok(can.cache_capabilities.unwrap_or_default().max_batch_total_size_bytes),
                Err(status) if status.code() == Code::Unimplemented => Ok(0),
                Err(status) => Err(status.into()),
            }
        };
        let announced = self.max_batch_bytes.get_or_try_init(|| async {
            let announced = u64::try_from(retried(self.patience, call).await?).unwrap_or(0);
            Ok::<_, CasError>(if announced == 0 { MAX_BATCH_BYTES } else { announced.min(MAX_BATCH_BYTES) })
        });
        announced.await.copied()
    }
}

#[tonic::async_trait]
impl Cas for Client {
    async fn find_missing(&self, instance: &str, digests: &[Digest]) -> Result<Vec<Digest>, CasError> {
        let mut missing = Vec::new();
        for digests in digests.chunks(MAX_FIND_DIGESTS) {
            let call = || async {
                let request = FindMissingBlobsRequest {
                    instance_name: instance.to_owned(),
                    blob_digests: digests.iter().map(digest::to_proto).collect(),
                    digest_function: function_of(digests.first()),
                };
                Ok(self.storage().find_missing_blobs(timed(request)).await?.into_inner())
            };
            let found = retried(self.patience, call).await?.missing_blob_digests;
            let found: HashSet<Digest> = found.iter().filter_map(|found| parse(found, digests)).collect();
            missing.extend(digests.iter().filter(|digest| found.contains(digest)));
        }
        Ok(missing)
    }

    async fn read_many(&self, instance: &str, digests: &[Digest]) -> Result<Vec<Option<Bytes>>, CasError> {
        let max_bytes = self.max_batch_bytes(instance).await?;
        let mut found = HashMap::with_capacity(digests.len());
        for batch in batches(digests.to_vec(), batch_bytes, max_bytes, usize::MAX) {
            let call = || async {
                let request = BatchReadBlobsRequest {
                    instance_name: instance.to_owned(),
                    digests: batch.iter().map(digest::to_proto).collect(),
                    acceptable_compressors: Vec::new(),
                    digest_function: function_of(batch.first()),
                };
                Ok(self.storage().batch_read_blobs(timed(request)).await?.into_inner())
            };
            for answer in retried(self.patience, call).await?.responses {
                match check(answer.status) {
                    Err(status) if status.code() == Code::NotFound => {}
                    Err(status) => return Err(status.into()),
                    Ok(()) => {
                        let digest = answer.digest.and_then(|digest| parse(&digest, &batch));
                        found.extend(digest.map(|digest| (digest, Bytes::from(answer.data))));
                    }
                }
            }
        }
        Ok(digests.iter().map(|digest| found.get(digest).cloned()).collect())
    }

    async fn read_to_file(&self, instance: &str, digest: &Digest, file: File) -> Result<bool, CasError> {
        stream::read(self, instance, digest, file).await
    }

    async fn upload_many(&self, instance: &str, blobs: Vec<(Digest, Bytes)>) -> Result<(), CasError> {
        let answers = self.upload_each(instance, &blobs).await?;
        Ok(answers.into_iter().collect::<Result<(), Status>>()?)
    }

    async fn upload_file(&self, instance: &str, digest: &Digest, file: File) -> Result<(), CasError> {
        stream::upload(self, instance, digest, file).await
    }
}

#[derive(Clone)]
pub struct Headers {
    tenant: Option<MetadataValue<Ascii>>,
    authorization: Option<MetadataValue<Ascii>>,
}

impl tonic::service::Interceptor for Headers {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(tenant) = &self.tenant {
            request.metadata_mut().insert(wire::TENANT_HEADER, tenant.clone());
        }
        if let Some(authorization) = &self.authorization {
            request.metadata_mut().insert("authorization", authorization.clone());
        }
        Ok(request)
    }
}

fn timed<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(CALL_TIMEOUT);
    request
}

fn function_of(digest: Option<&Digest>) -> i32 {
    digest.map_or(0, |digest| digest::function_to_proto(digest.function).into())
}

fn batch_bytes(digest: &Digest) -> u64 {
    digest.size.saturating_add(BLOB_OVERHEAD_BYTES)
}

/// A digest of a response to a request about these digests.
fn parse(answered: &reapi::Digest, asked: &[Digest]) -> Option<Digest> {
    digest::from_proto(Some(answered), asked.first()?.function, "the response").ok()
}

/// The status of one blob of a batch.
fn check(status: Option<rpc::Status>) -> Result<(), Status> {
    match status {
        Some(status) if status.code != Code::Ok as i32 => {
            Err(Status::new(Code::from(status.code), status.message))
        }
        _ => Ok(()),
    }
}
