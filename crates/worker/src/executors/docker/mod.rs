//! The Docker executor: runs each command in its own container of a Docker or Podman engine.
//!
//! A command sees its image, read-only, a private /tmp and its input root at /build. It has no capability and can gain
//! none, and only the network that the configuration allows. Images are pulled only if the configuration allows it.
//! Containers have labels of their worker and are removed afterwards, or at the worker's next start if it dies.

mod container;
mod engine;
mod output;

use std::collections::HashMap;
use std::path::PathBuf;

use bollard::models::{ContainerCreateBody, HostConfig, ResourcesUlimits};
use bollard::query_parameters::{ListContainersOptions, RemoveContainerOptions};
use rustix::process::{getegid, geteuid};

use super::local::Begin;
use super::lookup::NotRunnable;
use super::users::User;
use super::{DockerOptions, End, Executor, ExecutorOptions, Limits, Ran, Run, local, scratch};
use crate::{Error, Failure};
use container::Container;
use engine::Engine;
use output::Output;

/// The platform property that names the image.
pub const IMAGE_PROPERTY: &str = "container-image";
const IMAGE_SCHEME: &str = "docker://";
/// On every container: the id of its worker, and a key that no other worker has.
const WORKER_LABEL: &str = "dev.lessor.worker";
const KEY_LABEL: &str = "dev.lessor.key";

pub struct Docker {
    engine: Engine,
    options: DockerOptions,
    ulimits: Vec<ResourcesUlimits>,
    limits: Limits,
    /// The user that commands run as; by default the worker's.
    user: Option<User>,
    work_dir: PathBuf,
    labels: HashMap<String, String>,
    key: String,
}

impl Docker {
    pub(super) async fn open(options: &ExecutorOptions) -> Result<Docker, Error> {
        let (user, (work_dir, key)) = (options.user()?, options.place()?);
        let labels = [(WORKER_LABEL, options.worker_id.clone()), (KEY_LABEL, key.clone())];
        let ulimits =
            options.docker.parse_ulimits().map_err(|text| Error::Setup(format!("ulimit {text:?}")))?;
        let ulimit =
            |(name, soft, hard)| ResourcesUlimits { name: Some(name), soft: Some(soft), hard: Some(hard) };
        Ok(Docker {
            engine: Engine::connect(options.docker.host.as_deref()).await.map_err(Error::Setup)?,
            options: options.docker.clone(),
            ulimits: ulimits.into_iter().map(ulimit).collect(),
            limits: Limits {
                cpu_cores: options.docker.cpu_limit.or(options.limits.cpu_cores),
                memory_bytes: options.docker.memory_limit.or(options.limits.memory_bytes),
                ..options.limits
            },
            user,
            work_dir,
            labels: labels.map(|(name, value)| (name.to_owned(), value)).into(),
            key,
        })
    }

    pub(super) fn about(&self) -> &str {
        &self.engine.about
    }

    fn image(&self, run: &Run) -> Result<String, Failure> {
        let named = run.platform.iter().find(|(name, _)| name == IMAGE_PROPERTY).map(|(_, value)| value);
        let image = named.or(self.options.image.as_ref()).ok_or_else(|| {
            Failure::invalid_action(format!(
                "the action names no image: set the platform property {IMAGE_PROPERTY}, or an image for the worker"
            ))
        })?;
        Ok(image.strip_prefix(IMAGE_SCHEME).unwrap_or(image).to_owned())
    }

    /// Creates the container, and pulls its image first if necessary and allowed.
    async fn make(&self, run: &Run) -> Result<Container, Failure> {
        let image = self.image(run)?;
        let user = self.user.map_or((geteuid().as_raw(), getegid().as_raw()), |user| (user.id, user.group));
        let body = ContainerCreateBody {
            labels: Some(self.labels.clone()),
            host_config: Some(HostConfig {
                network_mode: Some(self.options.network_mode.clone()),
                ulimits: Some(self.ulimits.clone()),
                ..container::host_config(run, &self.limits)
            }),
            ..container::body(run, &image, user)
        };
        let lacks = |error: &bollard::errors::Error| engine::status(error) == Some(404);
        let made = match self.engine.create(body.clone()).await {
            Err(error) if lacks(&error) && self.options.pull => {
                tokio::select! {
                    biased;
                    () = run.cancel.cancelled() => return Err(Failure::cancelled()),
                    pulled = self.engine.pull(&image) => {
                        pulled.map_err(|error| no_image(&image, &error.to_string()))?;
                    }
                }
                self.engine.create(body).await
            }
            made => made,
        };
        match made {
            Ok(id) => Ok(Container { engine: self.engine.clone(), id }),
            Err(error) if lacks(&error) => {
                Err(no_image(&image, "the engine does not have it, and the worker does not pull"))
            }
            Err(error) => Err(broken("a container could not be made", &error)),
        }
    }
}

