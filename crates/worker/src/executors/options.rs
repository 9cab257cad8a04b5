//! The options of executors.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::users::User;
use crate::{Error, work_dir};

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

impl FromStr for Backend {
    type Err = String;

    fn from_str(text: &str) -> Result<Backend, String> {
        let named = Backend::ALL.into_iter().find(|backend| backend.name() == text);
        named.ok_or_else(|| format!("{text:?} is no backend: it is host, sandbox, docker or auto"))
    }
}

/// The limits of each command, which are also keys of the configuration file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Limits {
    /// Processor seconds per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_cores: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// Processes and threads at the same time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processes: Option<u32>,
}

impl Limits {
    pub fn is_none(&self) -> bool {
        *self == Limits::default()
    }
}

/// The options of containers, which are also keys of the configuration file (S3-70).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DockerOptions {
    /// The engine's socket, as `unix:///path`. The default is DOCKER_HOST, or else the usual sockets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// For commands whose platform names none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// Whether an image that the engine lacks is pulled from its registry.
    pub pull: bool,
    pub network_mode: String,
    /// In place of `limits.cpu_cores` for containers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_limit: Option<f64>,
    /// In place of `limits.memory_bytes` for containers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_limit: Option<u64>,
    /// For every container, as `name=soft:hard` or `name=both`.
    pub ulimits: Vec<String>,
}

impl DockerOptions {
    /// Names with their soft and hard limits, or the text that is not a ulimit.
    pub fn parse_ulimits(&self) -> Result<Vec<(String, i64, i64)>, String> {
        let parse = |text: &String| {
            let (name, limits) = text.split_once('=').filter(|(name, _)| !name.is_empty())?;
            let (soft, hard) = limits.split_once(':').unwrap_or((limits, limits));
            Some((name.to_owned(), soft.parse().ok()?, hard.parse().ok()?))
        };
        self.ulimits.iter().map(|text| parse(text).ok_or_else(|| text.clone())).collect()
    }
}

impl Default for DockerOptions {
    fn default() -> DockerOptions {
        DockerOptions {
            host: None,
            image: None,
            pull: false,
            network_mode: "none".to_owned(),
            cpu_limit: None,
            memory_limit: None,
            ulimits: Vec::new(),
        }
    }
}

#[derive(Clone, Debug)]
pub struct ExecutorOptions {
    pub backend: Backend,
    /// The variables of the worker's environment that commands get (S3-69). Containers get none.
    pub env_allow: Vec<String>,
    /// The user that commands run as, by name or number; by default the worker's.
    pub user: Option<String>,
    pub limits: Limits,
    pub docker: DockerOptions,
    /// The worker whose leftovers are removed.
    pub worker_id: String,
    pub work_dir: PathBuf,
    /// Directories that a sandbox hides, even if they are below a directory that it contains.
    pub hidden: Vec<PathBuf>,
}

impl ExecutorOptions {
    /// The default of the configuration file (S3-69).
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
            hidden: Vec::new(),
        }
    }

    /// Creates the work directory. Returns its path and a name for what this worker creates elsewhere on its machine.
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
        assert!("Host".parse::<Backend>().unwrap_err().contains("sandbox"));
        assert_eq!(Backend::default(), Backend::Host);
    }
}
