//! Fetches input trees and lays them out.
//!
//! A tree is checked as a whole before any part of it is created. Contents come from the local cache or else from the
//! content store, in batches and in parallel. All missing blobs are found before they are reported (R31).

mod compare;
mod fetch;
mod layout;
pub(crate) mod message_cache;
mod survey;
pub(crate) mod tree;
mod workspace_cache;

use std::path::Path;
use std::sync::Arc;

use blobs::Digest;
use bytes::Bytes;
use execution::{Directory, FileNode};
use parking_lot::Mutex;
use reapi_client::batches;
use tokio::task::JoinHandle;

use crate::cache::{Cache, Generation, Key};
use crate::work_dir::{Trash, WorkDir};
use crate::{Cas, Failure};
use fetch::Fetch;
use message_cache::MessageCache;
use tree::{Tree, TreeBuilder};
use wire::grpc::ErrorCategory;
use workspace_cache::WorkspaceCache;

type DirectoryCache = MessageCache<Directory>;

/// The size of cached directories, in each of two generations.
const MAX_DIRECTORY_BYTES: usize = 32 * 1024 * 1024;
/// Directories that are fetched and decoded together.
const MAX_LEVEL_BYTES: u64 = 2 * 1024 * 1024;
const MAX_LEVEL_DIRECTORIES: usize = 4_000;

pub(crate) struct Inputs {
    cache: Arc<Cache>,
    directories: DirectoryCache,
    pub(crate) fetch: Fetch,
    workspaces: Arc<WorkspaceCache>,
    allow_absolute_symlinks: bool,
}

/// An input tree whose contents were in the cache when it was fetched.
#[derive(Clone, Debug)]
pub(crate) struct Fetched {
    tree: Arc<Tree>,
    cache: Arc<Cache>,
    workspaces: Arc<WorkspaceCache>,
    /// The generation of the cache when the last layout began.
    laid_out: Arc<Mutex<Generation>>,
}

impl Fetched {
    /// The directory of an earlier attempt with a similar tree. Blocking.
    pub(crate) fn reusable_workspace(&self) -> Option<WorkDir> {
        self.workspaces.take(&self.tree, &self.cache)
    }

    /// Lays the tree out in a directory, whatever it contains. Returns the contents that were evicted; then the layout is
    /// incomplete. Blocking.
    pub(crate) fn lay_out(&self, into: &Path, trash: &mut Trash) -> Result<Vec<Key>, Failure> {
        *self.laid_out.lock() = self.cache.now();
        layout::lay_out(&self.tree, &self.cache, into, trash)
    }

    /// The number of different contents of the tree's files.
    pub(crate) fn file_count(&self) -> usize {
        self.tree.files().len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.tree.entries() == 0
    }

    /// Checks that the inputs are unchanged since the layout. Blocking.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        self.check_only(self.tree.files())
    }

    /// As [`Fetched::check`], at the end of the attempt: its directory is kept if it can be used again. Blocking.
    pub(crate) fn check_and_keep(&self, dir: WorkDir, trash: &mut Trash) -> Result<(), Failure> {
        if !dir.is_renewable() {
            return self.check();
        }
        match survey::survey(&self.tree, &self.cache, &dir.root(), trash) {
            Ok(unproven) => {
                self.check_only(&unproven)?;
                self.workspaces.keep(dir, self.tree.clone());
                Ok(())
            }
            Err(_) => self.check(),
        }
    }

    fn check_only(&self, keys: &[Key]) -> Result<(), Failure> {
        let laid_out = *self.laid_out.lock();
        let changed = self.cache.changed(keys, laid_out);
        let Some(key) = changed.first() else { return Ok(()) };
        let name = self.tree.name_of(key).unwrap_or_default();
        let message = format!(
            "{} inputs were changed while the command ran, {name:?} among them: inputs are read-only",
            changed.len()
        );
        Err(Failure::new(Failure::INPUTS_CHANGED, ErrorCategory::Infrastructure, message).retryable())
    }
}

