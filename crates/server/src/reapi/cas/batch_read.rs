//! BatchReadBlobs: reads small blobs; each has a status of its own (R16).

use blobs::{Digest, ZstdEncoder};
use bytes::Bytes;
use execution::digest;
use tonic::{Request, Status};

use crate::reapi::messages::batch_read_blobs_response::Response as BlobResponse;
use crate::reapi::messages::{self, BatchReadBlobsRequest, BatchReadBlobsResponse, compressor};
use crate::reapi::{MAX_BATCH_BYTES, Reapi, instance, store};

/// Below this a compressed blob is hardly smaller.
const MIN_COMPRESSED_BYTES: usize = 512;

pub(super) async fn batch_read(
    reapi: &Reapi,
    request: &Request<BatchReadBlobsRequest>,
) -> Result<BatchReadBlobsResponse, Status> {
    let asked = request.get_ref();
    let scope = instance::scope(request.metadata(), &asked.instance_name)?;
    let function = digest::function_from_proto(asked.digest_function)?;
    let digests = asked.digests.iter().map(|asked| digest::from_proto(Some(asked), function, "digests"));
    let digests = digests.collect::<Result<Vec<_>, _>>()?;
    let total = digests.iter().fold(0_u64, |total, digest| total.saturating_add(digest.size));
    if total > MAX_BATCH_BYTES as u64 {
        return Err(Status::invalid_argument(format!(
            "a batch has at most {MAX_BATCH_BYTES} bytes, but this one has {total}: read large blobs with ByteStream"
        )));
    }
    let zstd = asked.acceptable_compressors.contains(&(compressor::Value::Zstd as i32));
    let store = reapi.store_for(request.extensions(), &scope)?;
    let found = store.blobs.get_many(&store.tenant, &digests).await;
    let zstd = zstd && found.iter().flatten().any(|bytes| bytes.len() >= MIN_COMPRESSED_BYTES);
    let respond = move || respond(&digests, found, zstd);
    let responses = if zstd { reapi.app.compute.run(respond).await? } else { respond() };
    Ok(BatchReadBlobsResponse { responses })
}

fn respond(digests: &[Digest], found: Vec<blobs::Result<Bytes>>, zstd: bool) -> Vec<BlobResponse> {
    let responses = digests.iter().zip(found).map(|(digest, found)| {
        let mut response = BlobResponse { digest: Some(digest::to_proto(digest)), ..BlobResponse::default() };
        match found {
            Ok(bytes) => {
                response.status = Some(messages::rpc::Status::default());
                let small = (zstd && bytes.len() >= MIN_COMPRESSED_BYTES)
                    .then(|| ZstdEncoder::compress(&bytes).ok())
                    .flatten()
                    .filter(|small| small.len() < bytes.len());
                match small {
                    Some(small) => {
                        response.data = small.into();
                        response.compressor = compressor::Value::Zstd as i32;
                    }
                    None => response.data = bytes.to_vec(),
                }
            }
            Err(error) => response.status = Some(messages::status(&store::status(error))),
        }
        response
    });
    responses.collect()
}
