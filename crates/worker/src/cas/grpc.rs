//! A content store over gRPC: the Remote Execution API's ContentAddressableStorage and ByteStream.
//!
//! Batches keep within what the server announces, memory is bounded by one batch or one piece of a stream for each
//! call, and what fails on the way is tried again for a while.

mod retry;
mod stream;

use bazel_remote_apis::build::bazel::remote::execution::v2::{
    ActionResult, BatchReadBlobsRequest, BatchUpdateBlobsRequest, FindMissingBlobsRequest,
    GetActionResultRequest, GetCapabilitiesRequest, action_cache_client::ActionCacheClient,
    batch_update_blobs_request, capabilities_client::CapabilitiesClient,
    content_addressable_storage_client::ContentAddressableStorageClient,
};
use bazel_remote_apis::google::bytestream::byte_stream_client::ByteStreamClient;
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::time::Duration;

use blobs::Digest;
use bytes::Bytes;
use tokio::sync::OnceCell;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};

use super::batches::batches;
use super::{Cas, CasError};
use execution::digest;
use retry::retried;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest time of one call that is no stream.
const CALL_TIMEOUT: Duration = Duration::from_secs(60);
const DEFAULT_PATIENCE: Duration = Duration::from_secs(60);
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(20);
/// Most content in one batch, whatever the server allows: it stays below the 4 MiB of a message with its framing.
const MAX_BATCH_BYTES: u64 = 3 * 1024 * 1024;
/// Most digests in one question about what is missing: about 1 MiB.
const MAX_FIND_DIGESTS: usize = 10_000;

#[derive(Clone, Debug)]
pub struct GrpcCasOptions {
    /// On whose behalf the store is used.
    pub tenant: Option<String>,
    /// How long a call is repeated that fails on the way: what an action made in an hour must not be lost because the
    /// store is restarted, and an action must not wait for ever for a store that only this worker cannot reach.
    pub patience: Duration,
}

impl Default for GrpcCasOptions {
    fn default() -> GrpcCasOptions {
        GrpcCasOptions { tenant: None, patience: DEFAULT_PATIENCE }
    }
}

pub struct GrpcCas {
    channel: Scoped,
    /// What the server announced, by instance.
    max_batch_bytes: OnceCell<u64>,
    patience: Duration,
}

/// A connection on whose calls it stands for whom they are made.
pub type Scoped = InterceptedService<Channel, Headers>;

impl GrpcCas {
    /// Connects when it is first used, and again whenever that is needed.
    pub fn new(url: &str, options: &GrpcCasOptions) -> Result<GrpcCas, crate::Error> {
        let setup = |error: &dyn std::fmt::Display| crate::Error::Setup(format!("{url}: {error}"));
        let endpoint = Endpoint::from_shared(url.to_owned())
            .map_err(|error| setup(&error))?
            .tcp_nodelay(true)
            .connect_timeout(CONNECT_TIMEOUT)
            .http2_keep_alive_interval(KEEP_ALIVE_INTERVAL)
            .initial_stream_window_size(4 * 1024 * 1024)
            .initial_connection_window_size(16 * 1024 * 1024);
        let tenant = options.tenant.as_ref().map(|tenant| tenant.parse().map_err(|error| setup(&error)));
        let headers = Headers { tenant: tenant.transpose()? };
        let channel = InterceptedService::new(endpoint.connect_lazy(), headers);
        Ok(GrpcCas { channel, max_batch_bytes: OnceCell::new(), patience: options.patience })
    }

    /// The connection, for the other services of the same server.
    pub fn channel(&self) -> Scoped {
        self.channel.clone()
    }

    /// The result that the action cache beside the store has for an action, if it has one.
    pub async fn action_result(
        &self,
        instance: &str,
        action: &Digest,
    ) -> Result<Option<ActionResult>, CasError> {
        let ask = || async {
            let request = GetActionResultRequest {
                instance_name: instance.to_owned(),
                action_digest: Some(digest::to_proto(action)),
                digest_function: digest::function_to_proto(action.function).into(),
                ..GetActionResultRequest::default()
            };
            let mut client = ActionCacheClient::new(self.channel.clone());
            match client.get_action_result(timed(request)).await {
                Ok(response) => Ok(Some(response.into_inner())),
                Err(status) if matches!(status.code(), Code::NotFound | Code::Unimplemented) => Ok(None),
                Err(status) => Err(status),
            }
        };
        retried(self.patience, ask).await
    }

    fn storage(&self) -> ContentAddressableStorageClient<Scoped> {
        ContentAddressableStorageClient::new(self.channel.clone())
    }

    fn byte_stream(&self) -> ByteStreamClient<Scoped> {
        ByteStreamClient::new(self.channel.clone())
    }

