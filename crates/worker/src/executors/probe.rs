//! Runs one small command through an executor, to check whether it works.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::{End, Executor, ExecutorOptions, Run, scratch};

const PROBE_TIMEOUT: Duration = Duration::from_secs(60);
const MAX_PROBE_OUTPUT_BYTES: u64 = 1 << 16;

pub(super) async fn probe(executor: &impl Executor, options: &ExecutorOptions) -> Result<(), String> {
    let (work_dir, key) = options.place().map_err(|error| error.to_string())?;
    let io = |error: std::io::Error| format!("the work directory {}: {error}", work_dir.display());
    let dir = scratch::make(&work_dir, &key).map_err(io)?;
    let root = dir.path().join("root");
    std::fs::create_dir(&root).map_err(io)?;
    let stderr = tempfile::tempfile_in(dir.path()).map_err(io)?;
    let run = Run {
        arguments: ["/bin/sh", "-c", ": > written"].map(str::to_owned).to_vec(),
        environment: Vec::new(),
        input_root: root.clone(),
        working_directory: root.clone(),
        timeout: Some(PROBE_TIMEOUT),
        stdout: tempfile::tempfile_in(dir.path()).map_err(io)?,
        stderr: stderr.try_clone().map_err(io)?,
        max_output_bytes: MAX_PROBE_OUTPUT_BYTES,
        platform: Vec::new(),
        cancel: CancellationToken::new(),
    };
    let ran = executor.execute(run).await.map_err(|failure| failure.message)?;
    match ran.end {
        End::Exited(0) if root.join("written").exists() => Ok(()),
        End::Exited(0) => Err("a command that wrote a file left none".to_owned()),
        end => Err(format!(
            "a small command did not work ({end:?}): {}",
            super::local::beginning(&stderr).trim()
        )),
    }
}
