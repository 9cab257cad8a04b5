//! Fetches contents into the cache: small contents in batches, large ones as streams, several at a time.

use std::io;
use std::sync::Arc;

use blobs::Digest;
use bytes::Bytes;
use execution::limits::MAX_MESSAGE_BYTES;
use reapi_client::{MAX_SMALL_BYTES, Transfer, transfers};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::blocking;
use crate::cache::{Cache, Key, is_wrong_content};
use crate::{Cas, Failure};

/// Most calls to the content store at a time, of all actions together.
const MAX_CALLS: usize = 8;

pub(crate) struct Fetch {
    cas: Arc<dyn Cas>,
    cache: Arc<Cache>,
    calls: Arc<Semaphore>,
}

impl Fetch {
    pub(super) fn new(cas: Arc<dyn Cas>, cache: Arc<Cache>) -> Fetch {
        Fetch { cas, cache, calls: Arc::new(Semaphore::new(MAX_CALLS)) }
    }

    /// Whole blobs that are messages of the protocol, verified; `None` for a missing blob.
    pub(crate) async fn whole(
        &self,
        instance: &str,
        digests: &[Digest],
    ) -> Result<Vec<Option<Bytes>>, Failure> {
        let small: Vec<Digest> =
            digests.iter().filter(|digest| digest.size <= MAX_SMALL_BYTES).copied().collect();
        let small = if small.is_empty() { Vec::new() } else { self.cas.read_many(instance, &small).await? };
        let mut small = small.into_iter();
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
                return Err(wrong_content(digest));
            }
            contents.push(content);
        }
        Ok(contents)
    }

    async fn streamed(&self, instance: &str, digest: &Digest) -> Result<Option<Bytes>, Failure> {
        let (file, path) = self.cache.temporary().map_err(cache_failed)?;
        if !self.cas.read_to_file(instance, digest, file).await? {
            return Ok(None);
        }
        blocking(move || Ok(Some(std::fs::read(&path).map_err(cache_failed)?.into()))).await
    }

    /// Fetches the contents that the cache lacks. Returns the digests that the content store lacks too.
    pub(super) async fn contents(&self, instance: &str, keys: &[Key]) -> Result<Vec<Digest>, Failure> {
        // The index is in memory.
        if self.cache.has_all(keys) {
            return Ok(Vec::new());
        }
        let (cache, wanted) = (self.cache.clone(), keys.to_vec());
        let lacking = blocking(move || cache.missing(&wanted).map_err(cache_failed)).await?;
        let mut calls = JoinSet::new();
        for call in transfers(lacking, |key| key.digest.size) {
            let (cas, cache, permits) = (self.cas.clone(), self.cache.clone(), self.calls.clone());
            let instance = instance.to_owned();
            calls.spawn(async move {
                let _permit = permits.acquire_owned().await;
                match call {
                    Transfer::Stream(key) => stream(&*cas, cache, &instance, key).await,
                    Transfer::Batch(keys) => batch(&*cas, cache, &instance, keys).await,
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
                        cache.add_bytes(&key, content).map_err(|error| failed(&digest, error))?
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
    let (file, path) = cache.temporary().map_err(cache_failed)?;
    if !cas.read_to_file(instance, &key.digest, file).await? {
        return Ok(vec![key.digest]);
    }
    blocking(move || cache.add_file(&key, path).map_err(|error| failed(&key.digest, error))).await?;
    Ok(Vec::new())
}

fn failed(digest: &Digest, error: io::Error) -> Failure {
    if is_wrong_content(&error) { wrong_content(digest) } else { cache_failed(error) }
}

fn wrong_content(digest: &Digest) -> Failure {
    Failure::broken(format!("the content store gave wrong content for {digest}"))
}

fn cache_failed(error: io::Error) -> Failure {
    Failure::io("the cache", error)
}
