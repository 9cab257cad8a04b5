//! A fake disk whose syncs stand still for as long as a test wants.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use disk::{Disk, File};
use fake_disk::FakeDisk;

/// Clones are the same disk.
#[derive(Clone, Default)]
pub(crate) struct StallingDisk {
    pub inner: FakeDisk,
    hooks: Arc<Hooks>,
}

#[derive(Default)]
struct Hooks {
    stalled: Mutex<bool>,
    changed: Condvar,
    panics: AtomicBool,
    no_reserve: AtomicBool,
    reserve_panics: AtomicBool,
}

impl StallingDisk {
    /// Syncs wait from now on, or no longer.
    pub(crate) fn stall(&self, stalled: bool) {
        *self.hooks.stalled.lock().unwrap() = stalled;
        self.hooks.changed.notify_all();
    }

    /// The next write panics.
    pub(crate) fn panic(&self) {
        self.hooks.panics.store(true, Ordering::SeqCst);
    }

    /// The thread that prepares the next reserve segment panics, once.
    pub(crate) fn panic_in_reserve(&self) {
        self.hooks.reserve_panics.store(true, Ordering::SeqCst);
    }

    /// Preparing a reserve segment takes until this is called again with false.
    pub(crate) fn hold_reserve(&self, held: bool) {
        self.hooks.no_reserve.store(held, Ordering::SeqCst);
        let _stalled = self.hooks.stalled.lock().unwrap();
        self.hooks.changed.notify_all();
    }

    fn file(&self, inner: Arc<dyn File>) -> Arc<dyn File> {
        Arc::new(StallingFile { inner, hooks: self.hooks.clone() })
    }
}

impl Disk for StallingDisk {
    fn lock(&self) -> io::Result<Box<dyn Send + Sync>> {
        self.inner.lock()
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn File>> {
        if name == "reserve.tmp" {
            assert!(!self.hooks.reserve_panics.swap(false, Ordering::SeqCst), "as the test asked");
            let stalled = self.hooks.stalled.lock().unwrap();
            let held = |_: &mut bool| self.hooks.no_reserve.load(Ordering::SeqCst);
            drop(self.hooks.changed.wait_while(stalled, held).unwrap());
        }
        Ok(self.file(self.inner.create(name)?))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn File>> {
        Ok(self.file(self.inner.open(name)?))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        self.inner.list()
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.inner.rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.inner.remove(name)
    }

    fn exists(&self, name: &str) -> io::Result<bool> {
        self.inner.exists(name)
    }

    fn sync_dir(&self) -> io::Result<()> {
        self.inner.sync_dir()
    }
}

struct StallingFile {
    inner: Arc<dyn File>,
    hooks: Arc<Hooks>,
}

impl File for StallingFile {
    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        self.inner.read_at(into, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        assert!(!self.hooks.panics.load(Ordering::SeqCst), "as the test asked");
        self.inner.write_at(bytes, offset)
    }

    fn allocate(&self, bytes: u64) -> io::Result<()> {
        self.inner.allocate(bytes)
    }

    fn sync_data(&self) -> io::Result<()> {
        let stalled = self.hooks.stalled.lock().unwrap();
        drop(self.hooks.changed.wait_while(stalled, |stalled| *stalled).unwrap());
        self.inner.sync_data()
    }

    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }
}
