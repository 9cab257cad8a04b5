//! The engine behind a local socket, Docker's or Podman's, in the version that both sides know.

use std::time::Duration;

use bollard::errors::Error;
use bollard::models::ContainerCreateBody;
use bollard::query_parameters::CreateImageOptions;
use bollard::{API_DEFAULT_VERSION, Docker};
use tokio_stream::StreamExt;

/// For every answer except the end of a container.
const ANSWER_TIMEOUT_SECONDS: u64 = 120;
/// A command without a timeout may take as long as its lease lets it.
const WAIT_TIMEOUT: Duration = Duration::from_secs(30 * 24 * 60 * 60);
const USUAL_SOCKETS: [&str; 3] =
    ["/var/run/docker.sock", "/run/podman/podman.sock", "/var/run/podman/podman.sock"];

#[derive(Clone, Debug)]
pub(super) struct Engine {
    pub docker: Docker,
    /// With a timeout for answers that take as long as a command.
    pub waiting: Docker,
    pub about: String,
}

impl Engine {
    pub(super) async fn connect(host: Option<&str>) -> Result<Engine, String> {
        let socket = socket(host)?;
        let wrong = |error: Error| {
            format!(
                "the engine at {socket} does not answer ({error}): start it, or name its socket as host or DOCKER_HOST"
            )
        };
        let docker = Docker::connect_with_unix(&socket, ANSWER_TIMEOUT_SECONDS, API_DEFAULT_VERSION);
        let docker = docker.map_err(wrong)?.negotiate_version().await.map_err(wrong)?;
        let version = docker.version().await.map_err(wrong)?;
        let name = version.components.and_then(|parts| parts.into_iter().next()).map(|part| part.name);
        let about = format!(
            "{} {} at {socket}, API {}",
            name.unwrap_or_else(|| "engine".to_owned()),
            version.version.unwrap_or_default(),
            docker.client_version()
        );
        Ok(Engine { waiting: docker.clone().with_timeout(WAIT_TIMEOUT), docker, about })
    }

    pub(super) async fn create(&self, body: ContainerCreateBody) -> Result<String, Error> {
        Ok(self.docker.create_container(None, body).await?.id)
    }

    pub(super) async fn pull(&self, image: &str) -> Result<(), Error> {
        let options = CreateImageOptions { from_image: Some(image.to_owned()), ..Default::default() };
        let mut progress = Box::pin(self.waiting.create_image(Some(options), None, None));
        while let Some(step) = progress.next().await {
            step?;
        }
        Ok(())
    }
}

/// The status of a refusal by the engine.
pub(super) fn status(error: &Error) -> Option<u16> {
    match error {
        Error::DockerResponseServerError { status_code, .. } => Some(*status_code),
        _ => None,
    }
}

fn socket(host: Option<&str>) -> Result<String, String> {
    let named = host.map(str::to_owned).or_else(|| std::env::var("DOCKER_HOST").ok());
    match named.filter(|host| !host.is_empty()) {
        Some(host) if host.starts_with("unix://") || host.starts_with('/') => {
            Ok(host.trim_start_matches("unix://").to_owned())
        }
        Some(host) => {
            Err(format!("the engine's address {host:?} is no local socket: give it as unix:///path"))
        }
        None => {
            let own = std::env::var("XDG_RUNTIME_DIR").map(|dir| format!("{dir}/podman/podman.sock"));
            let mut usual = USUAL_SOCKETS.map(str::to_owned).into_iter().chain(own);
            usual.find(|socket| std::path::Path::new(socket).exists()).ok_or_else(|| {
                "there is no engine at the usual sockets: start Docker or Podman, or name its socket as host or \
                 DOCKER_HOST"
                    .to_owned()
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_engine_is_named_by_its_socket() {
        assert_eq!(socket(Some("unix:///a/b.sock")), Ok("/a/b.sock".to_owned()));
        assert_eq!(socket(Some("/a/b.sock")), Ok("/a/b.sock".to_owned()));
        assert!(socket(Some("tcp://elsewhere:2375")).unwrap_err().contains("tcp://elsewhere:2375"));
    }
}
