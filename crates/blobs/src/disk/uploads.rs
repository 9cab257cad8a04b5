//! The open uploads by name, and their limits.
//!
//! A named upload has at most one writer at a time. A writer that resumes where the last writer stopped takes over, even
//! if the old connection is not known to be dead yet. A writer that starts from the beginning beside a live writer gets
//! a separate upload, and the content decides (A8).

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Instant,
};

use super::{
    inner::Inner,
    options::{MAX_UPLOAD_NAME_BYTES, MAX_UPLOADS},
    upload::Content,
};
use crate::{Digest, Error, Expect, Result, Tenant, UploadRequest, WriteStatus};

#[derive(Default)]
pub struct Uploads {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    named: HashMap<Name, Named>,
    /// Open uploads of each tenant, named or not.
    open: HashMap<[u8; 16], usize>,
    total: usize,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct Name {
    tenant: [u8; 16],
    name: Arc<str>,
    digest: Digest,
}

struct Named {
    cell: Arc<Cell>,
    /// When its writer left; `None` while there is one.
    left_at: Option<Instant>,
}

/// An upload, as its writers in turn and the list of uploads share it.
pub struct Cell {
    pub expect: Expect,
    tenant: [u8; 16],
    name: Option<Name>,
    /// Whose turn it is to write.
    turn: AtomicU64,
    /// How far it has come, for those who must not wait for a write to end.
    committed: AtomicU64,
    /// Whether it is worth keeping for a writer that may come back.
    is_on_disk: AtomicBool,
    content: Mutex<Content>,
}

impl Cell {
    pub fn content(&self) -> MutexGuard<'_, Content> {
        self.content.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn committed(&self) -> u64 {
        self.committed.load(Ordering::Acquire)
    }

    /// How much of it is there for a writer that comes back, whatever becomes of the one that it has.
    pub fn kept(&self) -> u64 {
        let is_kept = self.name.is_some() && self.is_on_disk.load(Ordering::Acquire);
        if is_kept { self.committed() } else { 0 }
    }

    /// Tells others how far the content has come.
    pub fn note(&self, content: &Content) {
        self.is_on_disk.store(content.is_on_disk(), Ordering::Release);
        self.committed.store(content.committed(), Ordering::Release);
    }

    pub fn turn(&self) -> u64 {
        self.turn.load(Ordering::Acquire)
    }
}

impl Uploads {
    /// An upload and the turn to write to it.
    pub fn open(
        &self,
        inner: &Arc<Inner>,
        tenant: &Tenant,
        request: &UploadRequest,
    ) -> Result<(Arc<Cell>, u64)> {
        let mut name = match (&request.name, request.expect) {
            (Some(name), Expect::Digest(digest)) => {
                if name.len() > MAX_UPLOAD_NAME_BYTES {
                    let (size, limit) = (name.len() as u64, MAX_UPLOAD_NAME_BYTES as u64);
                    return Err(Error::TooLarge { what: "an upload's name", size, limit });
                }
                Some(Name { tenant: tenant.fingerprint(), name: name.clone(), digest })
            }
            _ => None,
        };
        let mut state = self.state();
        let offset = request.offset;
        match name.as_ref().and_then(|name| state.named.get_mut(name)) {
            Some(named) if offset > 0 => {
                if named.cell.committed() != offset {
                    return Err(Error::WrongOffset { committed: named.cell.kept(), offset });
                }
                named.left_at = None;
                let cell = named.cell.clone();
                let turn = cell.turn.fetch_add(1, Ordering::AcqRel) + 1;
                return Ok((cell, turn));
            }
            None if offset > 0 => return Err(Error::WrongOffset { committed: 0, offset }),
            Some(named) if named.left_at.is_none() => name = None,
            Some(_) => {
                let old = name.as_ref().and_then(|name| state.named.remove(name));
                state.count_down(tenant.fingerprint());
                drop(old);
            }
            None => {}
        }
        state.count_up(tenant.fingerprint(), inner.options.max_uploads_per_tenant)?;
        let cell = Arc::new(Cell {
            expect: request.expect,
            tenant: tenant.fingerprint(),
            name: name.clone(),
            turn: AtomicU64::new(0),
            committed: AtomicU64::new(0),
            is_on_disk: AtomicBool::new(false),
            content: Mutex::new(Content::new(inner, tenant.fingerprint(), request.expect)),
        });
        if let Some(name) = name {
            state.named.insert(name, Named { cell: cell.clone(), left_at: None });
        }
        Ok((cell, 0))
    }

