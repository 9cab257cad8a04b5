//! The directories of attempts. Each is cleared after its attempt, or at the next start if the process dies.
//!
//! A worker id owns and locks one directory below the root. Nothing outside that directory is ever removed.

mod cleanup;
mod recycle;
mod trash;

pub(crate) use recycle::spoil;
pub(crate) use trash::Trash;

use std::fs::{self, DirBuilder, File};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use files::LockError;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::time::timeout;
use tokio_util::task::TaskTracker;

use crate::inputs::joined;
use crate::{Error, Failure};

/// Most clean directories for later attempts; more than most workers run at a time.
const MAX_CLEAN: usize = 64;
/// Longest wait for disk space. A task may find enough space even if the clearing takes longer.
const MAX_CLEARING_WAIT: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(crate) struct WorkDirs {
    own: PathBuf,
    next: AtomicU64,
    /// Work in directories, which continues if its future is dropped.
    working: TaskTracker,
    /// The part of it that clears directories.
    clearing: TaskTracker,
    /// Directories that are like new, for later attempts.
    clean: Mutex<Vec<PathBuf>>,
    _lock: File,
}

impl WorkDirs {
    /// Locks the worker's directory below the root, unless a living process has it.
    pub(crate) fn lock(root: &Path, worker_id: &str) -> Result<LockedDir, Error> {
        let io = |error| Error::io(format!("the work directory {}", root.display()), error);
        fs::create_dir_all(root).map_err(io)?;
        let root = root.canonicalize().map_err(io)?;
        let name = file_name(worker_id);
        let lock_path = root.join(format!("{name}.lock"));
        let lock = files::lock(&lock_path).map_err(|error| match error {
            LockError::InUse => Error::InUse { worker_id: worker_id.to_owned(), lock: lock_path },
            LockError::Io(error) => io(error),
        })?;
        Ok(LockedDir { own: root.join(name), lock })
    }

    /// A directory for one attempt, with nothing in it but its empty root.
    pub(crate) fn make(self: &Arc<WorkDirs>) -> std::io::Result<WorkDir> {
        let path = self.new_path();
        let clean = self.clean.lock().pop();
        match clean {
            Some(clean) => fs::rename(clean, &path)?,
            None => recycle::make(&path)?,
        }
        Ok(WorkDir { path, dirs: self.clone() })
    }

    /// No two attempts have the same path, so that leftovers of one cannot reach another.
    fn new_path(&self) -> PathBuf {
        self.own.join(self.next.fetch_add(1, Ordering::Relaxed).to_string())
    }

    fn clear_later(self: &Arc<WorkDirs>, clear: impl FnOnce(&WorkDirs) + Send + 'static) {
        let (dirs, token) = (self.clone(), self.clearing.token());
        let work = move || {
            clear(&dirs);
            drop(token);
        };
        match Handle::try_current() {
            Ok(_) => drop(self.working.spawn_blocking(work)),
            Err(_) => work(),
        }
    }

    /// Waits until no directory is being cleared, for a bounded time. Blocking.
    pub(crate) fn wait_until_cleared(&self) {
        if let Ok(runtime) = Handle::try_current() {
            let _ = runtime.block_on(async { timeout(MAX_CLEARING_WAIT, self.clearing.wait()).await });
        }
    }

    /// Runs blocking work in these directories. It runs to its end even if this future is dropped.
    pub(crate) async fn work<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, Failure> {
        joined(self.working.spawn_blocking(work)).await
    }

    /// Waits for the end of all work in the directories.
    pub(crate) async fn pause(&self) {
        self.working.close();
        self.working.wait().await;
    }

    /// Waits for the end of all work, and removes the clean directories.
    pub(crate) async fn settle(&self) {
        self.pause().await;
        let clean = std::mem::take(&mut *self.clean.lock());
        clean.iter().for_each(|path| remove_or_log(path));
    }

    /// Keeps a directory that can be used again, and removes any other.
    fn recycle(&self, path: PathBuf) {
        if recycle::is_as_new(&path) {
            let mut clean = self.clean.lock();
            if clean.len() < MAX_CLEAN {
                return clean.push(path);
            }
        }
        remove_or_log(&path);
    }
}

