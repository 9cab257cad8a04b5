//! Write: receives a blob piece by piece. The blob becomes visible when it is complete and its digest is right (R21 to
//! R25).

use std::sync::Arc;

use blobs::{Begun, BlobWriter, Progress, UploadRequest, ZstdDecoder};
use bytes::Bytes;
use tonic::{Request, Status, Streaming};

use crate::edge::grpc_guard::BodyBudget;
use crate::reapi::messages::bytestream::{WriteRequest, WriteResponse};
use crate::reapi::resource_name::{self, Compression, WriteName};
use crate::reapi::{Reapi, instance, store};

pub(super) async fn write(
    reapi: &Reapi,
    request: Request<Streaming<WriteRequest>>,
) -> Result<WriteResponse, Status> {
    let (metadata, extensions, mut pieces) = request.into_parts();
    let meter: Option<Arc<BodyBudget>> = extensions.get().cloned();
    let first =
        pieces.message().await?.ok_or_else(|| Status::invalid_argument("the upload has no messages"))?;
    resource_name::check_header(&metadata, &first.resource_name)?;
    let name = resource_name::parse_write(&first.resource_name)?;
    let store = reapi.store_for(&extensions, &instance::scope(&metadata, &name.instance)?)?;
    let offset = offset(&first)?;
    if name.compression == Compression::Zstd && offset != 0 {
        return Err(Status::invalid_argument("write_offset: a compressed upload begins at 0"));
    }
    let upload = match name.compression {
        Compression::None => UploadRequest::named(name.digest, &name.upload, offset),
        Compression::Zstd => UploadRequest::new(blobs::Expect::Digest(name.digest)),
    };
    let patience = reapi.app.bodies.receiving.max_pause;
    let _permit = match name.compression {
        Compression::None => None,
        Compression::Zstd => Some(store.limits.decompressor(&store.tenant, patience).await?),
    };
    let begun = store.blobs.write(&store.tenant, upload).await.map_err(store::status)?;
    let Begun::Writer(writer) = begun else { return Ok(present(&name)) };
    let mut upload = Upload::new(&name, writer, offset)?;
    let mut piece = Some(first);
    while let Some(message) = piece {
        upload.check(&name, &message)?;
        let finish = message.finish_write;
        if upload.take(message.data).await? == Progress::Present {
            return Ok(present(&name));
        }
        if finish {
            return upload.finish(&name).await;
        }
        if let Some(meter) = &meter {
            meter.give_back();
        }
        piece = pieces.message().await?;
    }
    // The client stopped early. What is in the store stays for a while, so that it can go on there (R24); of what came
    // compressed nothing does.
    let kept = match name.compression {
        Compression::None => upload.writer.leave().await.map_err(store::status)?,
        Compression::Zstd => 0,
    };
    Ok(WriteResponse { committed_size: size(kept) })
}

/// The answer to a client whose blob is already present: as if it had sent all of it (R22).
fn present(name: &WriteName) -> WriteResponse {
    match name.compression {
        Compression::None => WriteResponse { committed_size: size(name.digest.size) },
        Compression::Zstd => WriteResponse { committed_size: -1 },
    }
}

fn size(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

fn offset(message: &WriteRequest) -> Result<u64, Status> {
    u64::try_from(message.write_offset)
        .map_err(|_| Status::invalid_argument("write_offset: must not be negative"))
}

/// An upload under way. The client's offsets count what it sent; the store's count what that became.
struct Upload {
    writer: Box<dyn BlobWriter>,
    decompressor: Option<ZstdDecoder>,
    /// The offset of the client's next piece.
    expected: u64,
}

impl Upload {
    fn new(name: &WriteName, writer: Box<dyn BlobWriter>, offset: u64) -> Result<Upload, Status> {
        let decompressor = match name.compression {
            Compression::None => None,
            Compression::Zstd => Some(ZstdDecoder::new(name.digest.size).map_err(store::status)?),
        };
        Ok(Upload { writer, decompressor, expected: offset })
    }

    fn check(&self, name: &WriteName, message: &WriteRequest) -> Result<(), Status> {
        let again = &message.resource_name;
        if !again.is_empty() && resource_name::parse_write(again)? != *name {
            return Err(Status::invalid_argument("resource_name: must stay the same within an upload"));
        }
        match offset(message)? {
            offset if offset == self.expected => Ok(()),
            offset => Err(Status::invalid_argument(format!(
                "write_offset: the upload continues at {}, not at {offset}",
                self.expected
            ))),
        }
    }

    async fn take(&mut self, piece: Bytes) -> Result<Progress, Status> {
        self.expected += piece.len() as u64;
        match &mut self.decompressor {
            None => write_piece(&mut *self.writer, piece).await,
            Some(decompressor) => {
                decompressor.feed(piece);
                while let Some(piece) = decompressor.next_piece().map_err(store::status)? {
                    if write_piece(&mut *self.writer, piece).await? == Progress::Present {
                        return Ok(Progress::Present);
                    }
                }
                Ok(Progress::More)
            }
        }
    }

    async fn finish(self, name: &WriteName) -> Result<WriteResponse, Status> {
        if let Some(decompressor) = self.decompressor {
            decompressor.finish().map_err(store::status)?;
        }
        self.writer.finish().await.map_err(store::status)?;
        Ok(match name.compression {
            Compression::None => present(name),
            Compression::Zstd => WriteResponse { committed_size: size(self.expected) },
        })
    }
}

async fn write_piece(writer: &mut dyn BlobWriter, piece: Bytes) -> Result<Progress, Status> {
    let offset = writer.committed();
    writer.write(offset, piece).await.map_err(store::status)
}
