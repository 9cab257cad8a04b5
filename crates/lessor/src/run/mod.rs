//! `lessor run`: a command executed elsewhere as if it ran here.
//!
//! It is a client of the Remote Execution API and of nothing else: what it does, any other client could do, and it works
//! against any server of that protocol. Nothing is written but outputs that were asked for, below the directory that was
//! named.

mod action;
mod destination;
mod download;
mod error;
mod fetch;
mod follow;
mod inputs;
mod interrupt;
mod options;
mod outputs;
mod progress;
mod remote;
mod streams;
mod summary;
mod upload;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result};
use bazel_remote_apis::build::bazel::remote::execution::v2::{ActionResult, ExecuteRequest, ExecuteResponse};
use execution::digest;
use tonic::{Code, Status};

pub(crate) use error::Error;
pub(crate) use options::Options;
pub(crate) use progress::counted;
pub(crate) use remote::cause;

use crate::client::show::Output;
use action::Described;
use destination::Destination;
use follow::Follower;
use inputs::Inputs;
use outputs::Outputs;
use progress::{Progress, size, took};
use remote::Remote;
use streams::Stream;
use summary::{Summary, ms};
use upload::blocking;

/// How often inputs are brought again that the store lost before a worker had them.
const MAX_ROUNDS: u32 = 3;

pub(crate) fn run(options: Options) -> Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let options = Arc::new(options);
    let progress = Progress::new(options.quiet);
    let ended = runtime.block_on(async {
        let remote = Arc::new(Remote::connect(&options).await?);
        let work = work(&options, &remote, &progress);
        interrupt::or_done(&remote, &progress, work).await
    });
    progress.end();
    // A file that is still being read is nobody's concern any more.
    runtime.shutdown_background();
    ended
}

async fn work(options: &Arc<Options>, remote: &Arc<Remote>, progress: &Progress) -> Result<ExitCode> {
    let mut summary = Summary::default();
    let (inputs, described) = describe(options, progress, &mut summary).await?;
    let response = execute(options, remote, progress, &inputs, &described, &mut summary).await?;
    summary.cached = response.cached_result;
    summary.operation = remote.operation().unwrap_or_default();
    remote.set_operation(None);
    let result = response.result.clone().unwrap_or_default();
    summary.exit_code = result.exit_code;
    summary.worker = result.execution_metadata.as_ref().map(|about| about.worker.clone()).unwrap_or_default();
    progress.end();
    let streams = show_streams(options, remote, &result, &mut summary).await;
    refuse_unless_ran(options, &response)?;
    streams?;
    bring_home(options, remote, progress, &result, &mut summary).await?;
    progress.end();
    summary.timings.total_ms = ms(progress.elapsed());
    progress.line(summary_line(&summary, progress));
    if options.connection.json {
        Output::new().line(serde_json::to_string(&summary)?)?;
    }
    Ok(ExitCode::from(exit_code(result.exit_code)))
}

/// Reads the inputs and says what is to be done with them.
async fn describe(
    options: &Arc<Options>,
    progress: &Progress,
    summary: &mut Summary,
) -> Result<(Inputs, Described), Error> {
    let begun = Instant::now();
    let (own, bar) = (options.clone(), progress.clone());
    let read = move || match &own.input {
        Some(directory) => Inputs::read(directory, &bar),
        None => {
            let mut inputs = Inputs::default();
            let root = inputs.add(Vec::new());
            Ok((inputs, root))
        }
    };
    let (mut inputs, root) = blocking(read).await?;
    for left_out in &inputs.left_out {
        progress.line(format_args!("{} holds a ledger and is left out", left_out.display()));
    }
    let described = action::describe(options, &root, &mut inputs);
    summary.timings.inputs_ms = ms(begun.elapsed());
    summary.input_root_digest = root.to_string();
    summary.command_digest = described.command.to_string();
    summary.action_digest = described.action.to_string();
    Ok((inputs, described))
}