/// A worker's directory, locked, with the leftovers of a dead process.
#[derive(Debug)]
pub(crate) struct LockedDir {
    own: PathBuf,
    lock: File,
}

impl LockedDir {
    /// Kills the processes and removes the files that are left.
    pub(crate) fn clear(mut self) -> Result<Arc<WorkDirs>, Error> {
        let own = self.own;
        let io = |error| Error::io(format!("the work directory {}", own.display()), error);
        cleanup::kill_processes(&own, change_session(&mut self.lock).map_err(io)?);
        cleanup::remove(&own).map_err(io)?;
        DirBuilder::new().mode(0o700).create(&own).map_err(io)?;
        let clearing = TaskTracker::new();
        // Only a closed tracker can be waited for; it still tracks new tasks.
        clearing.close();
        Ok(Arc::new(WorkDirs {
            own,
            next: AtomicU64::new(1),
            working: TaskTracker::new(),
            clearing,
            clean: Mutex::default(),
            _lock: self.lock,
        }))
    }
}

/// The directory of one attempt, cleared when it is dropped.
#[derive(Debug)]
pub(crate) struct WorkDir {
    path: PathBuf,
    dirs: Arc<WorkDirs>,
}

impl WorkDir {
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The attempt's input root: a directory in this one.
    pub(crate) fn root(&self) -> PathBuf {
        recycle::root(&self.path)
    }

    /// Whether the directory is like new, apart from the content of its root. Blocking.
    pub(crate) fn is_renewable(&self) -> bool {
        recycle::is_as_new_around_its_root(&self.path).unwrap_or(false)
    }

    /// Moves the directory to a new path, with the content of its root. `None`, and it is cleared, if it is not renewable.
    /// Blocking.
    pub(crate) fn renew(mut self) -> Option<WorkDir> {
        let new_path = self.dirs.new_path();
        if !self.is_renewable() || fs::rename(&self.path, &new_path).is_err() {
            return None;
        }
        self.path = new_path;
        Some(self)
    }

    pub(crate) fn remove(mut self) {
        remove_or_log(&std::mem::take(&mut self.path));
    }
}

impl Drop for WorkDir {
    fn drop(&mut self) {
        let path = std::mem::take(&mut self.path);
        if !path.as_os_str().is_empty() {
            self.dirs.clear_later(move |dirs| dirs.recycle(path));
        }
    }
}

fn remove_or_log(path: &Path) {
    if let Err(error) = cleanup::remove(path) {
        tracing::error!(path = %path.display(), %error, "a work directory could not be removed");
    }
}

/// Writes this process's session to the lock file, so that the next process can find the processes started here. Returns
/// the session of the previous process.
fn change_session(lock: &mut File) -> std::io::Result<Option<i32>> {
    let mut noted = String::new();
    lock.read_to_string(&mut noted)?;
    lock.set_len(0)?;
    lock.rewind()?;
    if let Some(session) = cleanup::own_session() {
        writeln!(lock, "{session}")?;
    }
    Ok(noted.trim().parse().ok())
}

/// A name, unique to this worker, for what it creates elsewhere on its machine.
pub(crate) fn key(worker_id: &str, work_dir: &Path) -> String {
    let whole = [worker_id.as_bytes(), b"\0", work_dir.as_os_str().as_encoded_bytes()].concat();
    blobs::Digest::of(blobs::DigestFunction::Blake3, &whole).hash.to_string()[..16].to_owned()
}

