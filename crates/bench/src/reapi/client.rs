//! A client of the Remote Execution API with its own connection.

use anyhow::{Result, ensure};
use bazel_remote_apis::build::bazel::remote::execution::v2::action_cache_client::ActionCacheClient;
use bazel_remote_apis::build::bazel::remote::execution::v2::content_addressable_storage_client::ContentAddressableStorageClient;
use bazel_remote_apis::build::bazel::remote::execution::v2::execution_client::ExecutionClient;
use bazel_remote_apis::build::bazel::remote::execution::v2::{
    BatchUpdateBlobsRequest, batch_update_blobs_request::Request as Blob,
};
use blobs::Digest;
use tonic::transport::{Channel, Endpoint};
use wire::bytestream::byte_stream_client::ByteStreamClient;

use super::super::http::Server;
use crate::digest::digest_to_proto;

/// Windows as build clients set them: a stream does not wait for window updates.
const STREAM_WINDOW_BYTES: u32 = 4 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 16 << 20;
/// More than any response to these benchmarks.
const MAX_ANSWER_BYTES: usize = 16 << 20;

pub(super) struct ReapiClient {
    channel: Channel,
}

impl ReapiClient {
    pub(super) async fn connect(server: &Server) -> Result<ReapiClient> {
        let endpoint = Endpoint::from_shared(format!("http://{}", server.address()))?
            .tcp_nodelay(true)
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES);
        Ok(ReapiClient { channel: endpoint.connect().await? })
    }

    pub(super) fn cas(&self) -> ContentAddressableStorageClient<Channel> {
        ContentAddressableStorageClient::new(self.channel.clone()).max_decoding_message_size(MAX_ANSWER_BYTES)
    }

    pub(super) fn streams(&self) -> ByteStreamClient<Channel> {
        ByteStreamClient::new(self.channel.clone()).max_decoding_message_size(MAX_ANSWER_BYTES)
    }

    pub(super) fn results(&self) -> ActionCacheClient<Channel> {
        ActionCacheClient::new(self.channel.clone())
    }

    pub(super) fn executions(&self) -> ExecutionClient<Channel> {
        ExecutionClient::new(self.channel.clone())
    }

    /// Stores blobs in one call; each must be accepted.
    pub(super) async fn put(&self, blobs: Vec<(Digest, Vec<u8>)>) -> Result<()> {
        let count = blobs.len();
        let upload = |(digest, data): (Digest, Vec<u8>)| Blob {
            digest: Some(digest_to_proto(&digest)),
            data,
            ..Blob::default()
        };
        let request = BatchUpdateBlobsRequest {
            requests: blobs.into_iter().map(upload).collect(),
            ..BatchUpdateBlobsRequest::default()
        };
        let answers = self.cas().batch_update_blobs(request).await?.into_inner().responses;
        ensure!(answers.len() == count, "{} blobs of {count} were answered", answers.len());
        let refused = answers.into_iter().filter_map(|answer| answer.status).find(|status| status.code != 0);
        ensure!(refused.is_none(), "a blob was refused: {refused:?}");
        Ok(())
    }
}
