//! Read: sends a blob from an offset on, compressed if its resource name says so (R20).

use blobs::BlobReader;
use bytes::Bytes;
use futures_util::stream::{BoxStream, StreamExt, try_unfold};
use tonic::{Request, Status};

use crate::edge::paced_stream::at_pace;
use crate::reapi::compression::Compressed;
use crate::reapi::messages::bytestream::ReadRequest;
use crate::reapi::resource_name::{self, Compression};
use crate::reapi::{Reapi, instance, store};

/// A blob of up to this size is sent as one message.
const ONE_MESSAGE_BYTES: u64 = 256 * 1_024;

/// Content, piece by piece.
pub(super) type Pieces = BoxStream<'static, Result<Bytes, Status>>;

pub(super) async fn read(reapi: &Reapi, request: &Request<ReadRequest>) -> Result<Pieces, Status> {
    let asked = request.get_ref();
    resource_name::check_header(request.metadata(), &asked.resource_name)?;
    let name = resource_name::parse_read(&asked.resource_name)?;
    let scope = instance::scope(request.metadata(), &name.instance)?;
    let store = reapi.store_for(request.extensions(), &scope)?;
    let offset = u64::try_from(asked.read_offset)
        .map_err(|_| Status::out_of_range("read_offset: must not be negative"))?;
    let limit = match asked.read_limit {
        0 => None,
        limit => Some(
            u64::try_from(limit).map_err(|_| Status::invalid_argument("read_limit: must not be negative"))?,
        ),
    };
    if name.compression == Compression::Zstd && limit.is_some() {
        return Err(Status::invalid_argument("read_limit: cannot be given when a blob is read compressed"));
    }
    let reader = store.blobs.read(&store.tenant, name.digest, offset, limit).await;
    let reader = reader.map_err(store::status)?;
    let reader: Box<dyn BlobReader> = match name.compression {
        Compression::None => reader,
        Compression::Zstd => Box::new(Compressed::new(reader).map_err(store::status)?),
    };
    let pieces = try_unfold(reader, |mut reader| async move {
        let piece = reader.next().await.map_err(store::status)?;
        Ok(piece.map(|piece| (piece, reader)))
    });
    if name.digest.size <= ONE_MESSAGE_BYTES {
        return Ok(pieces.boxed());
    }
    let max_stall = reapi.app.bodies.receiving.max_stall;
    Ok(at_pace(pieces, max_stall, || Status::deadline_exceeded("the blob was taken too slowly")))
}
