//! One container: its configuration and its life cycle. It is removed when it is dropped.

use std::collections::HashMap;
use std::pin::Pin;
use std::time::Duration;

use bollard::container::LogOutput;
use bollard::errors::Error;
use bollard::models::{ContainerCreateBody, HostConfig, HostConfigLogConfig, Mount, MountType};
use bollard::query_parameters::{
    AttachContainerOptions, InspectContainerOptions, RemoveContainerOptions, StartContainerOptions,
    WaitContainerOptions,
};
use tokio::time::{sleep, timeout};
use tokio_stream::{Stream, StreamExt};

use super::engine::{Engine, status};
use crate::executors::lookup::NotRunnable;
use crate::executors::sandbox::{INPUT_ROOT, inside};
use crate::executors::{Limits, Run};
use crate::work_dir;

/// How long a container may take to be removed before its attempt is given up.
const MAX_REMOVAL: Duration = Duration::from_secs(60);
/// The pause after the first try; each later one is twice as long.
const REMOVAL_PAUSE: Duration = Duration::from_millis(100);

/// Programs may be created and run there.
const TMP_OPTIONS: &str = "rw,exec,nosuid,nodev,mode=1777,size=1073741824";

pub(super) type Attached = Pin<Box<dyn Stream<Item = Result<LogOutput, Error>> + Send>>;

/// The command. The image's own entry point is not used.
pub(super) fn body(run: &Run, image: &str, (user, group): (u32, u32)) -> ContainerCreateBody {
    let variable = |(name, value): &(String, String)| format!("{name}={value}");
    ContainerCreateBody {
        image: Some(image.to_owned()),
        user: Some(format!("{user}:{group}")),
        entrypoint: Some(vec![run.arguments[0].clone()]),
        cmd: Some(run.arguments[1..].to_vec()),
        env: Some(run.environment.iter().map(variable).collect()),
        working_dir: Some(inside(run).display().to_string()),
        attach_stdout: Some(true),
        attach_stderr: Some(true),
        ..ContainerCreateBody::default()
    }
}

pub(super) fn host_config(run: &Run, limits: &Limits) -> HostConfig {
    let signed = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
    HostConfig {
        mounts: Some(vec![Mount {
            target: Some(INPUT_ROOT.to_owned()),
            source: Some(run.input_root.display().to_string()),
            typ: Some(MountType::BIND),
            ..Mount::default()
        }]),
        memory: limits.memory_bytes.map(signed),
        // Memory and swap together: no swap.
        memory_swap: limits.memory_bytes.map(signed),
        nano_cpus: limits.cpu_cores.map(|cores| (cores * 1e9) as i64),
        pids_limit: limits.processes.map(i64::from),
        cap_drop: Some(vec!["ALL".to_owned()]),
        security_opt: Some(vec!["no-new-privileges".to_owned()]),
        readonly_rootfs: Some(true),
        tmpfs: Some(HashMap::from([("/tmp".to_owned(), TMP_OPTIONS.to_owned())])),
        // The output goes to the worker alone.
        log_config: Some(HostConfigLogConfig { typ: Some("none".to_owned()), config: None }),
        ..HostConfig::default()
    }
}

/// The reason, as in a shell, if the engine refused a start because of the command.
pub(super) fn not_runnable(name: &str, error: &Error) -> Option<NotRunnable> {
    let (Some(_), message) = (status(error), error.to_string()) else { return None };
    let says = |words: &[&str]| words.iter().any(|word| message.contains(word));
    if says(&["executable file not found", "no such file or directory"]) {
        Some(NotRunnable::not_found(name))
    } else if says(&["permission denied", "exec format error", "is a directory"]) {
        Some(NotRunnable { exit_code: 126, why: format!("{name}: cannot be run: {message}") })
    } else {
        None
    }
}

pub(super) struct Container {
    pub engine: Engine,
    /// Empty once it is removed.
    pub id: String,
}