/// Uploads what is missing and executes; again if the store lost something in between.
async fn execute(
    options: &Options,
    remote: &Arc<Remote>,
    progress: &Progress,
    inputs: &Inputs,
    described: &Described,
    summary: &mut Summary,
) -> Result<ExecuteResponse, Error> {
    let request = ExecuteRequest {
        instance_name: remote.instance.clone(),
        skip_cache_lookup: options.no_cache,
        action_digest: Some(digest::to_proto(&described.action)),
        digest_function: digest::function_to_proto(inputs::FUNCTION).into(),
        inline_stdout: !options.connection.json,
        inline_stderr: !options.connection.json,
        ..ExecuteRequest::default()
    };
    let mut round = 0;
    loop {
        round += 1;
        let begun = Instant::now();
        let uploaded = upload::upload(remote, inputs, progress).await?;
        if round > 1 && uploaded.blobs == 0 {
            round = MAX_ROUNDS;
        }
        summary.uploaded_blobs += uploaded.blobs;
        summary.uploaded_bytes += uploaded.bytes;
        summary.timings.upload_ms += ms(begun.elapsed());
        if inputs.files > 0 && round == 1 {
            let files = counted(inputs.files, "input", "inputs");
            let (all, sent) = (size(inputs.bytes), size(uploaded.bytes));
            progress.line(format_args!("{files}, {all}; {sent} uploaded"));
        }
        progress.wait("Waiting for a worker");
        let begun = Instant::now();
        let ended = Follower::new(remote, progress).run(&request).await;
        summary.timings.execute_ms += ms(begun.elapsed());
        let lacks = match &ended {
            Ok(response) => Error::from(status(response)).is_missing_inputs(),
            Err(error) => error.is_missing_inputs(),
        };
        if !lacks || round >= MAX_ROUNDS {
            return ended;
        }
        remote.set_operation(None);
    }
}

async fn show_streams(
    options: &Options,
    remote: &Remote,
    result: &ActionResult,
    summary: &mut Summary,
) -> Result<(), Error> {
    let stdout = Stream::read(&result.stdout_raw, result.stdout_digest.as_ref(), "standard output")?;
    let stderr = Stream::read(&result.stderr_raw, result.stderr_digest.as_ref(), "standard error")?;
    summary.stdout_digest = stdout.digest.to_string();
    summary.stderr_digest = stderr.digest.to_string();
    if !options.connection.json {
        stdout.copy_to(remote, std::io::stdout()).await?;
        stderr.copy_to(remote, std::io::stderr()).await?;
    }
    Ok(())
}

fn refuse_unless_ran(options: &Options, response: &ExecuteResponse) -> Result<(), Error> {
    let status = status(response);
    match status.code() {
        Code::Ok if response.result.is_some() => Ok(()),
        Code::Ok => Err(Error::nonsense("an execution succeeded without a result")),
        Code::DeadlineExceeded => Err(Error::TimedOut { timeout_ms: options.timeout }),
        Code::Cancelled => Err(Error::Cancelled(status.message().to_owned())),
        _ => Err(status.into()),
    }
}

async fn bring_home(
    options: &Options,
    remote: &Arc<Remote>,
    progress: &Progress,
    result: &ActionResult,
    summary: &mut Summary,
) -> Result<(), Error> {
    let begun = Instant::now();
    let outputs = Outputs::read(remote, result, &options.outputs).await?;
    if !outputs.entries.is_empty() {
        let path = &options.output_dir;
        let to = Destination::open(path).map_err(|error| Error::output(path.display().to_string(), error))?;
        download::download(remote, &outputs, &to, progress).await?;
    }
    for path in &outputs.missing {
        progress.warn(format_args!("the command made no {path}"));
    }
    summary.outputs = outputs.reported;
    summary.missing_outputs = outputs.missing;
    summary.timings.download_ms = ms(begun.elapsed());
    Ok(())
}

fn summary_line(summary: &Summary, progress: &Progress) -> String {
    let time = took(progress.elapsed());
    let code = summary.exit_code;
    match (summary.cached, summary.worker.as_str()) {
        (true, _) => format!("cached: exit code {code}, {time}"),
        (false, "") => format!("exit code {code}, {time}"),
        (false, worker) => {
            format!("exit code {code}, {time}, on {}", crate::client::show::text::clean(worker))
        }
    }
}

fn status(response: &ExecuteResponse) -> Status {
    response.status.as_ref().map_or_else(|| Status::ok(""), follow::status)
}

/// As a process here can end. What fits into no exit code is still no success.
fn exit_code(code: i32) -> u8 {
    u8::try_from(code).unwrap_or(u8::MAX)
}
