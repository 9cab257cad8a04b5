//! The services of the server, and the calls that most checks make.

use bazel_remote_apis::build::bazel::remote::execution::v2::action_cache_client::ActionCacheClient;
use bazel_remote_apis::build::bazel::remote::execution::v2::capabilities_client::CapabilitiesClient;
use bazel_remote_apis::build::bazel::remote::execution::v2::content_addressable_storage_client::ContentAddressableStorageClient;
use bazel_remote_apis::build::bazel::remote::execution::v2::digest_function::Value as Function;
use bazel_remote_apis::build::bazel::remote::execution::v2::execution_client::ExecutionClient;
use bazel_remote_apis::build::bazel::remote::execution::v2::{
    ActionResult, BatchReadBlobsRequest, BatchUpdateBlobsRequest, BatchUpdateBlobsResponse,
    CacheCapabilities, Digest, FindMissingBlobsRequest, GetActionResultRequest, GetCapabilitiesRequest,
    ServerCapabilities, UpdateActionResultRequest, batch_update_blobs_request::Request as Blob, compressor,
};
use bazel_remote_apis::google::bytestream::byte_stream_client::ByteStreamClient;
use bazel_remote_apis::google::bytestream::{
    QueryWriteStatusRequest, QueryWriteStatusResponse, ReadRequest, WriteRequest, WriteResponse,
};
use bazel_remote_apis::google::longrunning::operations_client::OperationsClient;
use tonic::transport::Channel;
use tonic::{Code, Request, Status};

use super::content::{digest, random_hex};
use crate::finding::must;
use crate::grpc::{done, scoped};
use crate::{Finding, Subject};

/// Largest answer that the suite reads: more than any server's batch.
const MAX_ANSWER_BYTES: usize = 64 << 20;
/// How many bytes one piece of an upload has.
pub(super) const PIECE_BYTES: usize = 64 << 10;

#[derive(Clone, Copy)]
pub(super) struct Remote<'a> {
    pub subject: &'a Subject,
}