    /// A server that announces nothing, or nothing sensible, gets batches of the size that is always fine.
    async fn max_batch_bytes(&self, instance: &str) -> Result<u64, CasError> {
        let ask = || async {
            let request = GetCapabilitiesRequest { instance_name: instance.to_owned() };
            let response =
                CapabilitiesClient::new(self.channel.clone()).get_capabilities(timed(request)).await;
            match response {
                Ok(response) => Ok(response
                    .into_inner()
                    .cache_capabilities
                    .unwrap_or_default()
                    .max_batch_total_size_bytes),
                Err(status) if status.code() == Code::Unimplemented => Ok(0),
                Err(status) => Err(status),
            }
        };
        let announced = self.max_batch_bytes.get_or_try_init(|| async {
            let announced = u64::try_from(retried(self.patience, ask).await?).unwrap_or(0);
            Ok::<_, CasError>(if announced == 0 { MAX_BATCH_BYTES } else { announced.min(MAX_BATCH_BYTES) })
        });
        announced.await.copied()
    }
}

#[tonic::async_trait]
impl Cas for GrpcCas {
    async fn find_missing(&self, instance: &str, digests: &[Digest]) -> Result<Vec<Digest>, CasError> {
        let mut missing = Vec::new();
        for digests in digests.chunks(MAX_FIND_DIGESTS) {
            let ask = || async {
                let request = FindMissingBlobsRequest {
                    instance_name: instance.to_owned(),
                    blob_digests: digests.iter().map(digest::to_proto).collect(),
                    digest_function: function_of(digests),
                };
                self.storage().find_missing_blobs(timed(request)).await
            };
            let response = retried(self.patience, ask).await?.into_inner().missing_blob_digests;
            let response: HashSet<_> =
                response.into_iter().map(|digest| (digest.hash, digest.size_bytes)).collect();
            let is_missing = |digest: &&Digest| {
                let digest = digest::to_proto(digest);
                response.contains(&(digest.hash, digest.size_bytes))
            };
            missing.extend(digests.iter().filter(is_missing));
        }
        Ok(missing)
    }

    async fn read_many(&self, instance: &str, digests: &[Digest]) -> Result<Vec<Option<Bytes>>, CasError> {
        let max = self.max_batch_bytes(instance).await?;
        let mut found = HashMap::with_capacity(digests.len());
        for batch in batches(digests, |digest| digest.size, max) {
            let ask = || async {
                let request = BatchReadBlobsRequest {
                    instance_name: instance.to_owned(),
                    digests: batch.iter().map(digest::to_proto).collect(),
                    acceptable_compressors: Vec::new(),
                    digest_function: function_of(batch),
                };
                self.storage().batch_read_blobs(timed(request)).await
            };
            for answer in retried(self.patience, ask).await?.into_inner().responses {
                let status = answer.status.unwrap_or_default();
                let digest = answer.digest.unwrap_or_default();
                match Code::from(status.code) {
                    Code::Ok => {
                        drop(found.insert((digest.hash, digest.size_bytes), Bytes::from(answer.data)))
                    }
                    Code::NotFound => {}
                    code => return Err(retry::to_cas_error(&Status::new(code, status.message))),
                }
            }
        }
        let content = |digest: &Digest| {
            let digest = digest::to_proto(digest);
            found.get(&(digest.hash, digest.size_bytes)).cloned()
        };
        Ok(digests.iter().map(content).collect())
    }

    async fn read_to_file(&self, instance: &str, digest: &Digest, file: File) -> Result<bool, CasError> {
        stream::read(|| self.byte_stream(), instance, digest, file, self.patience).await
    }

    async fn upload_many(&self, instance: &str, blobs: Vec<(Digest, Bytes)>) -> Result<(), CasError> {
        let max = self.max_batch_bytes(instance).await?;
        for batch in batches(&blobs, |(digest, _)| digest.size, max) {
            let ask = || async {
                let upload = |(digest, content): &(Digest, Bytes)| batch_update_blobs_request::Request {
                    digest: Some(digest::to_proto(digest)),
                    data: content.to_vec(),
                    compressor: 0,
                };
                let request = BatchUpdateBlobsRequest {
                    instance_name: instance.to_owned(),
                    requests: batch.iter().map(upload).collect(),
                    digest_function: batch
                        .first()
                        .map_or(0, |(digest, _)| digest::function_to_proto(digest.function).into()),
                };
                self.storage().batch_update_blobs(timed(request)).await
            };
            for answer in retried(self.patience, ask).await?.into_inner().responses {
                let status = answer.status.unwrap_or_default();
                if status.code != Code::Ok as i32 {
                    return Err(retry::to_cas_error(&Status::new(Code::from(status.code), status.message)));
                }
            }
        }
        Ok(())
    }

    async fn upload_file(&self, instance: &str, digest: &Digest, file: File) -> Result<(), CasError> {
        stream::upload(|| self.byte_stream(), instance, digest, file, self.patience).await
    }
}

/// Adds to each call on whose behalf it is made.
#[derive(Clone)]
pub struct Headers {
    tenant: Option<MetadataValue<Ascii>>,
}

impl tonic::service::Interceptor for Headers {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(tenant) = &self.tenant {
            request.metadata_mut().insert(wire::TENANT_HEADER, tenant.clone());
        }
        Ok(request)
    }
}

fn timed<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(CALL_TIMEOUT);
    request
}

fn function_of(digests: &[Digest]) -> i32 {
    digests.first().map_or(0, |digest| digest::function_to_proto(digest.function).into())
}
