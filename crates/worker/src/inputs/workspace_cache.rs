//! The cache of directories of earlier attempts, with their inputs laid out, for attempts with similar inputs.
//!
//! The content of a cached directory is not trusted: the next attempt lays its own tree out over it, and only right
//! entries stay. So the choice of a directory affects only speed. A directory serves one attempt at a time, and several
//! directories may have the same tree. Dropping a directory removes it.

use std::sync::Arc;

use parking_lot::Mutex;

use super::tree::Tree;
use crate::cache::{Cache, Key};
use crate::work_dir::WorkDir;

/// Most cached directories; more than most workers run at a time.
const MAX_WORKSPACES: usize = 32;
/// Most files, directories and links in all of them, which bounds the memory of their trees to about 10 MB.
const MAX_WORKSPACE_ENTRIES: u64 = 200_000;

#[derive(Debug, Default)]
pub(super) struct WorkspaceCache(Mutex<Pool>);

#[derive(Debug, Default)]
struct Pool {
    /// The most recently used last.
    dirs: Vec<(WorkDir, Arc<Tree>)>,
    /// The eviction count of the cache at the last check for directories with evicted contents.
    evictions: u64,
}

impl WorkspaceCache {
    /// Adds a directory that contains only its inputs, unless it has none.
    pub(super) fn keep(&self, dir: WorkDir, tree: Arc<Tree>) {
        if tree.entries() == 0 {
            return;
        }
        let mut pool = self.0.lock();
        pool.dirs.push((dir, tree));
        let mut entries: u64 = pool.dirs.iter().map(|(_, tree)| tree.entries()).sum();
        let mut count = pool.dirs.len();
        let is_too_much = |(_, tree): &(WorkDir, Arc<Tree>)| {
            let is_too_much = count > MAX_WORKSPACES || entries > MAX_WORKSPACE_ENTRIES;
            count -= 1;
            entries -= tree.entries();
            is_too_much
        };
        let kept_from = pool.dirs.iter().map(is_too_much).take_while(|is_too_much| *is_too_much).count();
        let gone: Vec<_> = pool.dirs.drain(..kept_from).collect();
        drop(pool);
        drop(gone);
    }

    /// The directory that has most in common with a tree, if any has enough. Blocking.
    pub(super) fn take(&self, tree: &Tree, cache: &Cache) -> Option<WorkDir> {
        let mut pool = self.0.lock();
        let gone = pool.without_evicted(cache);
        let worth = pool.dirs.iter().map(|(_, kept)| worth(kept, tree));
        let (best, _) = worth
            .enumerate()
            .filter_map(|(n, worth)| Some((n, worth?)))
            .max_by_key(|(_, worth)| *worth)
            .unzip();
        let taken = best.map(|best| pool.dirs.remove(best));
        drop(pool);
        drop(gone);
        taken?.0.renew()
    }

    pub(super) fn remove_all(&self) {
        let dirs = std::mem::take(&mut self.0.lock().dirs);
        dirs.into_iter().for_each(|(dir, _)| dir.remove());
    }
}

impl Pool {
    /// Takes out the directories with evicted contents: their disk space is free only when these are removed too.
    fn without_evicted(&mut self, cache: &Cache) -> Vec<(WorkDir, Arc<Tree>)> {
        let evictions = cache.evictions();
        if self.evictions == evictions {
            return Vec::new();
        }
        self.evictions = evictions;
        let (held, gone) =
            std::mem::take(&mut self.dirs).into_iter().partition(|(_, tree)| cache.holds_all(tree.files()));
        self.dirs = held;
        gone
    }
}

/// How many contents of a cached tree are wanted, if it is more than half: a wrong entry costs as much as a right one
/// saves.
fn worth(kept: &Tree, wanted: &Tree) -> Option<usize> {
    if kept.root_digest() == wanted.root_digest() {
        return Some(usize::MAX);
    }
    let shared = shared(kept.files(), wanted.files());
    (shared * 2 > kept.files().len()).then_some(shared)
}

