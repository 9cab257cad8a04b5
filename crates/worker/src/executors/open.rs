//! From the operator's words to an executor that works, or to the reason why there is none.

use std::sync::Arc;

use super::{Backend, Executor, ExecutorOptions, Host};
use crate::Error;

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    pub name: &'static str,
    /// What was found, or what is wrong and what to do about it.
    pub result: Result<String, String>,
}

/// Finds out whether commands can be run as the options say.
pub async fn check(options: &ExecutorOptions) -> Vec<Check> {
    let result = match options.backend {
        Backend::Host | Backend::Auto => Ok("commands run as plain processes".to_owned()),
        Backend::Sandbox | Backend::Docker => Err(not_there(options.backend)),
    };
    vec![Check { name: "backend", result }]
}

/// An executor that has passed its checks. What a dead worker with this id left running is cleared.
pub async fn open(options: &ExecutorOptions) -> Result<Arc<dyn Executor>, Error> {
    for check in check(options).await {
        check.result.map_err(|why| Error::Setup(format!("{}: {why}", check.name)))?;
    }
    Ok(Arc::new(Host::new(options.env_allow.iter().map(String::as_str))))
}

fn not_there(backend: Backend) -> String {
    format!("there is no {backend} backend in this build: use host")
}
