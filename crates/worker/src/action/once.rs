//! Runs one action for inspection: without a coordinator, in a directory that stays, and without storing anything.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use blobs::Digest;
use execution::action::timeout;
use execution::reapi::{ActionResult, Command};
use tokio_util::sync::CancellationToken;

use super::{Actions, Workspace, unless};
use crate::executors::Ran;
use crate::inputs::blocking;
use crate::work_dir::Trash;
use crate::{ActionOptions, Cas, Error, Executor, Failure};

/// The input root, below the given directory.
const ROOT: &str = "root";
/// The worker's own files, there too.
const OWN: &str = ".lessor";

/// One run of an action, as far as it got.
#[derive(Debug)]
pub struct Once {
    pub input_root: PathBuf,
    pub stdout: PathBuf,
    pub stderr: PathBuf,
    pub command: Command,
    pub input_files: usize,
    pub timeout: Option<Duration>,
    pub ran: Ran,
    /// The result that a worker would report.
    pub ended: Result<ActionResult, Failure>,
}

/// Runs one action in a directory without files of another run.
pub async fn execute_once(
    directory: &Path,
    executor: Arc<dyn Executor>,
    cas: Arc<dyn Cas>,
    instance: &str,
    action: Digest,
    cancel: &CancellationToken,
) -> Result<Once, OnceError> {
    let options =
        ActionOptions { allow_absolute_symlinks: true, ..ActionOptions::below(directory.join(OWN)) };
    let actions = Actions::open("execute", &options, executor, cas).await?;
    let done = actions.once(directory, instance, action, cancel).await;
    actions.context.dirs.settle().await;
    Ok(done?)
}

#[derive(Debug, thiserror::Error)]
pub enum OnceError {
    #[error(transparent)]
    Setup(#[from] Error),
    #[error(transparent)]
    Failed(#[from] Failure),
}

impl Actions {
    async fn once(
        &self,
        directory: &Path,
        instance: &str,
        action: Digest,
        cancel: &CancellationToken,
    ) -> Result<Once, Failure> {
        let ready = unless(cancel, self.fetch(instance, action)).await?;
        let (inputs, expected, below) = (ready.inputs.clone(), ready.expected.clone(), directory.to_owned());
        let dirs = self.context.dirs.clone();
        let workspace = blocking(move || {
            let [root, stdout, stderr] = [ROOT, "stdout", "stderr"].map(|name| below.join(name));
            let workspace = Workspace::permanent(&root, &stdout, &stderr)?;
            match inputs.lay_out(&root, &mut Trash::new(&dirs))? {
                evicted if evicted.is_empty() => expected.prepare(&root).map(|()| workspace),
                _ => Err(Failure::broken("inputs left the cache before they could be used")),
            }
        })
        .await?;
        let limit = timeout(&ready.action)?;
        let ran = self.context.executor.execute(self.prepared(&ready, &workspace, cancel)?).await?;
        let ended = match self.exit_code(&ran, &ready.action, &workspace).await {
            Ok(exit_code) => {
                let (inputs, expected) = (ready.inputs.clone(), ready.expected.clone());
                let collect = move || {
                    let collected = workspace.collect(&inputs, &expected, action.function)?;
                    inputs.check().map(|()| collected)
                };
                let collected = blocking(collect).await;
                collected.map(|collected| ActionResult { exit_code, ..collected.result })
            }
            Err(failure) => Err(failure),
        };
        Ok(Once {
            input_root: directory.join(ROOT),
            stdout: directory.join("stdout"),
            stderr: directory.join("stderr"),
            input_files: ready.inputs.file_count(),
            command: Arc::unwrap_or_clone(ready.command),
            timeout: limit,
            ran,
            ended,
        })
    }
}
