//! Content that clients upload compressed.

use blobs::{ZstdDecoder, ZstdDecompressor, ZstdEncoder};
use bytes::Bytes;

/// The announced size of the content, which an upload must not exceed.
const SIZE: u64 = 64 * 1_024;
const PIECE_BYTES: usize = 100;

/// Decompresses a stream in pieces and at once. No more comes out than was announced, and both agree about a whole frame.
pub(crate) fn zstd(input: &[u8]) {
    let streamed = stream(input);
    if let Some(content) = &streamed {
        assert_eq!(content.len() as u64, SIZE, "a stream has the announced size");
    }
    let whole = ZstdDecompressor::new().and_then(|mut decoder| decoder.decompress(input, SIZE)).ok();
    if let (Some(whole), Some(content)) = (&whole, &streamed) {
        assert!(whole == content, "a stream gives the same in pieces and at once");
    }
    // What is compressed comes back.
    let compressed = ZstdEncoder::compress(input);
    let back = compressed.and_then(|bytes| ZstdDecompressor::new()?.decompress(&bytes, input.len() as u64));
    assert!(back.is_ok_and(|back| back == input), "content comes back as it was");
}

pub(crate) fn zstd_streams() -> Vec<Vec<u8>> {
    let content: Vec<u8> = (0..SIZE).map(|at| (at / 64) as u8).collect();
    ZstdEncoder::compress(&content).into_iter().map(|bytes| bytes.to_vec()).collect()
}

fn stream(input: &[u8]) -> Option<Vec<u8>> {
    let mut decoder = ZstdDecoder::new(SIZE).ok()?;
    let mut content = Vec::new();
    for piece in input.chunks(PIECE_BYTES) {
        decoder.feed(Bytes::copy_from_slice(piece));
        while let Some(piece) = decoder.next_piece().ok()? {
            content.extend_from_slice(&piece);
            assert!(content.len() as u64 <= SIZE, "more comes out than was announced");
        }
    }
    decoder.finish().ok()?;
    Some(content)
}
