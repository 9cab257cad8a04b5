//! Splits blobs into batches.

/// What a blob adds to a batch beside its content.
const BLOB_OVERHEAD_BYTES: u64 = 128;

/// Splits into runs that fit into one batch each. What fits into none is a batch of its own, for the store to judge.
pub(super) fn batches<T>(blobs: &[T], size: impl Fn(&T) -> u64, max_bytes: u64) -> Vec<&[T]> {
    let mut batches = Vec::new();
    let (mut begin, mut bytes) = (0, 0);
    for (n, blob) in blobs.iter().enumerate() {
        let more = size(blob).saturating_add(BLOB_OVERHEAD_BYTES);
        if n > begin && bytes + more > max_bytes {
            batches.push(&blobs[begin..n]);
            (begin, bytes) = (n, 0);
        }
        bytes += more;
    }
    if begin < blobs.len() {
        batches.push(&blobs[begin..]);
    }
    batches
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_keep_within_the_limit_and_lose_nothing() {
        let sizes = [400, 400, 400, 2_000, 1, 1];
        let split = batches(&sizes, |size| *size, 1_000 + 2 * BLOB_OVERHEAD_BYTES);
        assert_eq!(split, [&[400, 400][..], &[400], &[2_000], &[1, 1]]);
        assert!(batches(&[], |size: &u64| *size, 10).is_empty());
    }
}