/// A readable file name, unique to the worker id.
fn file_name(worker_id: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    let shown: String = worker_id.bytes().take(64).map(|b| if plain(b) { b as char } else { '_' }).collect();
    let digest = blobs::Digest::of(blobs::DigestFunction::Blake3, worker_id.as_bytes());
    format!("{shown}-{}", &digest.hash.to_string()[..16])
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn open(root: &Path, worker_id: &str) -> Result<Arc<WorkDirs>, Error> {
        WorkDirs::lock(root, worker_id)?.clear()
    }

    #[test]
    fn w12_leftovers_of_this_worker_are_removed_at_start_and_those_of_others_are_not() {
        let root = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("kept"), "").unwrap();
        let other = open(root.path(), "other").unwrap();
        let others = other.make().unwrap();
        let left = {
            let dirs = open(root.path(), "w").unwrap();
            assert!(matches!(open(root.path(), "w"), Err(Error::InUse { .. })));
            // Made by hand, so that nothing removes it: as after SIGKILL.
            dirs.own.join("7")
        };
        fs::create_dir_all(left.join("locked")).unwrap();
        fs::write(left.join("locked/file"), "").unwrap();
        fs::set_permissions(left.join("locked"), fs::Permissions::from_mode(0o000)).unwrap();
        symlink(outside.path(), left.join("link")).unwrap();
        let mut process = std::process::Command::new("sleep").arg("600").current_dir(&left).spawn().unwrap();
        open(root.path(), "w").unwrap();
        assert!(!process.wait().unwrap().success(), "the process of the dead worker is killed");
        assert!(!left.exists() && others.path().exists() && outside.path().join("kept").exists());
    }

    #[tokio::test]
    async fn what_an_attempt_left_is_gone_when_its_directory_is_dropped() {
        let root = tempfile::tempdir().unwrap();
        let dirs = open(root.path(), "a/../b").unwrap();
        for made in ["root/a/b/c", "elsewhere"] {
            let dir = dirs.make().unwrap();
            let path = dir.path().to_owned();
            fs::create_dir_all(path.join(made)).unwrap();
            tokio::task::spawn_blocking(|| drop(dir)).await.unwrap();
            dirs.settle().await;
            assert!(!path.exists(), "{made}");
        }
        assert_eq!(root.path().read_dir().unwrap().count(), 2, "the lock and the worker's own directory");
    }

    #[tokio::test]
    async fn w16_whoever_needs_the_room_waits_for_what_was_let_go() {
        let root = tempfile::tempdir().unwrap();
        let dirs = open(root.path(), "w").unwrap();
        let dir = dirs.make().unwrap();
        let path = dir.path().to_owned();
        for n in 0..2_000 {
            fs::write(dir.root().join(n.to_string()), "").unwrap();
        }
        // Enough to be seen if nobody waited for it, and beside the root, so that the whole directory goes.
        fs::write(path.join("beside"), "").unwrap();
        drop(dir);
        tokio::task::spawn_blocking(move || dirs.wait_until_cleared()).await.unwrap();
        assert!(!path.exists());
    }

    #[test]
    fn a_directory_is_used_again_only_if_it_is_as_new() {
        let root = tempfile::tempdir().unwrap();
        let dirs = open(root.path(), "w").unwrap();
        let used = |change: &dyn Fn(&WorkDir)| {
            let dir = dirs.make().unwrap();
            let mut entries = dir.path().read_dir().unwrap().map(|entry| entry.unwrap().path());
            assert_eq!((entries.next(), entries.next()), (Some(dir.root()), None), "the root alone");
            assert_eq!(dir.root().read_dir().unwrap().count(), 0);
            change(&dir);
            drop(dir);
            !dirs.clean.lock().is_empty()
        };
        assert!(used(&|_| {}));
        assert!(used(&|dir| fs::create_dir_all(dir.root().join("a/b")).unwrap()));
        let mode = |mode| fs::Permissions::from_mode(mode);
        assert!(!used(&|dir| fs::set_permissions(dir.root(), mode(0o777)).unwrap()));
        assert!(!used(&|dir| fs::set_permissions(dir.path(), mode(0o711)).unwrap()));
        assert!(!used(&|dir| fs::write(dir.path().join("beside"), "").unwrap()));
        assert!(!used(&|dir| {
            fs::remove_dir(dir.root()).unwrap();
            symlink("/", dir.root()).unwrap();
        }));
    }

    #[test]
    fn two_worker_ids_never_share_a_directory() {
        assert_ne!(file_name("a/b"), file_name("a_b"));
    }
}