fn shared(a: &[Key], b: &[Key]) -> usize {
    let mut b = b.iter().peekable();
    let is_in_b = |key: &&Key| {
        while b.next_if(|other| other < key).is_some() {}
        b.next_if_eq(key).is_some()
    };
    a.iter().filter(is_in_b).count()
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use blobs::{Digest, DigestFunction::Sha256};

    use execution::{Directory, FileNode};

    use super::super::tree::TreeBuilder;
    use super::*;
    use crate::work_dir::WorkDirs;

    struct Setting {
        _dir: tempfile::TempDir,
        dirs: Arc<WorkDirs>,
        cache: Cache,
        workspaces: WorkspaceCache,
    }

    impl Setting {
        fn new() -> Setting {
            let dir = tempfile::tempdir().unwrap();
            let dirs = WorkDirs::lock(&dir.path().join("work"), "w").unwrap().clear().unwrap();
            let cache = Cache::open(&dir.path().join("cache"), 100).unwrap();
            Setting { _dir: dir, dirs, cache, workspaces: WorkspaceCache::default() }
        }

        /// Keeps a directory with a tree, and says where it is.
        fn keep(&self, tree: &Arc<Tree>) -> PathBuf {
            let dir = self.dirs.make().unwrap();
            let path = dir.path().to_owned();
            std::fs::write(dir.root().join("laid out"), "").unwrap();
            self.workspaces.keep(dir, tree.clone());
            path
        }
    }

    /// One that is cleared may serve as a new one.
    fn is_kept(path: &Path) -> bool {
        path.join("root/laid out").exists()
    }

    fn key(content: &str) -> Key {
        Key { digest: Digest::of(Sha256, content.as_bytes()), is_executable: false }
    }

    /// A directory of files, each named by its content.
    fn tree(contents: &[&str]) -> Arc<Tree> {
        let file = |content: &&str| FileNode {
            name: (*content).to_owned(),
            digest: key(content).digest,
            is_executable: false,
            properties: None,
        };
        let node = Directory { files: contents.iter().map(file).collect(), ..Directory::default() };
        let root = Digest::of(Sha256, contents.concat().as_bytes());
        let mut tree = TreeBuilder::new(root, false);
        assert_eq!(tree.next_level().unwrap(), Some(vec![root]));
        tree.add(root, Arc::new(node)).unwrap();
        Arc::new(tree.finish().unwrap())
    }

    #[test]
    fn the_directory_with_most_in_common_is_taken_and_none_with_too_little() {
        let at = Setting::new();
        let [abc, abd] = [tree(&["a", "b", "c"]), tree(&["a", "b", "d"])];
        at.keep(&abc);
        let other = at.keep(&abd);
        assert!(at.workspaces.take(&tree(&["a", "x", "y"]), &at.cache).is_none(), "a third of it");
        let taken = at.workspaces.take(&abc, &at.cache).unwrap();
        assert!(is_kept(&other) && taken.path() != other);
        assert!(at.workspaces.take(&abc, &at.cache).is_some(), "two thirds of the other");
        assert!(at.workspaces.take(&abc, &at.cache).is_none(), "each is used by one attempt at a time");
        assert!(!is_kept(&other), "no attempt has the path of an earlier one");
    }

    #[test]
    fn the_least_recently_used_go_when_there_are_too_many() {
        let at = Setting::new();
        let tree = tree(&["a"]);
        let paths: Vec<_> = (0..MAX_WORKSPACES + 2).map(|_| at.keep(&tree)).collect();
        assert_eq!(paths.iter().filter(|path| is_kept(path)).count(), MAX_WORKSPACES);
        assert!(!is_kept(&paths[1]) && is_kept(&paths[2]));
        let names: Vec<String> = (0..MAX_WORKSPACE_ENTRIES / 2).map(|n| n.to_string()).collect();
        let large = self::tree(&names.iter().map(String::as_str).collect::<Vec<_>>());
        at.keep(&large);
        assert!(is_kept(&paths[33]) && !is_kept(&paths[2]), "one for the number of them");
        let [second, third] = [at.keep(&large), at.keep(&large)];
        assert!(!is_kept(&paths[33]) && is_kept(&second) && is_kept(&third));
        at.workspaces.remove_all();
        assert!(!is_kept(&second) && !is_kept(&third));
    }

    #[test]
    fn a_directory_does_not_hold_what_had_to_leave_the_cache() {
        let at = Setting::new();
        let (first, second) = ("1".repeat(60), "2".repeat(60));
        let [first_tree, second_tree] = [tree(&[&first]), tree(&[&second])];
        at.cache.add_bytes(&key(&first), first.as_bytes()).unwrap();
        let path = at.keep(&first_tree);
        at.cache.add_bytes(&key(&second), second.as_bytes()).unwrap();
        let other = at.keep(&second_tree);
        assert!(at.workspaces.take(&tree(&["x"]), &at.cache).is_none());
        assert!(!is_kept(&path) && is_kept(&other));
    }

    #[test]
    fn a_directory_that_was_changed_around_its_root_is_not_used() {
        let at = Setting::new();
        let tree = tree(&["a"]);
        let path = at.keep(&tree);
        std::fs::write(path.join("beside"), "").unwrap();
        assert!(at.workspaces.take(&tree, &at.cache).is_none());
        assert!(!is_kept(&path));
    }
}
