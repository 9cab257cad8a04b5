//! A recovery on two threads: one reads, verifies and decodes items, the other applies them in order to a state.
//!
//! The first items are applied on the thread of the caller: a short recovery needs no second thread.

use std::io;
use std::mem::replace;
use std::panic::resume_unwind;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::{Builder, Scope, ScopedJoinHandle};

/// Items that are applied before a second thread pays.
const ITEMS_ALONE: usize = 16_384;
/// Items that are handed over at once: enough that the hand-over costs nothing.
const CHUNK_ITEMS: usize = 1_024;
/// Chunks that wait for the second thread. More would only use memory.
const WAITING_CHUNKS: usize = 8;

pub(crate) struct Pipeline<'scope, 'env, S, T, E> {
    scope: &'scope Scope<'scope, 'env>,
    apply: fn(&mut S, T) -> Result<(), E>,
    /// The state, until the second thread has it.
    state: Option<S>,
    applied: usize,
    second: Option<Second<'scope, S, T, E>>,
}

struct Second<'scope, S, T, E> {
    chunk: Vec<T>,
    chunks: SyncSender<Vec<T>>,
    thread: ScopedJoinHandle<'scope, Result<S, E>>,
}

impl<'scope, 'env, S, T, E> Pipeline<'scope, 'env, S, T, E>
where
    S: Default + Send + 'scope,
    T: Send + 'scope,
    E: From<io::Error> + Send + 'scope,
{
    pub(crate) fn new(
        scope: &'scope Scope<'scope, 'env>,
        state: S,
        apply: fn(&mut S, T) -> Result<(), E>,
    ) -> Self {
        Pipeline { scope, apply, state: Some(state), applied: 0, second: None }
    }

    /// Takes the next item; `false` if an earlier item failed, which [`Self::finish`] reports.
    pub(crate) fn send(&mut self, item: T) -> Result<bool, E> {
        if let Some(second) = &mut self.second {
            return Ok(second.send(item));
        }
        let Some(state) = &mut self.state else { return Ok(false) };
        (self.apply)(state, item)?;
        self.applied += 1;
        if self.applied == ITEMS_ALONE {
            let (state, apply) = (self.state.take().unwrap_or_default(), self.apply);
            self.second = Some(Second::spawn(self.scope, state, apply)?);
        }
        Ok(true)
    }

    /// The state with every item applied, or the error of the first item that could not be.
    pub(crate) fn finish(self) -> Result<S, E> {
        match self.second {
            Some(second) => second.finish(),
            None => Ok(self.state.unwrap_or_default()),
        }
    }
}

impl<'scope, S: Send + 'scope, T: Send + 'scope, E: Send + 'scope> Second<'scope, S, T, E> {
    fn spawn(
        scope: &'scope Scope<'scope, '_>,
        mut state: S,
        apply: fn(&mut S, T) -> Result<(), E>,
    ) -> io::Result<Second<'scope, S, T, E>> {
        let (chunks, received) = sync_channel::<Vec<T>>(WAITING_CHUNKS);
        let thread = Builder::new().name("lessor-recovery".into()).spawn_scoped(scope, move || {
            received.into_iter().flatten().try_for_each(|item| apply(&mut state, item)).map(|()| state)
        })?;
        Ok(Second { chunk: Vec::with_capacity(CHUNK_ITEMS), chunks, thread })
    }

    fn send(&mut self, item: T) -> bool {
        self.chunk.push(item);
        self.chunk.len() < CHUNK_ITEMS || self.flush()
    }

    fn flush(&mut self) -> bool {
        self.chunks.send(replace(&mut self.chunk, Vec::with_capacity(CHUNK_ITEMS))).is_ok()
    }

    fn finish(mut self) -> Result<S, E> {
        // A thread that has ended early has its reason in its result.
        self.flush();
        drop(self.chunks);
        self.thread.join().unwrap_or_else(|panic| resume_unwind(panic))
    }
}

#[cfg(test)]
mod tests {
    use std::thread::scope;

    use super::*;

    fn add(sum: &mut u64, item: u64) -> io::Result<()> {
        *sum = sum.checked_add(item).ok_or(io::ErrorKind::InvalidData)?;
        Ok(())
    }

    /// Sends the items until the pipeline takes no more.
    fn run(items: impl Iterator<Item = u64>) -> io::Result<u64> {
        scope(|scope| {
            let mut pipeline = Pipeline::new(scope, 0, add);
            for item in items {
                if !pipeline.send(item)? {
                    break;
                }
            }
            pipeline.finish()
        })
    }

    #[test]
    fn every_item_is_applied_whatever_their_number() {
        let alone = ITEMS_ALONE as u64;
        for count in [0, 1, alone - 1, alone, alone + 1, alone + 10 * CHUNK_ITEMS as u64 + 7] {
            assert_eq!(run(1..count + 1).unwrap(), count * (count + 1) / 2);
        }
    }

    #[test]
    fn the_first_failure_is_reported_from_either_thread() {
        for bad in [5, ITEMS_ALONE as u64 + 5_000] {
            let items = (0..u64::MAX).map(|at| if at == bad { u64::MAX } else { 1 });
            assert_eq!(run(items).unwrap_err().kind(), io::ErrorKind::InvalidData);
        }
    }
}
