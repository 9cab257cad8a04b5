//! Directories that were read before, by digest: most of an input tree is that of the action before.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use blobs::Digest;

use super::directory::Directory;
use crate::Failure;

/// Most bytes of directories, as they came over the network, in each of two generations.
const MAX_GENERATION_BYTES: usize = 32 * 1024 * 1024;

pub struct Directories(Mutex<Generations>);

/// When the young are too many they become the old, and the old are forgotten: what is in use stays, because using
/// makes young again.
#[derive(Default)]
struct Generations {
    young: HashMap<Digest, Known>,
    young_bytes: usize,
    old: HashMap<Digest, Known>,
}

type Known = (Arc<Directory>, usize);

impl Directories {
    pub fn new() -> Directories {
        Directories(Mutex::default())
    }

    pub fn get(&self, digest: &Digest) -> Option<Arc<Directory>> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((directory, _)) = known.young.get(digest) {
            return Some(directory.clone());
        }
        let (directory, bytes) = known.old.remove(digest)?;
        known.add(*digest, directory.clone(), bytes);
        Some(directory)
    }

    /// Reads a directory from content that is what its digest says, checks it, and remembers it.
    pub fn add(&self, digest: Digest, content: &[u8]) -> Result<Arc<Directory>, Failure> {
        let directory = Arc::new(Directory::read(digest.function, content)?);
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.add(digest, directory.clone(), content.len());
        Ok(directory)
    }
}

impl Generations {
    fn add(&mut self, digest: Digest, directory: Arc<Directory>, bytes: usize) {
        if self.young_bytes + bytes > MAX_GENERATION_BYTES {
            self.old = std::mem::take(&mut self.young);
            self.young_bytes = 0;
        }
        self.young_bytes += bytes;
        self.young.insert(digest, (directory, bytes));
    }
}