impl<'a> Remote<'a> {
    pub(super) fn of(subject: &'a Subject) -> Remote<'a> {
        Remote { subject }
    }

    pub(super) fn instance(&self) -> String {
        self.subject.options.instance.clone()
    }

    pub(super) fn scoped<T>(&self, message: T) -> Request<T> {
        scoped(self.subject, message)
    }

    pub(super) fn cas(&self) -> ContentAddressableStorageClient<Channel> {
        let client = ContentAddressableStorageClient::new(self.subject.channel());
        client.max_decoding_message_size(MAX_ANSWER_BYTES)
    }

    pub(super) fn streams(&self) -> ByteStreamClient<Channel> {
        ByteStreamClient::new(self.subject.channel()).max_decoding_message_size(MAX_ANSWER_BYTES)
    }

    pub(super) fn action_cache(&self) -> ActionCacheClient<Channel> {
        ActionCacheClient::new(self.subject.channel()).max_decoding_message_size(MAX_ANSWER_BYTES)
    }

    pub(super) fn execution(&self) -> ExecutionClient<Channel> {
        ExecutionClient::new(self.subject.channel()).max_decoding_message_size(MAX_ANSWER_BYTES)
    }

    pub(super) fn operations(&self) -> OperationsClient<Channel> {
        OperationsClient::new(self.subject.channel()).max_decoding_message_size(MAX_ANSWER_BYTES)
    }

    pub(super) async fn capabilities(&self) -> Result<ServerCapabilities, Finding> {
        let asked = self.scoped(GetCapabilitiesRequest { instance_name: self.instance() });
        let mut client = CapabilitiesClient::new(self.subject.channel());
        done("GetCapabilities", client.get_capabilities(asked).await)
    }

    /// What the cache can do; without one there is nothing to look at.
    pub(super) async fn cache(&self) -> Result<CacheCapabilities, Finding> {
        let missing = || Finding::Skipped("the server announces no cache_capabilities".into());
        self.capabilities().await?.cache_capabilities.ok_or_else(missing)
    }

    /// Skips what needs Zstandard where it is not announced.
    pub(super) async fn needs_zstd(&self) -> Result<(), Finding> {
        if self.cache().await?.supported_compressors.contains(&(compressor::Value::Zstd as i32)) {
            Ok(())
        } else {
            Err(Finding::Skipped("the server does not announce the compressor ZSTD".into()))
        }
    }

    pub(super) async fn missing(&self, digests: &[Digest]) -> Result<Vec<Digest>, Finding> {
        done("FindMissingBlobs", self.try_missing(digests, Function::Unknown).await)
    }

    pub(super) async fn try_missing(
        &self,
        digests: &[Digest],
        function: Function,
    ) -> Result<tonic::Response<Vec<Digest>>, Status> {
        let asked = FindMissingBlobsRequest {
            instance_name: self.instance(),
            blob_digests: digests.to_vec(),
            digest_function: function.into(),
        };
        let answer = self.cas().find_missing_blobs(self.scoped(asked)).await?;
        Ok(tonic::Response::new(answer.into_inner().missing_blob_digests))
    }

    pub(super) async fn must_be_missing(&self, digest: &Digest, why: &str) -> Result<(), Finding> {
        let is_missing = self.missing(std::slice::from_ref(digest)).await?.len() == 1;
        must(is_missing, || format!("FindMissingBlobs says that a blob is there, but {why}"))
    }

    /// Uploads blobs in one batch, each of which must be taken.
    pub(super) async fn put(&self, blobs: &[&[u8]]) -> Result<Vec<Digest>, Finding> {
        let pairs: Vec<(Digest, Vec<u8>)> =
            blobs.iter().map(|bytes| (digest(bytes), bytes.to_vec())).collect();
        let answer = done("BatchUpdateBlobs", self.try_put(pairs.clone(), Function::Unknown).await)?;
        for one in &answer.responses {
            let code = one.status.as_ref().map_or(0, |status| status.code);
            must(code == 0, || format!("BatchUpdateBlobs refused a blob: {:?}", one.status))?;
        }
        Ok(pairs.into_iter().map(|(digest, _)| digest).collect())
    }

    pub(super) async fn put_one(&self, bytes: &[u8]) -> Result<Digest, Finding> {
        self.put(&[bytes]).await?.pop().ok_or_else(|| Finding::broken("nothing was uploaded"))
    }

    pub(super) async fn try_put(
        &self,
        blobs: Vec<(Digest, Vec<u8>)>,
        function: Function,
    ) -> Result<tonic::Response<BatchUpdateBlobsResponse>, Status> {
        let requests =
            blobs.into_iter().map(|(digest, data)| Blob { digest: Some(digest), data, ..Blob::default() });
        self.try_batch(requests.collect(), function).await
    }

    pub(super) async fn try_batch(
        &self,
        requests: Vec<Blob>,
        function: Function,
    ) -> Result<tonic::Response<BatchUpdateBlobsResponse>, Status> {
        let digest_function = function.into();
        let asked = BatchUpdateBlobsRequest { instance_name: self.instance(), requests, digest_function };
        self.cas().batch_update_blobs(self.scoped(asked)).await
    }

    /// How one blob in a batch of its own is answered, whether the call or the blob is refused.
    pub(super) async fn put_code(&self, digest: Digest, data: Vec<u8>, function: Function) -> Code {
        match self.try_put(vec![(digest, data)], function).await {
            Err(status) => status.code(),
            Ok(answer) => match answer.into_inner().responses.first() {
                Some(one) => Code::from(one.status.as_ref().map_or(0, |status| status.code)),
                None => Code::Unknown,
            },
        }
    }

    /// A blob by BatchReadBlobs, which must be there.
    pub(super) async fn get(&self, digest: &Digest) -> Result<Vec<u8>, Finding> {
        let asked = BatchReadBlobsRequest {
            instance_name: self.instance(),
            digests: vec![digest.clone()],
            ..BatchReadBlobsRequest::default()
        };
        let answer = done("BatchReadBlobs", self.cas().batch_read_blobs(self.scoped(asked)).await)?;
        match answer.responses.into_iter().next() {
            Some(one) if one.status.as_ref().is_none_or(|status| status.code == 0) => Ok(one.data),
            other => Err(Finding::broken(format!(
                "BatchReadBlobs should have the blob {}, and answered {:?}",
                digest.hash,
                other.and_then(|one| one.status)
            ))),
        }
    }

    /// What comes before `blobs` or `uploads` in a name.
    pub(super) fn prefix(&self) -> String {
        match self.subject.options.instance.as_str() {
            "" => String::new(),
            instance => format!("{instance}/"),
        }
    }

    pub(super) fn read_name(&self, digest: &Digest) -> String {
        format!("{}blobs/{}/{}", self.prefix(), digest.hash, digest.size_bytes)
    }

    pub(super) fn zstd_name(&self, digest: &Digest) -> String {
        format!("{}compressed-blobs/zstd/{}/{}", self.prefix(), digest.hash, digest.size_bytes)
    }

    pub(super) fn write_name(&self, digest: &Digest) -> Result<String, Finding> {
        let Digest { hash, size_bytes } = digest;
        Ok(format!("{}uploads/{}/blobs/{hash}/{size_bytes}", self.prefix(), uuid()?))
    }

    pub(super) fn zstd_write_name(&self, digest: &Digest) -> Result<String, Finding> {
        let Digest { hash, size_bytes } = digest;
        Ok(format!("{}uploads/{}/compressed-blobs/zstd/{hash}/{size_bytes}", self.prefix(), uuid()?))
    }

    pub(super) async fn read(&self, name: &str, offset: i64, limit: i64) -> Result<Vec<u8>, Status> {
        let asked = ReadRequest { resource_name: name.to_owned(), read_offset: offset, read_limit: limit };
        self.read_as(self.scoped(asked)).await
    }

    pub(super) async fn read_as(&self, asked: Request<ReadRequest>) -> Result<Vec<u8>, Status> {
        let mut stream = self.streams().read(asked).await?.into_inner();
        let mut read = Vec::new();
        while let Some(piece) = stream.message().await? {
            read.extend_from_slice(&piece.data);
            if read.len() > MAX_ANSWER_BYTES {
                return Err(Status::data_loss("it does not end"));
            }
        }
        Ok(read)
    }

    /// A blob by its name, which must be there.
    pub(super) async fn must_read(&self, name: &str) -> Result<Vec<u8>, Finding> {
        done("ByteStream.Read", self.read(name, 0, 0).await.map(tonic::Response::new))
    }

    /// An upload with these messages and no more.
    pub(super) async fn write(&self, pieces: Vec<WriteRequest>) -> Result<WriteResponse, Status> {
        let asked = self.scoped(tokio_stream::iter(pieces));
        self.streams().write(asked).await.map(tonic::Response::into_inner)
    }

    /// A whole upload under a name, whatever its bytes are.
    pub(super) async fn upload(&self, name: &str, bytes: &[u8]) -> Result<WriteResponse, Status> {
        self.write(pieces(name, bytes)).await
    }

    pub(super) async fn write_status(&self, name: &str) -> Result<QueryWriteStatusResponse, Status> {
        let asked = QueryWriteStatusRequest { resource_name: name.to_owned() };
        self.streams().query_write_status(self.scoped(asked)).await.map(tonic::Response::into_inner)
    }

    /// The message with which an upload goes on that was cut short after some bytes: from where QueryWriteStatus says.
    pub(super) async fn rest_of(&self, name: &str, bytes: &[u8], sent: i64) -> Result<WriteRequest, Finding> {
        let committed = match self.write_status(name).await {
            Ok(answer) => {
                must(!answer.complete && (0..=sent).contains(&answer.committed_size), || {
                    format!("{sent} bytes were sent, and QueryWriteStatus answered {answer:?}")
                })?;
                answer.committed_size
            }
            Err(status) if status.code() == Code::NotFound => 0,
            Err(status) => return Err(Finding::broken(format!("QueryWriteStatus was refused: {status:?}"))),
        };
        Ok(WriteRequest {
            resource_name: name.to_owned(),
            write_offset: committed,
            finish_write: true,
            data: bytes[committed as usize..].to_vec(),
        })
    }

    pub(super) async fn cached(&self, action: &Digest) -> Result<ActionResult, Status> {
        let asked = GetActionResultRequest {
            instance_name: self.instance(),
            action_digest: Some(action.clone()),
            ..GetActionResultRequest::default()
        };
        self.action_cache().get_action_result(self.scoped(asked)).await.map(tonic::Response::into_inner)
    }

    pub(super) async fn cache_result(
        &self,
        action: &Digest,
        result: &ActionResult,
    ) -> Result<ActionResult, Status> {
        let asked = UpdateActionResultRequest {
            instance_name: self.instance(),
            action_digest: Some(action.clone()),
            action_result: Some(result.clone()),
            ..UpdateActionResultRequest::default()
        };
        let answer = self.action_cache().update_action_result(self.scoped(asked)).await;
        answer.map(tonic::Response::into_inner)
    }
}

/// An upload's messages: the name in the first alone, the last one finishes.
pub(super) fn pieces(name: &str, bytes: &[u8]) -> Vec<WriteRequest> {
    let mut pieces: Vec<WriteRequest> = bytes
        .chunks(PIECE_BYTES)
        .enumerate()
        .map(|(number, piece)| WriteRequest {
            write_offset: (number * PIECE_BYTES) as i64,
            data: piece.to_vec(),
            ..WriteRequest::default()
        })
        .collect();
    if pieces.is_empty() {
        pieces.push(WriteRequest::default());
    }
    if let Some(first) = pieces.first_mut() {
        first.resource_name = name.to_owned();
    }
    if let Some(last) = pieces.last_mut() {
        last.finish_write = true;
    }
    pieces
}

/// As the names of uploads have it.
pub(super) fn uuid() -> Result<String, Finding> {
    let text = random_hex(16)?;
    Ok([&text[..8], &text[8..12], &text[12..16], &text[16..20], &text[20..]].join("-"))
}
