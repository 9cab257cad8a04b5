//! Reads from the state of a hot standby, which may be behind the owner. A standby and its readers share the state.

use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use authority::{Position, State};
use ledger::Recovery;
use tokio::sync::watch;

use crate::request::{Read, Reply, TaskDetail};

/// Cheap to clone.
#[derive(Clone)]
pub struct Replica(Arc<Shared>);

struct Shared {
    /// None once the standby has taken over.
    recovery: RwLock<Option<Recovery>>,
    /// The newest position that was applied.
    applied: watch::Sender<Position>,
}

impl Replica {
    pub(crate) fn new(recovery: Recovery) -> Replica {
        let applied = watch::Sender::new(applied(&recovery));
        Replica(Arc::new(Shared { recovery: RwLock::new(Some(recovery)), applied }))
    }

    /// Everything up to this position is part of what is read.
    pub fn applied(&self) -> Position {
        *self.0.applied.borrow()
    }

    /// Resolves once the standby has this position. Pending forever when it has ended.
    pub(crate) async fn reaches(&self, position: Position) {
        if self.0.applied.subscribe().wait_for(|applied| *applied >= position).await.is_err() {
            std::future::pending().await
        }
    }

    /// Answers a read of records. Nothing when the standby has ended, or when only the owner knows the answer.
    pub(crate) fn read(&self, read: &Read) -> Option<Reply> {
        read_state(self.recovery().as_ref()?.state(), read)
    }

    pub(crate) fn recovery(&self) -> RwLockReadGuard<'_, Option<Recovery>> {
        self.0.recovery.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn recovery_mut(&self) -> RwLockWriteGuard<'_, Option<Recovery>> {
        self.0.recovery.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells those who wait for a position.
    pub(crate) fn publish(&self) {
        if let Some(recovery) = &*self.recovery() {
            self.0.applied.send_replace(applied(recovery));
        }
    }
}

fn applied(recovery: &Recovery) -> Position {
    Position(recovery.next().0.saturating_sub(1))
}

/// Answers the reads that rest on records alone.
pub(crate) fn read_state(state: &State, read: &Read) -> Option<Reply> {
    Some(match read {
        Read::Task { scope, task } => {
            let detail = |view| Box::new(TaskDetail { view, progress: None });
            Reply::Task(state.view_in(scope, *task).map(detail))
        }
        Read::List { scope, queue, state: wanted, after, limit } => {
            Reply::List(state.list(scope, queue.as_ref(), *wanted, after.clone(), *limit))
        }
        Read::Queue(key) => Reply::Queue(state.queue_view(key).map(Box::new)),
        Read::Queues(scope) => Reply::Queues(state.queue_views(scope)),
        _ => return None,
    })
}
