//! Fetches contents into the cache: small contents in batches, large ones as streams, several at a time.

use std::sync::Arc;

use blobs::Digest;
use bytes::Bytes;
use execution::limits::MAX_MESSAGE_BYTES;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::blocking;
use crate::cache::{Cache, Key, is_wrong_content};
use crate::cas::MAX_SMALL_BYTES;
use crate::{Cas, Failure};

/// Most calls to the content store at a time, of all actions together.
const MAX_CALLS: usize = 8;
/// Content of small blobs that one call brings.
const MAX_CALL_BYTES: u64 = 2 * 1024 * 1024;
/// Most blobs that one call asks for.
const MAX_CALL_BLOBS: usize = 4_000;

pub(super) struct Fetch {
    cas: Arc<dyn Cas>,
    cache: Arc<Cache>,
    calls: Arc<Semaphore>,
}

impl Fetch {
    pub(super) fn new(cas: Arc<dyn Cas>, cache: Arc<Cache>) -> Fetch {
        Fetch { cas, cache, calls: Arc::new(Semaphore::new(MAX_CALLS)) }
    }

    /// Whole blobs that are no files; nothing where there is none. What comes is right.
    pub(super) async fn whole(
        &self,
        instance: &str,
        digests: &[Digest],
    ) -> Result<Vec<Option<Bytes>>, Failure> {
        let small: Vec<Digest> =
            digests.iter().filter(|digest| digest.size <= MAX_SMALL_BYTES).copied().collect();
        let mut small = if small.is_empty() {
            Vec::new().into_iter()
        } else {
            self.cas.read_many(instance, &small).await?.into_iter()
        };
        let mut contents = Vec::with_capacity(digests.len());
        for digest in digests {
            let content = match digest.size {
                ..=MAX_SMALL_BYTES => small.next().flatten(),
                size if size <= MAX_MESSAGE_BYTES => self.streamed(instance, digest).await?,
                _ => {
                    return Err(Failure::invalid_action(format!(
                        "{digest} is too large for what it is used as"
                    )));
                }
            };
            if content.as_ref().is_some_and(|content| Digest::of(digest.function, content) != *digest) {
                return Err(Failure::broken(format!("the content store gave wrong content for {digest}")));
            }
            contents.push(content);
        }
        Ok(contents)
    }

    async fn streamed(&self, instance: &str, digest: &Digest) -> Result<Option<Bytes>, Failure> {
        let (file, path) = self.cache.temporary().map_err(|error| failed(digest, &error))?;
        let unfinished = Unfinished(path);
        if !self.cas.read_to_file(instance, digest, file).await? {
            return Ok(None);
        }
        let read = move || {
            let content = std::fs::read(&unfinished.0).map_err(|error| Failure::io("the cache", error))?;
            Ok(Some(Bytes::from(content)))
        };
        blocking(read).await
    }

    /// Makes contents available in the cache. Gives all that are in neither place.
    pub(super) async fn contents(&self, instance: &str, keys: &[Key]) -> Result<Vec<Digest>, Failure> {
        // To look into the index takes no disk.
        if self.cache.has_all(keys) {
            return Ok(Vec::new());
        }
        let (cache, wanted) = (self.cache.clone(), keys.to_vec());
        let lacking = move || cache.missing(&wanted).map_err(|error| Failure::io("the cache", error));
        let lacking = blocking(lacking).await?;
        let mut calls = JoinSet::new();
        let (small, large): (Vec<Key>, Vec<Key>) =
            lacking.into_iter().partition(|key| key.digest.size <= MAX_SMALL_BYTES);
        let large = large.into_iter().map(|key| vec![key]);
        for keys in large.chain(parts(small, |key| key.digest.size)) {
            let (cas, cache, permits) = (self.cas.clone(), self.cache.clone(), self.calls.clone());
            let instance = instance.to_owned();
            calls.spawn(async move {
                let _permit = permits.acquire_owned().await;
                match keys[..] {
                    [key] if key.digest.size > MAX_SMALL_BYTES => stream(&*cas, cache, &instance, key).await,
                    _ => batch(&*cas, cache, &instance, keys).await,
                }
            });
        }
        let mut missing = Vec::new();
        while let Some(done) = calls.join_next().await {
            missing.extend(done.map_err(|error| Failure::broken(error.to_string()))??);
        }
        missing.sort_unstable();
        missing.dedup();
        Ok(missing)
    }
}

async fn batch(
    cas: &dyn Cas,
    cache: Arc<Cache>,
    instance: &str,
    keys: Vec<Key>,
) -> Result<Vec<Digest>, Failure> {
    // Both variants of one content come as one blob.
    let mut digests: Vec<Digest> = keys.iter().map(|key| key.digest).collect();
    digests.dedup();
    let contents = cas.read_many(instance, &digests).await?;
    blocking(move || {
        let mut missing = Vec::new();
        let mut keys = keys.into_iter().peekable();
        for (digest, content) in digests.into_iter().zip(contents) {
            while let Some(key) = keys.next_if(|key| key.digest == digest) {
                match &content {
                    Some(content) => {
                        cache.add_bytes(&key, content).map_err(|error| failed(&digest, &error))?
                    }
                    None => missing.push(digest),
                }
            }
        }
        Ok(missing)
    })
    .await
}

async fn stream(cas: &dyn Cas, cache: Arc<Cache>, instance: &str, key: Key) -> Result<Vec<Digest>, Failure> {
    let broken = |error| failed(&key.digest, &error);
    let (file, path) = cache.temporary().map_err(broken)?;
    let unfinished = Unfinished(path.clone());
    if !cas.read_to_file(instance, &key.digest, file).await? {
        return Ok(vec![key.digest]);
    }
    blocking(move || {
        let _unfinished = unfinished;
        cache.add_file(&key, &path).map_err(|error| failed(&key.digest, &error))
    })
    .await?;
    Ok(Vec::new())
}

/// A file that is removed unless it became a content, in which case it has another name.
struct Unfinished(std::path::PathBuf);

impl Drop for Unfinished {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn failed(digest: &Digest, error: &std::io::Error) -> Failure {
    if is_wrong_content(error) {
        Failure::broken(format!("the content store gave wrong content for {digest}"))
    } else {
        Failure::broken(format!("the cache: {error}"))
    }
}

/// Splits small contents into what one call brings.
pub(super) fn parts<T>(small: Vec<T>, size: impl Fn(&T) -> u64) -> Vec<Vec<T>> {
    let mut parts: Vec<Vec<T>> = Vec::new();
    let mut bytes = 0_u64;
    for one in small {
        bytes = bytes.saturating_add(size(&one));
        match parts.last_mut() {
            Some(part) if bytes <= MAX_CALL_BYTES && part.len() < MAX_CALL_BLOBS => part.push(one),
            _ => {
                bytes = size(&one);
                parts.push(vec![one]);
            }
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_brings_no_more_than_it_may_unless_it_is_one_content() {
        let sizes = vec![1, MAX_CALL_BYTES - 1, 1, 2 * MAX_CALL_BYTES, 5, 6];
        let split = parts(sizes, |size| *size);
        assert_eq!(split, [vec![1, MAX_CALL_BYTES - 1], vec![1], vec![2 * MAX_CALL_BYTES], vec![5, 6]]);
        let many: Vec<usize> = parts(vec![0; 2 * MAX_CALL_BLOBS + 1], |_| 0).iter().map(Vec::len).collect();
        assert_eq!(many, [MAX_CALL_BLOBS, MAX_CALL_BLOBS, 1]);
    }
}
