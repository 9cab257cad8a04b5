//! BatchUpdateBlobs: writes small blobs; each is accepted or refused on its own (R15).

use blobs::ZstdDecoder;
use bytes::Bytes;
use execution::digest;
use tonic::{Request, Status};

use crate::reapi::messages::batch_update_blobs_request as asked;
use crate::reapi::messages::batch_update_blobs_response::Response as BlobResponse;
use crate::reapi::messages::{self, BatchUpdateBlobsRequest, BatchUpdateBlobsResponse, compressor};
use crate::reapi::{MAX_BATCH_BYTES, Reapi, instance, store};

pub(super) async fn batch_update(
    reapi: &Reapi,
    request: Request<BatchUpdateBlobsRequest>,
) -> Result<BatchUpdateBlobsResponse, Status> {
    let scope = instance::scope(request.metadata(), &request.get_ref().instance_name)?;
    let asked = request.into_inner();
    let function = digest::function_from_proto(asked.digest_function)?;
    let total: usize = asked.requests.iter().map(|blob| blob.data.len()).sum();
    if total > MAX_BATCH_BYTES {
        return Err(Status::invalid_argument(format!(
            "a batch has at most {MAX_BATCH_BYTES} bytes, but this one has {total}: write large blobs with ByteStream"
        )));
    }
    let mut accepted = Vec::new();
    let mut responses = Vec::with_capacity(asked.requests.len());
    for blob in asked.requests {
        let status = match read(&blob, function) {
            Ok((digest, bytes)) => {
                accepted.push((responses.len(), digest, bytes.unwrap_or_else(|| blob.data.into())));
                None
            }
            Err(why) => Some(messages::status(&why)),
        };
        responses.push(BlobResponse { digest: blob.digest, status });
    }
    let positions: Vec<usize> = accepted.iter().map(|(position, ..)| *position).collect();
    let blobs = accepted.into_iter().map(|(_, digest, bytes)| (digest, bytes)).collect();
    let store = reapi.store(&scope)?;
    for (position, stored) in positions.into_iter().zip(store.blobs.put_many(&store.tenant, blobs).await) {
        responses[position].status = Some(match stored {
            Ok(()) => messages::rpc::Status::default(),
            Err(error) => messages::status(&store::status(error)),
        });
    }
    Ok(BatchUpdateBlobsResponse { responses })
}

/// The blob's digest, and its bytes if they came compressed.
fn read(
    blob: &asked::Request,
    function: Option<blobs::DigestFunction>,
) -> Result<(blobs::Digest, Option<Bytes>), Status> {
    let digest = digest::from_proto(blob.digest.as_ref(), function, "digest")?;
    match compressor::Value::try_from(blob.compressor) {
        Ok(compressor::Value::Identity) => Ok((digest, None)),
        Ok(compressor::Value::Zstd) => {
            if digest.size > MAX_BATCH_BYTES as u64 {
                return Err(Status::invalid_argument(format!(
                    "{digest} is larger than a batch may be: write it with ByteStream"
                )));
            }
            let bytes = ZstdDecoder::decompress(Bytes::copy_from_slice(&blob.data), digest.size);
            bytes.map(|bytes| (digest, Some(bytes))).map_err(store::status)
        }
        _ => Err(Status::invalid_argument("compressor: is not supported; IDENTITY and ZSTD are")),
    }
}
