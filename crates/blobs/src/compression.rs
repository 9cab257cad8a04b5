//! Zstandard compression on the wire: in pieces, and never more than the announced size.

use bytes::Bytes;
use zstd::stream::raw::{CParameter, DParameter, InBuffer, Operation, OutBuffer};

use crate::{Error, Result};

/// Largest piece that comes out at a time.
const PIECE_BYTES: usize = 256 << 10;
/// Largest window that a stream may ask for, as a power of two: what every decoder is expected to support.
const MAX_WINDOW_LOG: u32 = 23;
/// Most frames without content in one piece of input. Each costs time, and nobody needs them.
const MAX_EMPTY_FRAMES: usize = 1_000;
/// Fast rather than small: blobs mostly travel over local networks.
const LEVEL: i32 = 1;

/// Decompresses a stream whose content has a known size. What it holds is bounded by the size of a piece and
/// of the window, whatever the stream says of itself (I15).
pub struct ZstdDecoder {
    decoder: zstd::stream::raw::Decoder<'static>,
    size: u64,
    produced: u64,
    input: Bytes,
    is_frame_whole: bool,
}

impl ZstdDecoder {
    /// For content of exactly this size.
    pub fn new(size: u64) -> Result<ZstdDecoder> {
        let start = || -> std::io::Result<_> {
            let mut decoder = zstd::stream::raw::Decoder::new()?;
            decoder.set_parameter(DParameter::WindowLogMax(MAX_WINDOW_LOG))?;
            Ok(decoder)
        };
        let decoder = start().map_err(|_| Error::BadCompression("no decoder could be made"))?;
        Ok(ZstdDecoder { decoder, size, produced: 0, input: Bytes::new(), is_frame_whole: false })
    }

    /// Gives it the next compressed bytes; `next_piece` must have been called until `None` before.
    pub fn feed(&mut self, input: Bytes) {
        debug_assert!(self.input.is_empty(), "the last input is used up first");
        self.input = input;
    }

    /// The next piece of content, or `None` when more input is needed.
    pub fn next_piece(&mut self) -> Result<Option<Bytes>> {
        // One byte more than may come, so that too much shows.
        let capacity = (self.size - self.produced).saturating_add(1).min(PIECE_BYTES as u64) as usize;
        let mut piece = Vec::with_capacity(capacity);
        for _ in 0..MAX_EMPTY_FRAMES {
            let mut input = InBuffer::around(&self.input);
            let mut output = OutBuffer::around(&mut piece);
            let left = self
                .decoder
                .run(&mut input, &mut output)
                .map_err(|_| Error::BadCompression("it is not a Zstandard stream with a usual window"))?;
            let consumed = input.pos();
            if consumed == 0 && piece.is_empty() {
                return Ok(None);
            }
            self.is_frame_whole = left == 0;
            self.input = self.input.slice(consumed..);
            self.produced += piece.len() as u64;
            if self.produced > self.size {
                return Err(Error::TooLong { announced: self.size });
            }
            if !piece.is_empty() {
                return Ok(Some(piece.into()));
            }
        }
        Err(Error::BadCompression("it has too many frames without content"))
    }

    /// Whether everything has come and nothing is left over.
    pub fn finish(self) -> Result<()> {
        if !self.is_frame_whole || !self.input.is_empty() {
            return Err(Error::BadCompression("it ends in the middle"));
        }
        if self.produced != self.size {
            return Err(Error::BadCompression("its content is shorter than announced"));
        }
        Ok(())
    }
}

/// Decompresses small contents, one after the other. Each is decompressed at once into memory of its announced size.
pub struct ZstdDecompressor {
    decompressor: zstd::bulk::Decompressor<'static>,
}

impl ZstdDecompressor {
    pub fn new() -> Result<ZstdDecompressor> {
        let decompressor = zstd::bulk::Decompressor::new();
        let decompressor = decompressor.map_err(|_| Error::BadCompression("no decoder could be made"))?;
        Ok(ZstdDecompressor { decompressor })
    }

