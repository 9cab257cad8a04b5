//! Compresses content on its way to a client, piece by piece. Stored content is never compressed.

use blobs::{BlobReader, BoxFuture, Error, ZstdEncoder};
use bytes::Bytes;

pub(super) struct Compressed {
    reader: Box<dyn BlobReader>,
    /// None once the stream has ended.
    encoder: Option<ZstdEncoder>,
}

impl Compressed {
    pub(super) fn new(reader: Box<dyn BlobReader>) -> Result<Compressed, Error> {
        Ok(Compressed { reader, encoder: Some(ZstdEncoder::new()?) })
    }
}

impl BlobReader for Compressed {
    fn next(&mut self) -> BoxFuture<'_, Result<Option<Bytes>, Error>> {
        Box::pin(async move {
            while let Some(mut encoder) = self.encoder.take() {
                let compressed = match self.reader.next().await? {
                    None => encoder.finish()?,
                    Some(piece) => {
                        let compressed = encoder.push(&piece)?;
                        self.encoder = Some(encoder);
                        compressed
                    }
                };
                if !compressed.is_empty() {
                    return Ok(Some(compressed));
                }
            }
            Ok(None)
        })
    }
}