impl Container {
    /// Called before the start, so that no output is lost.
    pub(super) async fn attach(&self) -> Result<Attached, Error> {
        let options =
            AttachContainerOptions { stream: true, stdout: true, stderr: true, ..Default::default() };
        Ok(self.engine.waiting.attach_container(&self.id, Some(options)).await?.output)
    }

    pub(super) async fn start(&self) -> Result<(), Error> {
        self.engine.docker.start_container(&self.id, None::<StartContainerOptions>).await
    }

    /// Waits for the end and returns the exit code. The library returns other codes than 0 as errors.
    pub(super) async fn ended(&self) -> Result<i32, Error> {
        let code = |code: i64| i32::try_from(code).unwrap_or(-1);
        let mut ends = Box::pin(self.engine.waiting.wait_container(&self.id, None::<WaitContainerOptions>));
        match ends.next().await {
            Some(Ok(ended)) => Ok(code(ended.status_code)),
            Some(Err(Error::DockerContainerWaitError { code: ended, .. })) => Ok(code(ended)),
            Some(Err(error)) => Err(error),
            None => {
                let about =
                    self.engine.docker.inspect_container(&self.id, None::<InspectContainerOptions>).await?;
                Ok(code(about.state.and_then(|state| state.exit_code).unwrap_or(-1)))
            }
        }
    }

    pub(super) async fn ran_out_of_memory(&self) -> bool {
        let about = self.engine.docker.inspect_container(&self.id, None::<InspectContainerOptions>).await;
        about.ok().and_then(|about| about.state).and_then(|state| state.oom_killed).unwrap_or(false)
    }

    /// Returns whether the container is gone. If not, it is still being removed, and its directory is not used again.
    pub(super) async fn remove(mut self, run: &Run) -> bool {
        let is_gone = timeout(MAX_REMOVAL, remove(&self.engine, &self.id)).await.is_ok();
        if is_gone {
            self.id.clear()
        } else {
            work_dir::spoil(&run.input_root)
        }
        is_gone
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        if self.id.is_empty() {
            return;
        }
        let (engine, id) = (self.engine.clone(), std::mem::take(&mut self.id));
        // Without a runtime the worker is ending, and its next start removes the container.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { remove(&engine, &id).await });
        }
    }
}

/// Tries until it is gone.
async fn remove(engine: &Engine, id: &str) {
    let mut pause = REMOVAL_PAUSE;
    loop {
        let options = RemoveContainerOptions { force: true, v: true, ..Default::default() };
        match engine.docker.remove_container(id, Some(options)).await {
            Err(error) if status(&error) != Some(404) => {
                tracing::error!(container = id, %error, "a container could not be removed; trying again");
            }
            _ => return,
        }
        sleep(pause).await;
        pause = (2 * pause).min(MAX_REMOVAL);
    }
}

#[cfg(test)]
mod tests {
    use bollard::{API_DEFAULT_VERSION, Docker};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::UnixListener;

    use super::*;

    /// Gives these answers, one after the other.
    async fn engine(listener: UnixListener, answers: &[&str]) {
        for answer in answers {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                request.push(stream.read_u8().await.unwrap());
            }
            assert!(request.starts_with(b"DELETE /"), "{}", String::from_utf8_lossy(&request));
            let answer = format!("HTTP/1.1 {answer}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
    }

    #[tokio::test]
    async fn a_container_that_the_engine_does_not_remove_is_not_taken_for_gone() {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("engine.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let docker = Docker::connect_with_unix(socket.to_str().unwrap(), 60, API_DEFAULT_VERSION).unwrap();
        let engine_of_three = Engine { waiting: docker.clone(), docker, about: String::new() };
        let answers = ["500 Internal Server Error", "409 Conflict", "404 Not Found"];
        let both = async { tokio::join!(engine(listener, &answers), remove(&engine_of_three, "it")) };
        timeout(MAX_REMOVAL, both).await.expect("it is tried until the engine knows it no more");
    }
}
