//! The shared context of all attempts of a worker: work directories, executor, content store and disk.

use std::sync::Arc;
use std::time::Duration;

use wire::grpc::ErrorCategory;

use crate::disk::Disk;
use crate::executors::{End, Ran};
use crate::inputs::blocking;
use crate::work_dir::WorkDirs;
use crate::{ActionOptions, Cas, Error, Executor, Failure};

pub(crate) struct WorkerContext {
    pub worker_id: String,
    pub max_output_bytes: u64,
    pub executor: Arc<dyn Executor>,
    pub cas: Arc<dyn Cas>,
    pub dirs: Arc<WorkDirs>,
    pub disk: Disk,
}

impl WorkerContext {
    /// Locks the worker's directories and removes what an earlier process of this worker left.
    pub(crate) async fn open(
        worker_id: &str,
        options: &ActionOptions,
        executor: Arc<dyn Executor>,
        cas: Arc<dyn Cas>,
    ) -> Result<Arc<WorkerContext>, Error> {
        let (id, root) = (worker_id.to_owned(), options.work_dir.clone());
        let locked = blocking_setup(move || WorkDirs::lock(&root, &id)).await?;
        // First, because processes that still run would write to the directories that are removed next.
        executor.clear().await.map_err(|failure| Error::Setup(failure.message))?;
        let dirs = blocking_setup(move || locked.clear()).await?;
        Ok(Arc::new(WorkerContext {
            worker_id: worker_id.to_owned(),
            max_output_bytes: options.max_output_bytes,
            executor,
            cas,
            dirs,
            disk: Disk::new(&options.work_dir, options.disk_reserve_bytes),
        }))
    }

    /// Fails while the disk is full, even after everything that earlier attempts left is removed. Blocking.
    pub(crate) fn check_disk(&self) -> Result<(), Failure> {
        self.disk.check().or_else(|_| {
            self.dirs.wait_until_cleared();
            self.disk.check()
        })
    }

    /// The exit code of a command that exited, or the attempt's failure. The exit code of a command that failed while the
    /// disk was full does not count: the disk may be the cause (W16).
    pub(crate) async fn exit_code(&self, ran: &Ran, timeout: Option<Duration>) -> Result<i32, Failure> {
        match ran.end {
            End::Exited(0) => Ok(0),
            End::Exited(code) => {
                let disk = self.disk.clone();
                blocking(move || disk.check()).await.map(|()| code)
            }
            End::TimedOut => Err(Failure::timeout(timeout.unwrap_or(ran.run_time))),
            End::Cancelled => Err(Failure::cancelled()),
            End::TooMuchOutput => {
                let message = format!(
                    "the command wrote more than {} bytes to its standard output or standard error",
                    self.max_output_bytes
                );
                Err(Failure::new(Failure::OUTPUT_TOO_LARGE, ErrorCategory::UserCode, message))
            }
            End::OutOfMemory => Err(Failure::out_of_memory()),
        }
    }
}

pub(crate) async fn blocking_setup<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    tokio::task::spawn_blocking(work).await.map_err(|error| Error::Setup(error.to_string()))?
}
