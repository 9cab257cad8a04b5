//! BatchUpdateBlobs: writes small blobs; each is accepted or refused on its own (R15). What they have together is bounded
//! before anything is decompressed (I15).

use std::sync::Arc;

use blobs::{Digest, DigestFunction, ZstdDecompressor};
use bytes::Bytes;
use execution::digest;
use tonic::{Request, Status};
use wire::grpc::codec::MemoryBudget;

use crate::edge::grpc_guard::BodyBudget;
use crate::reapi::messages::batch_update_blobs_request::Request as Blob;
use crate::reapi::messages::batch_update_blobs_response::Response as BlobResponse;
use crate::reapi::messages::{self, BatchUpdateBlobsRequest, BatchUpdateBlobsResponse, compressor};
use crate::reapi::{MAX_BATCH_BYTES, Reapi, instance, store};

pub(super) async fn batch_update(
    reapi: &Reapi,
    request: Request<BatchUpdateBlobsRequest>,
) -> Result<BatchUpdateBlobsResponse, Status> {
    let scope = instance::scope(request.metadata(), &request.get_ref().instance_name)?;
    let budget: Option<Arc<BodyBudget>> = request.extensions().get().cloned();
    let store = reapi.store_for(request.extensions(), &scope)?;
    let asked = request.into_inner();
    let function = digest::function_from_proto(asked.digest_function)?;
    let mut responses = Vec::with_capacity(asked.requests.len());
    let mut accepted = Vec::with_capacity(asked.requests.len());
    let (mut total, mut decompressed) = (0_u64, 0_u64);
    for blob in asked.requests {
        let status = match check(&blob, function) {
            Ok((digest, encoding)) => {
                let bytes = match encoding {
                    // A little content may be longer when it is compressed.
                    compressor::Value::Zstd => digest.size,
                    _ => digest.size.max(blob.data.len() as u64),
                };
                total = total.saturating_add(bytes);
                if encoding == compressor::Value::Zstd {
                    decompressed = decompressed.saturating_add(bytes);
                }
                accepted.push((responses.len(), digest, encoding, blob.data));
                None
            }
            Err(why) => {
                total = total.saturating_add(blob.data.len() as u64);
                Some(messages::status(&why))
            }
        };
        responses.push(BlobResponse { digest: blob.digest, status });
    }
    if total > MAX_BATCH_BYTES as u64 {
        return Err(Status::invalid_argument(format!(
            "a batch has at most {MAX_BATCH_BYTES} bytes, but this one has {total}: write large blobs with ByteStream"
        )));
    }
    let blobs = if decompressed == 0 {
        accepted
            .into_iter()
            .map(|(position, digest, _, data)| (position, Ok((digest, data.into()))))
            .collect()
    } else {
        if let Some(budget) = &budget {
            budget.charge(decompressed as usize)?;
        }
        // The budget stays charged while there is work, also when the client is gone.
        reapi.app.compute.run(move || (decompress(accepted), budget).0).await?
    };
    let (mut positions, mut batch) = (Vec::with_capacity(blobs.len()), Vec::with_capacity(blobs.len()));
    for (position, blob) in blobs {
        match blob {
            Ok(blob) => {
                positions.push(position);
                batch.push(blob);
            }
            Err(error) => responses[position].status = Some(messages::status(&store::status(error))),
        }
    }
    for (position, stored) in positions.into_iter().zip(store.blobs.put_many(&store.tenant, batch).await) {
        responses[position].status = Some(match stored {
            Ok(()) => messages::rpc::Status::default(),
            Err(error) => messages::status(&store::status(error)),
        });
    }
    Ok(BatchUpdateBlobsResponse { responses })
}

/// The digest of a blob, and how its data is encoded.
fn check(blob: &Blob, function: Option<DigestFunction>) -> Result<(Digest, compressor::Value), Status> {
    let digest = digest::from_proto(blob.digest.as_ref(), function, "digest")?;
    match compressor::Value::try_from(blob.compressor) {
        Ok(encoding @ (compressor::Value::Identity | compressor::Value::Zstd)) => Ok((digest, encoding)),
        _ => Err(Status::invalid_argument("compressor: is not supported; IDENTITY and ZSTD are")),
    }
}

/// A blob in its place in the batch.
type Placed<T> = (usize, T);

fn decompress(
    accepted: Vec<(usize, Digest, compressor::Value, Vec<u8>)>,
) -> Vec<Placed<Result<(Digest, Bytes), blobs::Error>>> {
    let mut decompressor = ZstdDecompressor::new();
    let mut content = |digest: &Digest, encoding, data: Vec<u8>| match (encoding, &mut decompressor) {
        (compressor::Value::Zstd, Ok(decompressor)) => decompressor.decompress(&data, digest.size),
        (compressor::Value::Zstd, Err(error)) => Err(error.clone()),
        _ => Ok(data.into()),
    };
    let blobs = accepted.into_iter();
    blobs
        .map(|(at, digest, encoding, data)| (at, content(&digest, encoding, data).map(|c| (digest, c))))
        .collect()
}