    /// Takes memory for `size` bytes, which the caller has to bound.
    pub fn decompress(&mut self, input: &[u8], size: u64) -> Result<Bytes> {
        let bad = |what| move |_| Error::BadCompression(what);
        let size = usize::try_from(size).map_err(|_| Error::TooLong { announced: size })?;
        let content = self.decompressor.decompress(input, size);
        let content = content.map_err(bad("it is not a Zstandard stream of the announced size"))?;
        if input.is_empty() || content.len() != size {
            return Err(Error::BadCompression("its content is shorter than announced"));
        }
        Ok(content.into())
    }
}

/// Compresses a stream.
pub struct ZstdEncoder {
    encoder: zstd::stream::raw::Encoder<'static>,
}

impl ZstdEncoder {
    pub fn new() -> Result<ZstdEncoder> {
        let start = || -> std::io::Result<_> {
            let mut encoder = zstd::stream::raw::Encoder::new(LEVEL)?;
            encoder.set_parameter(CParameter::ChecksumFlag(false))?;
            Ok(encoder)
        };
        Ok(ZstdEncoder { encoder: start().map_err(|_| Error::BadCompression("no encoder could be made"))? })
    }

    /// Takes a piece of content; what comes out may be empty, since the encoder gathers.
    pub fn push(&mut self, content: &[u8]) -> Result<Bytes> {
        let mut compressed = Vec::new();
        let mut input = InBuffer::around(content);
        while input.pos() < content.len() {
            let mut piece = Vec::with_capacity(PIECE_BYTES.min(content.len() + 1024));
            let mut output = OutBuffer::around(&mut piece);
            self.encoder
                .run(&mut input, &mut output)
                .map_err(|_| Error::BadCompression("the encoder failed"))?;
            compressed.append(&mut piece);
        }
        Ok(compressed.into())
    }

    /// The rest of the stream.
    pub fn finish(mut self) -> Result<Bytes> {
        let mut compressed = Vec::new();
        loop {
            let mut piece = Vec::with_capacity(PIECE_BYTES);
            let mut output = OutBuffer::around(&mut piece);
            let left = self
                .encoder
                .finish(&mut output, true)
                .map_err(|_| Error::BadCompression("the encoder failed"))?;
            compressed.append(&mut piece);
            if left == 0 {
                return Ok(compressed.into());
            }
        }
    }

