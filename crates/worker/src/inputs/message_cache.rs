//! Caches decoded messages by digest. Most directories of an input tree are those of the previous action, and an
//! action that runs again because an input changed has the same command.

use std::collections::HashMap;
use std::sync::Arc;

use blobs::Digest;
use parking_lot::Mutex;

pub(crate) struct MessageCache<T> {
    /// Most encoded bytes in each of two generations.
    max_generation_bytes: usize,
    known: Mutex<Generations<T>>,
}

/// When the young generation is full, it becomes the old one, and the old one is dropped. A use makes a message young.
struct Generations<T> {
    young: HashMap<Digest, Known<T>>,
    young_bytes: usize,
    old: HashMap<Digest, Known<T>>,
}

type Known<T> = (Arc<T>, usize);

impl<T> MessageCache<T> {
    pub(crate) fn new(max_generation_bytes: usize) -> MessageCache<T> {
        let known = Generations { young: HashMap::new(), young_bytes: 0, old: HashMap::new() };
        MessageCache { max_generation_bytes, known: Mutex::new(known) }
    }

    pub(crate) fn get(&self, digest: &Digest) -> Option<Arc<T>> {
        let mut known = self.known.lock();
        if let Some((message, _)) = known.young.get(digest) {
            return Some(message.clone());
        }
        let (message, bytes) = known.old.remove(digest)?;
        known.add(*digest, message.clone(), bytes, self.max_generation_bytes);
        Some(message)
    }

    /// Adds a message of verified content.
    pub(crate) fn add(&self, digest: Digest, message: T, bytes: usize) -> Arc<T> {
        let message = Arc::new(message);
        let mut known = self.known.lock();
        known.add(digest, message.clone(), bytes, self.max_generation_bytes);
        message
    }
}

impl<T> Generations<T> {
    fn add(&mut self, digest: Digest, message: Arc<T>, bytes: usize, max_bytes: usize) {
        if self.young_bytes + bytes > max_bytes {
            self.old = std::mem::take(&mut self.young);
            self.young_bytes = 0;
        }
        self.young_bytes += bytes;
        self.young.insert(digest, (message, bytes));
    }
}

#[cfg(test)]
mod tests {
    use blobs::DigestFunction::Sha256;

    use super::*;

    #[test]
    fn what_is_used_stays_and_what_is_not_is_forgotten() {
        let cache = MessageCache::new(10);
        let digest = |n: u32| Digest::of(Sha256, &n.to_le_bytes());
        for n in 0..100 {
            assert_eq!(*cache.add(digest(n), n, 4), n);
            assert_eq!(cache.get(&digest(0)).as_deref(), Some(&0), "used after {n}");
        }
        assert!(cache.get(&digest(99)).is_some() && cache.get(&digest(1)).is_none());
    }
}
