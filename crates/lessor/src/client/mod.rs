//! The commands that talk to a running server over its public contract. They know nothing that any other client
//! could not know, and decide nothing: one command to a file, each a request and a way to show its answer.

pub(crate) mod backoff;
pub(crate) mod connection;
pub(crate) mod duration;
mod error;
mod http;
pub(crate) mod key;
pub(crate) mod queue;
pub(crate) mod show;
pub(crate) mod submit;
pub(crate) mod task;
mod task_context;
pub(crate) mod worker;

use std::process::ExitCode;

use anyhow::{Context, Result};

pub(crate) use error::{Error, is_about_certificates};

pub(crate) fn block_on(command: impl Future<Output = Result<ExitCode>>) -> Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    runtime.block_on(command)
}