    /// Compresses the whole of a small content.
    pub fn compress(content: &[u8]) -> Result<Bytes> {
        let compressed = zstd::bulk::compress(content, LEVEL);
        compressed.map(Bytes::from).map_err(|_| Error::BadCompression("the encoder failed"))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn in_pieces(compressed: &[u8], piece: usize, size: u64) -> Result<Vec<u8>> {
        let mut decoder = ZstdDecoder::new(size)?;
        let mut content = Vec::new();
        for input in compressed.chunks(piece) {
            decoder.feed(Bytes::copy_from_slice(input));
            while let Some(piece) = decoder.next_piece()? {
                assert!(piece.len() <= PIECE_BYTES);
                content.extend_from_slice(&piece);
            }
        }
        decoder.finish().map(|()| content)
    }

    fn sample(bytes: usize) -> Vec<u8> {
        (0..bytes).map(|n| (n * n / 7 % 251) as u8).collect()
    }

    #[test]
    fn content_comes_back_whatever_the_pieces() {
        for bytes in [0, 1, 1000, PIECE_BYTES, 3 * PIECE_BYTES + 5] {
            let content = sample(bytes);
            let mut encoder = ZstdEncoder::new().unwrap();
            let mut compressed = Vec::new();
            for piece in content.chunks(100_000) {
                compressed.extend_from_slice(&encoder.push(piece).unwrap());
            }
            compressed.extend_from_slice(&encoder.finish().unwrap());
            for piece in [1, 1000, 1 << 20] {
                assert!(in_pieces(&compressed, piece, bytes as u64).unwrap() == content);
            }
            let at_once = ZstdEncoder::compress(&content).unwrap();
            let mut decompressor = ZstdDecompressor::new().unwrap();
            assert!(decompressor.decompress(&at_once, bytes as u64).unwrap() == content);
        }
    }

    /// I15: a gigabyte of zeros in a few kilobytes stops at the announced size.
    #[test]
    fn a_bomb_is_stopped_at_the_announced_size() {
        let mut encoder = ZstdEncoder::new().unwrap();
        let zeros = vec![0; 1 << 20];
        let mut bomb = Vec::new();
        for _ in 0..1024 {
            bomb.extend_from_slice(&encoder.push(&zeros).unwrap());
        }
        bomb.extend_from_slice(&encoder.finish().unwrap());
        assert!(bomb.len() < 1 << 20);
        assert!(matches!(in_pieces(&bomb, bomb.len(), 10_000), Err(Error::TooLong { announced: 10_000 })));
    }

    /// I15.
    #[test]
    fn a_stream_that_is_cut_off_or_followed_by_something_is_refused() {
        let content = sample(50_000);
        let whole = ZstdEncoder::compress(&content).unwrap();
        for cut in [0, 1, 4, whole.len() / 2, whole.len() - 1] {
            assert!(in_pieces(&whole[..cut], 999, 50_000).is_err(), "{cut}");
        }
        for garbage in [&b"x"[..], b"1234", b"garbage that is long enough"] {
            let longer = [&whole[..], garbage].concat();
            assert!(in_pieces(&longer, 999, 50_000).is_err(), "{garbage:?}");
        }
        assert!(in_pieces(&whole, 999, 49_999).is_err());
        assert!(in_pieces(&whole, 999, 50_001).is_err());
    }

    /// I15.
    #[test]
    fn small_contents_that_are_not_what_they_announce_are_refused() {
        let mut decompressor = ZstdDecompressor::new().unwrap();
        let content = sample(50_000);
        let whole = ZstdEncoder::compress(&content).unwrap();
        let bomb = ZstdEncoder::compress(&vec![0; 64 << 20]).unwrap();
        let longer = [&whole[..], b"garbage"].concat();
        for bad in [&b""[..], b"x", &whole[..whole.len() - 1], &longer, &bomb] {
            assert!(decompressor.decompress(bad, 50_000).is_err());
        }
        assert!(decompressor.decompress(&whole, 49_999).is_err());
        assert!(decompressor.decompress(&whole, 50_001).is_err());
        assert!(decompressor.decompress(&whole, 50_000).unwrap() == content, "it goes on after an error");
    }

    /// Each of a million empty frames took a buffer, and together they took seconds.
    #[test]
    fn i15_frames_without_content_are_limited() {
        let empty = ZstdEncoder::compress(b"").unwrap();
        let content = ZstdEncoder::compress(b"x").unwrap();
        let frames = |count: usize| [&empty.repeat(count)[..], &content].concat();
        assert_eq!(in_pieces(&frames(100), 1 << 20, 1).unwrap(), b"x");
        let many = frames(MAX_EMPTY_FRAMES + 1);
        assert!(matches!(in_pieces(&many, many.len(), 1), Err(Error::BadCompression(_))));
    }

    #[test]
    fn a_window_beyond_the_bound_is_refused() {
        let mut encoder = zstd::stream::raw::Encoder::new(1).unwrap();
        encoder.set_parameter(CParameter::WindowLog(27)).unwrap();
        let mut encoder = ZstdEncoder { encoder };
        let mut compressed = encoder.push(&sample(100_000)).unwrap().to_vec();
        compressed.extend_from_slice(&encoder.finish().unwrap());
        assert!(matches!(in_pieces(&compressed, 4096, 100_000), Err(Error::BadCompression(_))));
    }

    proptest! {
        #[test]
        fn any_bytes_are_decoded_or_refused(bytes: Vec<u8>, size in 0u64..10_000, flip in 0usize..500) {
            let _ = in_pieces(&bytes, 16, size);
            let mut near = ZstdEncoder::compress(&sample(size as usize)).unwrap().to_vec();
            let at = flip % near.len();
            near[at] ^= 1;
            if let Ok(content) = in_pieces(&near, 64, size) {
                prop_assert_eq!(content.len() as u64, size);
            }
        }
    }
}
