//! Zstandard on the wire. What is stored is never compressed, and nothing grows beyond the size that its digest names.

use blobs::{BlobReader, BoxFuture, Digest, Error};
use bytes::Bytes;
use tonic::Status;
use zstd::stream::raw::{Decoder, Encoder, InBuffer, Operation, OutBuffer};

/// Fast, and small enough: the network on one machine is quicker than a higher level.
const LEVEL: i32 = 1;
/// Bytes of each piece that comes out.
const PIECE_BYTES: usize = 256 * 1_024;

/// A small blob, compressed.
pub fn compressed(bytes: &[u8]) -> Vec<u8> {
    // Only memory could fail here; the blob as it is, is no worse.
    zstd::bulk::compress(bytes, LEVEL).unwrap_or_else(|_| bytes.to_vec())
}

/// A small blob of this digest, which came compressed.
pub fn decompressed(bytes: &[u8], digest: &Digest) -> Result<Bytes, Status> {
    let mut decompressor = Decompressor::new(digest)?;
    decompressor.feed(Bytes::copy_from_slice(bytes));
    let mut whole = Vec::with_capacity(usize::try_from(digest.size).unwrap_or(0).min(bytes.len().saturating_mul(8)));
    while let Some(piece) = decompressor.next()? {
        whole.extend_from_slice(&piece);
    }
    decompressor.finish()?;
    Ok(whole.into())
}

/// Content on its way in, piece by piece.
pub struct Decompressor {
    decoder: Decoder<'static>,
    input: Bytes,
    /// How much more may come out.
    left: u64,
    /// Whether a frame has ended and no other has begun.
    between_frames: bool,
    more_inside: bool,
}

impl Decompressor {
    pub fn new(digest: &Digest) -> Result<Decompressor, Status> {
        let decoder = Decoder::new().map_err(|_| no_memory())?;
        Ok(Decompressor { decoder, input: Bytes::new(), left: digest.size, between_frames: true, more_inside: false })
    }

    /// Takes what came next; `next` gives what it holds.
    pub fn feed(&mut self, compressed: Bytes) {
        self.input = compressed;
    }

    /// The next piece of content, or none until more is fed.
    pub fn next(&mut self) -> Result<Option<Bytes>, Status> {
        if self.input.is_empty() && !self.more_inside {
            return Ok(None);
        }
        let mut piece = vec![0; PIECE_BYTES];
        let mut out = OutBuffer::around(&mut piece[..]);
        let mut input = InBuffer::around(&self.input[..]);
        let hint = self.decoder.run(&mut input, &mut out).map_err(|_| damaged())?;
        let (read, written) = (input.pos(), out.pos());
        self.between_frames = hint == 0;
        self.more_inside = written == PIECE_BYTES;
        if read == 0 && written == 0 && !self.input.is_empty() {
            return Err(damaged());
        }
        self.input = self.input.slice(read..);
        self.left = self.left.checked_sub(written as u64).ok_or_else(|| {
            Status::invalid_argument("the compressed content is longer than the blob's digest says")
        })?;
        piece.truncate(written);
        match written {
            0 => self.next(),
            _ => Ok(Some(piece.into())),
        }
    }

    /// The content must be over where the stream is.
    pub fn finish(&self) -> Result<(), Status> {
        match self.between_frames {
            true => Ok(()),
            false => Err(Status::invalid_argument("the compressed content ends early")),
        }
    }
}

fn damaged() -> Status {
    Status::invalid_argument("the compressed content is not valid Zstandard")
}

fn no_memory() -> Status {
    Status::resource_exhausted("there is no memory for the compression")
}

/// Content on its way out, compressed piece by piece.
pub struct Compressed {
    reader: Box<dyn BlobReader>,
    encoder: Encoder<'static>,
    ended: bool,
}

impl Compressed {
    pub fn new(reader: Box<dyn BlobReader>) -> Result<Compressed, Status> {
        let encoder = Encoder::new(LEVEL).map_err(|_| no_memory())?;
        Ok(Compressed { reader, encoder, ended: false })
    }

    fn compress(&mut self, piece: &[u8], last: bool) -> Result<Vec<u8>, Error> {
        let mut all = Vec::new();
        let mut input = InBuffer::around(piece);
        let mut buffer = vec![0; PIECE_BYTES];
        loop {
            let mut out = OutBuffer::around(&mut buffer[..]);
            let left = match input.pos() < piece.len() {
                true => self.encoder.run(&mut input, &mut out).map(|_| 1),
                false if last => self.encoder.finish(&mut out, true),
                false => return Ok(all),
            };
            let left = left.map_err(|_| Error::BadCompression("the compression failed"))?;
            let written = out.pos();
            all.extend_from_slice(&buffer[..written]);
            if last && input.pos() == piece.len() && left == 0 {
                return Ok(all);
            }
        }
    }
}

impl BlobReader for Compressed {
    fn next(&mut self) -> BoxFuture<'_, Result<Option<Bytes>, Error>> {
        Box::pin(async move {
            while !self.ended {
                let piece = self.reader.next().await?;
                self.ended = piece.is_none();
                let compressed = self.compress(piece.as_deref().unwrap_or_default(), self.ended)?;
                if !compressed.is_empty() {
                    return Ok(Some(compressed.into()));
                }
            }
            Ok(None)
        })
    }
}
