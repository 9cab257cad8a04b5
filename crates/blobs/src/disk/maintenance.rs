//! The store's own thread: checkpoints, headroom, and uploads that were not resumed.

use std::{
    sync::{Arc, Condvar, Mutex, PoisonError, Weak},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use super::inner::Inner;

/// What was stored is listed and safe from a power loss after this time at the latest.
const CHECKPOINT_INTERVAL: Duration = Duration::from_secs(60);

/// Wakes the thread, or ends it.
#[derive(Default)]
pub struct Signal {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    is_awake: bool,
    is_over: bool,
}

impl Signal {
    pub fn wake(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if !state.is_awake {
            state.is_awake = true;
            self.changed.notify_all();
        }
    }

    pub fn end(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).is_over = true;
        self.changed.notify_all();
    }

    /// Waits to be woken, at most until `due`. False when it is over.
    fn wait(&self, due: Instant) -> bool {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let timeout = due.saturating_duration_since(Instant::now());
        let is_idle = |state: &mut State| !state.is_awake && !state.is_over;
        let (mut state, _) =
            self.changed.wait_timeout_while(state, timeout, is_idle).unwrap_or_else(PoisonError::into_inner);
        state.is_awake = false;
        !state.is_over
    }
}

/// Starts the thread. It ends when the signal says so, or the store is gone.
pub(super) fn start(inner: &Arc<Inner>) -> std::io::Result<JoinHandle<()>> {
    let (signal, inner) = (inner.signal.clone(), Arc::downgrade(inner));
    std::thread::Builder::new().name("blobs".into()).spawn(move || run(&signal, &inner))
}

fn run(signal: &Signal, inner: &Weak<Inner>) {
    let mut checkpoint_due = Instant::now() + CHECKPOINT_INTERVAL;
    let mut due = checkpoint_due;
    while signal.wait(due) {
        let Some(inner) = inner.upgrade() else { return };
        let now = Instant::now();
        let is_due = now >= checkpoint_due;
        let next_expiry = inner.maintain(now, is_due);
        if is_due {
            checkpoint_due = now + CHECKPOINT_INTERVAL;
        }
        due = next_expiry.map_or(checkpoint_due, |expiry| expiry.min(checkpoint_due));
    }
}

impl Inner {
    /// Does what is due at `now`, and says when an upload will be. Failures are logged, and what failed is
    /// tried again the next time.
    pub fn maintain(&self, now: Instant, checkpoint: bool) -> Option<Instant> {
        let next_expiry = self.uploads.expire(now, self.options.upload_idle);
        let _housekeeping = self.keep_house();
        let wants_checkpoint = {
            let writer = self.writer();
            writer.wants_checkpoint() || (checkpoint && !writer.pending.is_empty())
        };
        if wants_checkpoint && let Err(error) = self.checkpoint() {
            tracing::warn!(%error, "the content store could not be checkpointed");
        }
        if let Err(error) = self.make_headroom() {
            tracing::warn!(%error, "the content store could not make room");
        }
        next_expiry
    }
}
