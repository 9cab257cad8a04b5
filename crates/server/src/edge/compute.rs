//! Runs work that keeps a core busy off the threads that serve connections, so that it delays no other request.

use std::panic::resume_unwind;
use std::sync::Arc;

use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

use crate::convert::{Code, Problem};

/// Most memory for texts that are being parsed, with what they are parsed into.
const MAX_PARSING_KIB: usize = 256 * 1_024;
/// Parsing a text takes at most so many times its bytes; a test floods every field of every request.
pub(crate) const MAX_EXPANSION: usize = 16;

/// Most pieces of work at one time; more would only take turns on the cores. Others wait, each with its request within
/// the memory for bodies.
const MAX_RUNNING: usize = 4;

/// A text of so many bytes takes about a millisecond to check and parse.
const MIN_BYTES: usize = 128 * 1_024;

/// Cheap to clone: clones share their limits.
#[derive(Clone)]
pub(crate) struct Compute {
    permits: Arc<Semaphore>,
    parsing_kib: Arc<Semaphore>,
}

impl Default for Compute {
    fn default() -> Compute {
        let [permits, parsing_kib] =
            [MAX_RUNNING, MAX_PARSING_KIB].map(|permits| Arc::new(Semaphore::new(permits)));
        Compute { permits, parsing_kib }
    }
}

impl Compute {
    /// Parses a text of so many bytes. A long text waits for memory, which is held until it is parsed.
    pub(crate) async fn parse<T: Send + 'static>(
        &self,
        bytes: usize,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Problem> {
        if bytes < MIN_BYTES {
            return Ok(work());
        }
        let kib = bytes.saturating_mul(MAX_EXPANSION).div_ceil(1_024).min(MAX_PARSING_KIB) as u32;
        let held = self.parsing_kib.clone().acquire_many_owned(kib).await.map_err(|_| stopped())?;
        self.run(move || (work(), held).0).await
    }

    /// Runs work on so many bytes: here when they are few, which takes less time than to hand it over.
    pub(crate) async fn run_on<T: Send + 'static>(
        &self,
        bytes: usize,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Problem> {
        if bytes < MIN_BYTES { Ok(work()) } else { self.run(work).await }
    }

    /// Refuses all work that would be handed over.
    #[cfg(test)]
    pub(crate) fn close(&self) {
        self.permits.close();
    }

    /// Refuses all texts that would wait for memory.
    #[cfg(test)]
    pub(crate) fn close_memory(&self) {
        self.parsing_kib.close();
    }

    /// Work that was begun goes on to its end although nobody may wait for it any more, and keeps its permit.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Problem> {
        let permit = self.permits.clone().acquire_owned().await.map_err(|_| stopped())?;
        let done = spawn_blocking(move || {
            let _permit = permit;
            work()
        });
        done.await.map_err(|error| match error.try_into_panic() {
            // As if it had happened here, where it ends this call and nothing else.
            Ok(panic) => resume_unwind(panic),
            Err(_) => stopped(),
        })
    }
}

fn stopped() -> Problem {
    Problem::new(Code::NotServing, "the server stops")
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    async fn a6_long_texts_wait_for_the_memory_to_parse_them_and_short_ones_do_not() {
        let compute = Compute::default();
        let others = compute.parsing_kib.clone().acquire_many_owned(MAX_PARSING_KIB as u32).await.unwrap();
        assert!(matches!(compute.parse(MIN_BYTES - 1, || 7).await, Ok(7)));
        let mut long = Box::pin(compute.parse(MIN_BYTES, || 7));
        assert!((&mut long).now_or_never().is_none());
        drop(others);
        assert!(matches!(long.await, Ok(7)));
        let all = compute.parse(usize::MAX, || 7).await;
        assert!(matches!(all, Ok(7)), "what needs more than there is gets all of it");
        assert_eq!(compute.parsing_kib.available_permits(), MAX_PARSING_KIB, "it is given back");
    }
}
