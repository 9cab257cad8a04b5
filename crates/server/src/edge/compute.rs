//! Runs work that keeps a core busy off the threads that serve connections, so that it delays no other request.

use std::panic::resume_unwind;
use std::sync::Arc;

use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

use crate::convert::{Code, Problem};

/// Most pieces of work at one time; more would only take turns on the cores. Others wait, each with its request within
/// the memory for bodies.
const MAX_RUNNING: usize = 4;

/// A text of so many bytes takes about a millisecond to check and parse.
const MIN_BYTES: usize = 128 * 1_024;

pub(crate) struct Compute {
    permits: Arc<Semaphore>,
}

impl Default for Compute {
    fn default() -> Compute {
        Compute { permits: Arc::new(Semaphore::new(MAX_RUNNING)) }
    }
}

impl Compute {
    /// Runs work on a text of so many bytes: here when it is short, which takes less time than to hand it over.
    pub(crate) async fn run_on<T: Send + 'static>(
        &self,
        bytes: usize,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Problem> {
        if bytes < MIN_BYTES { Ok(work()) } else { self.run(work).await }
    }

    /// Work that was begun goes on to its end although nobody may wait for it any more, and keeps its permit.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Problem> {
        let stopped = || Problem::new(Code::NotServing, "the server stops");
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