impl Inputs {
    pub(crate) fn new(cache: Arc<Cache>, cas: Arc<dyn Cas>, allow_absolute_symlinks: bool) -> Inputs {
        Inputs {
            fetch: Fetch::new(cas, cache.clone()),
            directories: DirectoryCache::new(MAX_DIRECTORY_BYTES),
            cache,
            workspaces: Arc::default(),
            allow_absolute_symlinks,
        }
    }

    pub(crate) fn evict(&self, bytes: u64) {
        // The space of a content is free only when no directory links it.
        self.workspaces.remove_all();
        self.cache.evict(bytes);
    }

    pub(crate) fn clear(&self) {
        self.workspaces.remove_all();
    }

    pub(crate) fn knows(&self, directory: &Digest) -> bool {
        self.directories.get(directory).is_some()
    }

    /// Fetches the tree below a root and its contents. `content` is the root's own content, if it was just fetched. Adds the
    /// missing blobs to `missing`.
    pub(crate) async fn fetch(
        &self,
        instance: &str,
        root: Digest,
        content: Option<Bytes>,
        missing: &mut Vec<Digest>,
    ) -> Result<Fetched, Failure> {
        if let Some(content) = content {
            self.decode(root, &content)?;
        }
        let tree = self.tree(instance, root, missing).await?;
        self.check_size(&tree)?;
        missing.extend(self.fetch.contents(instance, tree.files()).await?);
        let laid_out = Arc::new(Mutex::new(self.cache.now()));
        Ok(Fetched {
            tree: Arc::new(tree),
            cache: self.cache.clone(),
            workspaces: self.workspaces.clone(),
            laid_out,
        })
    }

    /// A tree that does not fit into the cache would lose contents before all are fetched, at every attempt.
    fn check_size(&self, tree: &Tree) -> Result<(), Failure> {
        let bytes: u64 = tree.files().iter().map(|key| key.digest.size).sum();
        let max_bytes = self.cache.max_bytes();
        if bytes <= max_bytes {
            return Ok(());
        }
        let message = format!(
            "the inputs have {bytes} bytes, and the worker's cache takes {max_bytes}: its operator may raise worker.cache_mib"
        );
        Err(Failure::new(Failure::NOT_ENOUGH_RESOURCES, ErrorCategory::Configuration, message))
    }

    /// Fetches evicted contents.
    pub(crate) async fn fetch_again(&self, instance: &str, keys: &[Key]) -> Result<(), Failure> {
        match &self.fetch.contents(instance, keys).await?[..] {
            [] => Ok(()),
            missing => Err(Failure::missing_inputs(missing)),
        }
    }

    fn decode(&self, digest: Digest, content: &[u8]) -> Result<Arc<Directory>, Failure> {
        let directory = Directory::decode(&digest, content)?;
        Ok(self.directories.add(digest, directory, content.len()))
    }

    /// Level by level, each in as few calls as possible.
    async fn tree(&self, instance: &str, root: Digest, missing: &mut Vec<Digest>) -> Result<Tree, Failure> {
        let mut tree = TreeBuilder::new(root, self.allow_absolute_symlinks);
        while let Some(level) = tree.next_level()? {
            let mut unknown = Vec::new();
            for digest in level {
                match self.directories.get(&digest) {
                    Some(directory) => tree.add(digest, directory)?,
                    None => unknown.push(digest),
                }
            }
            for batch in batches(unknown, |digest| digest.size, MAX_LEVEL_BYTES, MAX_LEVEL_DIRECTORIES) {
                let contents = self.fetch.whole(instance, &batch).await?;
                for (digest, content) in batch.into_iter().zip(contents) {
                    match content {
                        Some(content) => tree.add(digest, self.decode(digest, &content)?)?,
                        None => missing.push(digest),
                    }
                }
            }
        }
        tree.finish()
    }
}

impl From<&FileNode> for Key {
    fn from(file: &FileNode) -> Key {
        Key { digest: file.digest, is_executable: file.is_executable }
    }
}

pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    joined(tokio::task::spawn_blocking(work)).await
}

pub(crate) async fn joined<T>(work: JoinHandle<Result<T, Failure>>) -> Result<T, Failure> {
    match work.await {
        Ok(done) => done,
        Err(error) => Err(Failure::broken(format!("the worker failed at this task: {error}"))),
    }
}
