//! Splits blobs into calls: small blobs in batches, each larger blob as a stream.

use crate::MAX_SMALL_BYTES;

/// Content of small blobs in one call.
const MAX_CALL_BYTES: u64 = 2 << 20;
/// Most small blobs in one call.
const MAX_CALL_BLOBS: usize = 4_000;

/// One call that transfers blobs.
#[derive(Debug, PartialEq, Eq)]
pub enum Transfer<T> {
    Stream(T),
    Batch(Vec<T>),
}

pub fn transfers<T>(blobs: impl IntoIterator<Item = T>, size: impl Fn(&T) -> u64) -> Vec<Transfer<T>> {
    let (small, large): (Vec<T>, Vec<T>) = blobs.into_iter().partition(|blob| size(blob) <= MAX_SMALL_BYTES);
    let batches = batches(small, size, MAX_CALL_BYTES, MAX_CALL_BLOBS);
    large.into_iter().map(Transfer::Stream).chain(batches.into_iter().map(Transfer::Batch)).collect()
}

/// Splits blobs into batches within the limits, in order. A blob that exceeds the limit is a batch of its own.
pub fn batches<T>(blobs: Vec<T>, size: impl Fn(&T) -> u64, max_bytes: u64, max_blobs: usize) -> Vec<Vec<T>> {
    let mut batches: Vec<Vec<T>> = Vec::new();
    let mut bytes = 0_u64;
    for blob in blobs {
        let more = size(&blob);
        bytes = bytes.saturating_add(more);
        match batches.last_mut() {
            Some(batch) if bytes <= max_bytes && batch.len() < max_blobs => batch.push(blob),
            _ => {
                bytes = more;
                batches.push(vec![blob]);
            }
        }
    }
    batches
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_stays_within_the_limits_unless_it_is_one_blob() {
        let sizes = vec![1, MAX_CALL_BYTES - 1, 1, 2 * MAX_CALL_BYTES, 5, 6];
        let split = |sizes| batches(sizes, |size| *size, MAX_CALL_BYTES, MAX_CALL_BLOBS);
        let expected = [vec![1, MAX_CALL_BYTES - 1], vec![1], vec![2 * MAX_CALL_BYTES], vec![5, 6]];
        assert_eq!(split(sizes), expected);
        let many: Vec<usize> = split(vec![0; 2 * MAX_CALL_BLOBS + 1]).iter().map(Vec::len).collect();
        assert_eq!(many, [MAX_CALL_BLOBS, MAX_CALL_BLOBS, 1]);
        assert!(split(Vec::new()).is_empty());
    }

    #[test]
    fn a_large_blob_is_a_stream() {
        let calls = transfers([1, MAX_SMALL_BYTES + 1, MAX_SMALL_BYTES], |size| *size);
        assert_eq!(calls, [Transfer::Stream(MAX_SMALL_BYTES + 1), Transfer::Batch(vec![1, MAX_SMALL_BYTES])]);
    }
}