    /// The writer of this turn leaves. Its content stays only if another writer can find it and it is on disk.
    pub fn leave(&self, cell: &Arc<Cell>, turn: u64) {
        let mut state = self.state();
        if cell.turn() != turn {
            return;
        }
        match cell.name.as_ref().and_then(|name| state.named.get_mut(name)) {
            Some(named) if Arc::ptr_eq(&named.cell, cell) && cell.is_on_disk.load(Ordering::Acquire) => {
                named.left_at = Some(Instant::now());
            }
            _ => state.forget(cell),
        }
    }

    /// The upload has come to its end, good or bad.
    pub fn close(&self, cell: &Arc<Cell>) {
        self.state().forget(cell);
    }

    pub fn status(&self, tenant: &Tenant, name: &str, digest: Digest) -> WriteStatus {
        let name = Name { tenant: tenant.fingerprint(), name: name.into(), digest };
        let cell = self.state().named.get(&name).map(|named| named.cell.clone());
        WriteStatus { committed: cell.map_or(0, |cell| cell.kept()), complete: false }
    }

    /// Drops the uploads that were not resumed in time, and returns when the next one expires.
    pub fn expire(&self, now: Instant, idle: std::time::Duration) -> Option<Instant> {
        let mut state = self.state();
        let is_over = |named: &Named| named.left_at.is_some_and(|left| now.duration_since(left) >= idle);
        let over: Vec<Arc<Cell>> =
            state.named.values().filter(|named| is_over(named)).map(|named| named.cell.clone()).collect();
        over.iter().for_each(|cell| state.forget(cell));
        state.named.values().filter_map(|named| named.left_at).min().map(|left| left + idle)
    }

    /// Gives up every upload; their writers find them taken over.
    pub fn clear(&self) {
        let mut state = self.state();
        let cells: Vec<Arc<Cell>> = state.named.values().map(|named| named.cell.clone()).collect();
        cells.iter().for_each(|cell| state.forget(cell));
    }

    pub fn len(&self) -> usize {
        self.state().total
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Counts one more. At the limit, the upload of this tenant that was left longest ago is dropped.
    fn count_up(&mut self, tenant: [u8; 16], limit: usize) -> Result<()> {
        let open = self.open.get(&tenant).copied().unwrap_or(0);
        if open >= limit || self.total >= MAX_UPLOADS {
            let left =
                self.named.values().filter(|named| named.cell.tenant == tenant && named.left_at.is_some());
            let Some(oldest) = left.min_by_key(|named| named.left_at).map(|named| named.cell.clone()) else {
                return Err(Error::TooManyUploads { limit: limit.min(MAX_UPLOADS) });
            };
            self.forget(&oldest);
        }
        *self.open.entry(tenant).or_insert(0) += 1;
        self.total += 1;
        Ok(())
    }

    fn count_down(&mut self, tenant: [u8; 16]) {
        self.total -= 1;
        if let std::collections::hash_map::Entry::Occupied(mut open) = self.open.entry(tenant) {
            *open.get_mut() -= 1;
            if *open.get() == 0 {
                open.remove();
            }
        }
    }

    fn forget(&mut self, cell: &Arc<Cell>) {
        // No writer may go on with it.
        cell.turn.fetch_add(1, Ordering::AcqRel);
        let is_listed = |named: &Named| Arc::ptr_eq(&named.cell, cell);
        if let Some(name) = &cell.name
            && self.named.get(name).is_some_and(is_listed)
        {
            self.named.remove(name);
        }
        self.count_down(cell.tenant);
    }
}
