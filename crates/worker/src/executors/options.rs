//! What an operator can say about how commands are run.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use super::users::User;
use crate::{Error, work_dir};

/// Where commands run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Backend {
    /// As plain processes of this machine.
    #[default]
    Host,
    /// In Linux namespaces of their own.
    Sandbox,
    /// In containers of a Docker or Podman engine.
    Docker,
    /// In the sandbox where it works, and otherwise as plain processes.
    Auto,
}

impl Backend {
    pub const ALL: [Backend; 4] = [Backend::Host, Backend::Sandbox, Backend::Docker, Backend::Auto];

    pub fn name(self) -> &'static str {
        match self {
            Backend::Host => "host",
            Backend::Sandbox => "sandbox",
            Backend::Docker => "docker",
            Backend::Auto => "auto",
        }
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no backend: it is host, sandbox, docker or auto")]
pub struct UnknownBackend(String);

impl FromStr for Backend {
    type Err = UnknownBackend;

    fn from_str(text: &str) -> Result<Backend, UnknownBackend> {
        let named = Backend::ALL.into_iter().find(|backend| backend.name() == text);
        named.ok_or_else(|| UnknownBackend(text.to_owned()))
    }
}

/// Most that each command may use; nothing means that there is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Limits {
    /// Processor time for each second that passes.
    pub cpu_cores: Option<f64>,
    pub memory_bytes: Option<u64>,
    /// Processes and threads at one time.
    pub processes: Option<u32>,
}

impl Limits {
    pub fn is_none(&self) -> bool {
        *self == Limits::default()
    }
}

/// How the containers of commands are made (S3-70).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DockerOptions {
    /// The engine's socket, as `unix:///path`. Otherwise DOCKER_HOST says it, and otherwise the usual sockets are
    /// tried.
    pub host: Option<String>,
    /// For commands whose platform names none.
    pub image: Option<String>,
    /// Whether an image that the engine lacks is fetched from its registry.
    pub pull: bool,
    pub network_mode: String,
    /// Names with their soft and hard limits, for every container.
    pub ulimits: Vec<(String, i64, i64)>,
}

impl DockerOptions {
    /// Nothing that is not asked for.
    pub const NETWORK_MODE: &str = "none";
}

impl Default for DockerOptions {
    fn default() -> DockerOptions {
        DockerOptions {
            host: None,
            image: None,
            pull: false,
            network_mode: DockerOptions::NETWORK_MODE.to_owned(),
            ulimits: Vec::new(),
        }
    }
}

/// How commands are run.
#[derive(Clone, Debug)]
pub struct ExecutorOptions {
    pub backend: Backend,
    /// What commands get of the worker's own environment (S3-69). Containers get nothing of it.
    pub env_allow: Vec<String>,
    /// Whom commands run as, by name or number, where it is not the worker's own user.
    pub user: Option<String>,
    /// For each command.
    pub limits: Limits,
    pub docker: DockerOptions,
    /// Whose leftovers are cleared.
    pub worker_id: String,
    /// Where the work directories of actions are.
    pub work_dir: PathBuf,
}

impl ExecutorOptions {
    /// What the configuration file allows by default (S3-69).
    pub const ENV_ALLOW: [&str; 2] = ["PATH", "HOME"];

    /// With the defaults of the configuration file.
    pub fn new(
        backend: Backend,
        worker_id: impl Into<String>,
        work_dir: impl Into<PathBuf>,
    ) -> ExecutorOptions {
        ExecutorOptions {
            backend,
            env_allow: ExecutorOptions::ENV_ALLOW.map(str::to_owned).to_vec(),
            user: None,
            limits: Limits::default(),
            docker: DockerOptions::default(),
            worker_id: worker_id.into(),
            work_dir: work_dir.into(),
        }
    }
}

impl ExecutorOptions {
    /// The work directory, which is there afterwards, and a name for what this worker makes elsewhere on its machine.
    pub(super) fn place(&self) -> Result<(PathBuf, String), Error> {
        let made = std::fs::create_dir_all(&self.work_dir).and_then(|()| self.work_dir.canonicalize());
        let work_dir = made.map_err(|error| Error::io("the work directory", error))?;
        let key = work_dir::key(&self.worker_id, &work_dir);
        Ok((work_dir, key))
    }

    pub(super) fn user(&self) -> Result<Option<User>, Error> {
        self.user.as_deref().map(User::find).transpose().map_err(Error::Setup)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s3_47_a_backend_is_read_as_it_is_shown() {
        for backend in Backend::ALL {
            assert_eq!(backend.to_string().parse(), Ok(backend));
        }
        assert!("Host".parse::<Backend>().unwrap_err().to_string().contains("sandbox"));
        assert_eq!(Backend::default(), Backend::Host);
    }
}
