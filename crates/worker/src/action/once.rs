//! Runs one action for inspection: without a coordinator, in a directory that stays, and without storing anything.

use std::path::{Path, PathBuf};

use execution::action::timeout;

use super::{Actions, Site, unless};
use crate::executors::Ran;
use crate::inputs::blocking;
use crate::work_dir::Trash;
use crate::{ActionOptions, Cas, Error, Executor, Failure};
use bazel_remote_apis::build::bazel::remote::execution::v2::{ActionResult, Command};
use blobs::Digest;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Where the inputs are laid out, below the directory that is given.
const ROOT: &str = "root";
/// What the worker needs for itself, there too.
const OWN: &str = ".lessor";

/// What was done, as far as it got.
#[derive(Debug)]
pub struct Once {
    pub input_root: PathBuf,
    pub stdout: PathBuf,
    pub stderr: PathBuf,
    pub command: Command,
    pub input_files: usize,
    pub timeout: Option<Duration>,
    pub ran: Ran,
    /// What would be reported.
    pub ended: Result<ActionResult, Failure>,
}

/// Runs one action in a directory, which must not hold another one's remains.
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

/// Why there is nothing to look at.
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
        let site = blocking(move || {
            let site = Site::permanent(&below.join(ROOT), &below.join("stdout"), &below.join("stderr"))?;
            match inputs.lay_out(&site.root, &mut Trash::new(&dirs))? {
                gone if gone.is_empty() => expected.prepare(&site.root).map(|()| site),
                _ => Err(Failure::broken("inputs left the cache before they could be used")),
            }
        });
        let site = site.await?;
        let limit = timeout(&ready.action)?;
        let ran = self.context.execute(self.prepared(&ready, &site, cancel)?).await?;
        let ended = match self.context.exit_code(&ran, limit).await {
            Ok(exit_code) => {
                let (inputs, expected) = (ready.inputs.clone(), ready.expected.clone());
                let collect = move || {
                    let collected = site.collect(&inputs, &expected, action.function)?;
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
