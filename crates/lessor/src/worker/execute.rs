//! `lessor worker execute`: runs one action for inspection, without a coordinator. Nothing is stored, and its directory
//! stays.

mod outputs;
mod report;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use blobs::{Digest, DigestFunction};
use reapi_client::Client;
use worker::Failure;
use worker::action::{OnceError, execute_once};
use worker::executors::{self, Backend, ExecutorOptions};

use crate::client::connection::{CredentialOptions, connector, parse_grpc_url};
use crate::client::show::text::counted;
use crate::client::show::{Output, note};
use crate::exit;
use crate::run::cause;
use report::Report;

/// How long the content store may take to answer first.
const FIRST_ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(clap::Args)]
#[command(after_help = "\
The inputs are laid out in DIR/root, where the command runs, and what it says is in DIR/stdout and DIR/stderr.

Exit codes: 0 the command ended with 0, 1 it could not be run, 5 it ended otherwise.

Example:
  lessor worker execute --action-digest 6cf1…/142 --work-dir look --backend sandbox")]
pub(super) struct Options {
    /// The content store, and the action cache beside it
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8980", env = "LESSOR_URL", value_parser = parse_grpc_url)]
    cas_url: String,

    #[command(flatten)]
    credentials: CredentialOptions,

    /// The action
    #[arg(long, value_name = "HASH/SIZE")]
    action_digest: String,

    /// How the hash was made: sha256 or blake3
    #[arg(long, value_name = "FUNCTION", default_value = "sha256", value_parser = function)]
    digest_function: DigestFunction,

    /// A new or empty directory, which stays
    #[arg(long, value_name = "DIR")]
    work_dir: PathBuf,

    /// Where the command runs: host, sandbox, docker, or auto for the sandbox where it works
    #[arg(long, value_name = "BACKEND", default_value_t = Backend::Host)]
    backend: Backend,

    /// The image of an action that names none, for the backend docker
    #[arg(long, value_name = "IMAGE")]
    image: Option<String>,

    /// The instance that has the action [default: that of clients which name none]
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    instance: String,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

fn function(name: &str) -> Result<DigestFunction, String> {
    DigestFunction::from_name(name).ok_or_else(|| "must be sha256 or blake3".to_owned())
}

pub(super) async fn run(options: &Options) -> Result<ExitCode> {
    let action = Digest::parse(options.digest_function, &options.action_digest)
        .with_context(|| format!("{:?} is no digest of an action", options.action_digest))?;
    let directory = fresh(&options.work_dir)?;
    let connector = connector(&options.cas_url, &options.credentials.clone().credentials()?)?;
    let cas_options = reapi_client::Options { connector, ..Default::default() };
    let cas = Arc::new(Client::new(&options.cas_url, &cas_options)?);
    check(&cas, options).await?;
    // A unique id, so that a concurrent run is not taken for leftovers.
    let id = format!("execute-{}", std::process::id());
    let mut how = ExecutorOptions::new(options.backend, id, directory.join(".lessor/work"));
    how.docker.image = options.image.clone();
    let executor = executors::open(&how).await?;
    let cancel = worker::action::CancellationToken::new();
    let running = execute_once(&directory, executor, cas.clone(), &options.instance, action, &cancel);
    tokio::pin!(running);
    let once = tokio::select! {
        once = &mut running => once,
        _ = tokio::signal::ctrl_c() => {
            note("stopping the command; its directory stays");
            cancel.cancel();
            running.await
        }
    }
    .map_err(|error| to_error(error, &options.cas_url))?;
    let cached = cas.action_result(&options.instance, &action).await.unwrap_or_else(|error| {
        note(format!("the action cache does not answer, so nothing is compared: {error}"));
        None
    });
    let report = Report::new(&action, &once, cached.as_ref());
    let mut output = Output::new();
    if options.json {
        output.line(serde_json::to_string(&report)?)?;
    } else {
        output.print(&report)?;
    }
    let is_success = once.ended.as_ref().is_ok_and(|result| result.exit_code == 0);
    Ok(if is_success { ExitCode::SUCCESS } else { ExitCode::from(exit::TASK_FAILED) })
}

/// Checks that a server answers. A worker waits for its store to come back, but here it may never have been started.
async fn check(client: &Client, options: &Options) -> Result<()> {
    match client.capabilities(&options.instance, FIRST_ANSWER_TIMEOUT).await {
        Err(status) if status.code() == tonic::Code::Unavailable => {
            let (url, why) = (&options.cas_url, cause(&status));
            anyhow::bail!("no content store answers at {url} ({why}); name another with --cas-url")
        }
        _ => Ok(()),
    }
}

/// Lists missing inputs, which the failure contains as JSON.
fn to_error(error: OnceError, url: &str) -> anyhow::Error {
    match &error {
        OnceError::Failed(failure) if failure.code == Failure::MISSING_INPUTS => {
            let missing = failure.missing_digests();
            let count = counted(missing.len(), "blob");
            anyhow::anyhow!("{url} lacks {count} that the action needs: {}", missing.join(", "))
        }
        _ => error.into(),
    }
}

/// An empty directory: files of another run must not be taken for inputs.
fn fresh(directory: &Path) -> Result<PathBuf> {
    let shown = directory.display();
    std::fs::create_dir_all(directory).with_context(|| format!("cannot create {shown}"))?;
    let directory = directory.canonicalize().with_context(|| format!("cannot find {shown}"))?;
    let mut entries = directory.read_dir().with_context(|| format!("cannot read {shown}"))?;
    anyhow::ensure!(entries.next().is_none(), "{shown} is not empty; name another --work-dir, or empty it");
    Ok(directory)
}
