//! Checksums of a file, chunk by chunk, made while it is written and compared while it is read.

use super::{options::CHUNK_BYTES, record::u32_at};

#[derive(Default)]
pub(super) struct Checksums {
    /// Four bytes for each full chunk.
    done: Vec<u8>,
    current: u32,
    filled: usize,
}

impl Checksums {
    pub(super) fn update(&mut self, mut content: &[u8]) {
        while !content.is_empty() {
            let (now, later) = content.split_at(content.len().min(CHUNK_BYTES - self.filled));
            self.current = crc32c::crc32c_append(self.current, now);
            self.filled += now.len();
            if self.filled == CHUNK_BYTES {
                self.end_chunk();
            }
            content = later;
        }
    }

    pub(super) fn finish(mut self) -> Vec<u8> {
        if self.filled > 0 {
            self.end_chunk();
        }
        self.done
    }

    fn end_chunk(&mut self) {
        self.done.extend_from_slice(&self.current.to_le_bytes());
        (self.current, self.filled) = (0, 0);
    }
}

/// Whether this is chunk `number` of what `checksums` were made of.
pub(super) fn is_chunk(checksums: &[u8], number: u64, content: &[u8]) -> bool {
    let at = usize::try_from(number).ok().and_then(|number| number.checked_mul(4));
    at.is_some_and(|at| at + 4 <= checksums.len() && u32_at(checksums, at) == crc32c::crc32c(content))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_of_any_size_give_the_sums_of_the_chunks() {
        let content: Vec<u8> = (0..CHUNK_BYTES * 2 + 1).map(|n| (n % 253) as u8).collect();
        for piece in [1, 1000, CHUNK_BYTES, CHUNK_BYTES + 1, content.len()] {
            let mut checksums = Checksums::default();
            content.chunks(piece).for_each(|piece| checksums.update(piece));
            let checksums = checksums.finish();
            assert_eq!(checksums.len(), 12);
            for (number, chunk) in content.chunks(CHUNK_BYTES).enumerate() {
                assert!(is_chunk(&checksums, number as u64, chunk));
                assert!(!is_chunk(&checksums, number as u64 + 1, chunk));
            }
        }
    }
}