#[tonic::async_trait]
impl Executor for Docker {
    async fn execute(&self, run: Run) -> Result<Ran, Failure> {
        let begin = Begin::now();
        if run.arguments[0].is_empty() {
            return local::not_runnable(&run, begin, &NotRunnable::not_found("''"));
        }
        if let Some(user) = self.user {
            user.take(&run, &self.work_dir).await?;
        }
        let container = self.make(&run).await?;
        if run.cancel.is_cancelled() {
            container.remove(&run).await;
            return Ok(begin.ran(End::Cancelled, None));
        }
        // The creation of the container is not part of the command's time.
        let begin = Begin::now();
        let mut output = match begun(&container, &run).await {
            Ok(output) => output,
            Err(error) => {
                container.remove(&run).await;
                return match container::not_runnable(&run.arguments[0], &error) {
                    Some(why) => local::not_runnable(&run, begin, &why),
                    None => Err(broken("a container could not be started", &error)),
                };
            }
        };
        let end = tokio::select! {
            biased;
            code = container.ended() => End::Exited(code.map_err(|error| broken("a container was lost", &error))?),
            () = run.cancel.cancelled() => End::Cancelled,
            () = begin.timed_out(&run) => End::TimedOut,
            () = output.is_too_much() => End::TooMuchOutput,
        };
        let end = match end {
            End::Exited(code) => {
                output.finish().await;
                match code {
                    _ if output.exceeds() => End::TooMuchOutput,
                    code if code != 0 && container.ran_out_of_memory().await => End::OutOfMemory,
                    code => End::Exited(code),
                }
            }
            stopped => stopped,
        };
        let ran = begin.ran(end, None);
        let is_over = matches!(ran.end, End::Exited(_) | End::OutOfMemory);
        if !container.remove(&run).await && !is_over {
            return Err(Failure::broken("the container could not be removed, and its command may still run"));
        }
        // What it wrote before it was stopped may still be on its way.
        output.finish().await;
        output.check()?;
        Ok(ran)
    }

    async fn clear(&self) -> Result<(), Failure> {
        scratch::clear(&self.work_dir, &self.key, None);
        let label = format!("{KEY_LABEL}={}", self.key);
        let filters = HashMap::from([("label".to_owned(), vec![label])]);
        let options = ListContainersOptions { all: true, filters: Some(filters), ..Default::default() };
        let left = self.engine.docker.list_containers(Some(options)).await;
        let left = left.map_err(|error| broken("containers could not be listed", &error))?;
        for id in left.into_iter().filter_map(|container| container.id) {
            tracing::warn!(container = id, "a container of a worker that died is removed");
            let options = RemoveContainerOptions { force: true, v: true, ..Default::default() };
            let removed = self.engine.docker.remove_container(&id, Some(options)).await;
            removed.map_err(|error| broken("a container could not be removed", &error))?;
        }
        Ok(())
    }
}

/// Attaches before the start, so that no output is lost. Podman reports a command that cannot be run at the attach.
async fn begun(container: &Container, run: &Run) -> Result<Output, bollard::errors::Error> {
    let output = Output::new(container.attach().await?, run);
    container.start().await?;
    Ok(output)
}

fn no_image(image: &str, why: &str) -> Failure {
    Failure::invalid_action(format!("there is no image {image:?}: {why}"))
}

fn broken(what: &str, error: &bollard::errors::Error) -> Failure {
    Failure::broken(format!("{what}: {error}"))
}
