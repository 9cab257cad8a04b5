//! Opens the executor that the options name and checks that it works.

use std::sync::Arc;

use super::probe::probe;
use super::{Backend, Docker, Executor, ExecutorOptions, Host, Sandbox};
use crate::Error;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    pub name: &'static str,
    /// What was found, or what is wrong and how to fix it.
    pub result: Result<String, String>,
}

/// The executor that the options select. It has passed its checks.
pub struct Selected {
    pub executor: Arc<dyn Executor>,
    /// Never [`Backend::Auto`].
    pub backend: Backend,
    /// Why there is no sandbox, if [`Backend::Auto`] has none.
    pub no_sandbox: Option<String>,
    checks: Vec<Check>,
}

/// Checks whether commands can be run with these options, by running one.
pub async fn check(options: &ExecutorOptions) -> Vec<Check> {
    opened(options).await.map_or_else(|checks| checks, |selected| selected.checks)
}

/// An executor that has passed its checks. The leftovers of a dead worker with this id are removed later, under the
/// worker's lock.
pub async fn open(options: &ExecutorOptions) -> Result<Arc<dyn Executor>, Error> {
    select(options).await.map(|selected| selected.executor)
}

/// The same, with the selected backend.
pub async fn select(options: &ExecutorOptions) -> Result<Selected, Error> {
    let selected = opened(options).await.map_err(|checks| {
        let wrong = |check: Check| Some(format!("{}: {}", check.name, check.result.err()?));
        Error::Setup(checks.into_iter().filter_map(wrong).collect::<Vec<_>>().join("; "))
    })?;
    for Check { name, result } in &selected.checks {
        tracing::info!("{name}: {}", result.as_deref().unwrap_or_default());
    }
    Ok(selected)
}

type Opened = Result<Selected, Vec<Check>>;

async fn opened(options: &ExecutorOptions) -> Opened {
    match options.backend {
        Backend::Host => host(options).await,
        Backend::Sandbox => sandbox(options).await,
        Backend::Docker => docker(options).await,
        Backend::Auto => match sandbox(options).await {
            Ok(opened) => Ok(opened),
            Err(wrong) => {
                let mut selected = host(options).await?;
                let why = wrong.into_iter().find_map(|check| check.result.err()).unwrap_or_default();
                let found = format!("commands run as plain processes, because there is no sandbox: {why}");
                selected.checks.push(Check { name: "sandbox", result: Ok(found) });
                Ok(Selected { no_sandbox: Some(why), ..selected })
            }
        },
    }
}

async fn host(options: &ExecutorOptions) -> Opened {
    let host = Host::open(options).map_err(|error| wrong("host", error))?;
    let limits = limits(options, host.confine.lacks());
    tried(Backend::Host, "commands run as plain processes", host, options, limits).await
}

async fn sandbox(options: &ExecutorOptions) -> Opened {
    let sandbox = Sandbox::open(options).map_err(|error| wrong("sandbox", error))?;
    let limits = limits(options, sandbox.confine.lacks());
    let mut opened =
        tried(Backend::Sandbox, "commands run in namespaces of their own", sandbox, options, limits).await;
    if let Err(checks) = &mut opened {
        for why in checks.iter_mut().filter_map(|check| check.result.as_mut().err()) {
            why.push_str("; allow user namespaces or run the worker as root, or use the host backend");
        }
    }
    opened
}

async fn tried(
    backend: Backend,
    found: &str,
    executor: impl Executor,
    options: &ExecutorOptions,
    limits: Check,
) -> Opened {
    match probe(&executor, options).await {
        Ok(()) => Ok(selected(backend, found.to_owned(), executor, limits)),
        Err(why) => Err(vec![Check { name: backend.name(), result: Err(why) }, limits]),
    }
}

fn selected(backend: Backend, found: String, executor: impl Executor, limits: Check) -> Selected {
    let checks = vec![Check { name: backend.name(), result: Ok(found) }, limits];
    Selected { executor: Arc::new(executor), backend, no_sandbox: None, checks }
}

/// Without a configured image, no command can be tried.
async fn docker(options: &ExecutorOptions) -> Opened {
    let docker = Docker::open(options).await.map_err(|error| wrong("docker", error))?;
    let engine = docker.about().to_owned();
    let limits = Check { name: "limits", result: Ok("held by the engine".to_owned()) };
    if options.docker.image.is_some() {
        return tried(Backend::Docker, &engine, docker, options, limits).await;
    }
    let found = format!("{engine}; not tried, because no image is configured");
    Ok(selected(Backend::Docker, found, docker, limits))
}

/// A limit that cannot be enforced is reported, and is not an error.
fn limits(options: &ExecutorOptions, lacks: Vec<&'static str>) -> Check {
    let found = match (options.limits.is_none(), &lacks[..]) {
        (true, _) => "none are set".to_owned(),
        (false, []) => "held by control groups".to_owned(),
        (false, lacks) => format!(
            "there is no control group to hold {}: memory is held by the size of the address space, the number of \
             processes by that of the user, processor time not at all",
            lacks.join(", ")
        ),
    };
    Check { name: "limits", result: Ok(found) }
}

fn wrong(name: &'static str, error: Error) -> Vec<Check> {
    vec![Check { name, result: Err(error.to_string()) }]
}
