//! `lessor run`: runs a command remotely as if it ran here.
//!
//! It uses only the Remote Execution API, and works with any server of that protocol. It writes only requested outputs,
//! below the named directory.

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
pub(crate) mod selection;
mod upload;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use blobs::Digest;
use execution::digest;
use execution::reapi::{ActionResult, ExecuteRequest, ExecuteResponse};
use serde::Serialize;
use tonic::{Code, Status};

pub(crate) use error::Error;
pub(crate) use options::Options;
use options::Plan;
pub(crate) use remote::cause;

use crate::client::show::Output;
use crate::client::show::text::{clean, counted};
use destination::Destination;
use fetch::Stream;
use follow::Follower;
use inputs::Inputs;
use outputs::Outputs;
use progress::{Progress, size, took};
use remote::Remote;
use selection::Selection;
use upload::blocking;

/// How often inputs are uploaded again that the store evicted before a worker fetched them.
const MAX_ROUNDS: u32 = 3;

pub(crate) fn run(options: Options) -> Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let plan = options.plan()?;
    let progress = Progress::new(options.quiet);
    let ended = runtime.block_on(async {
        let remote = Remote::connect(&options).await?;
        let summary = Summary::default();
        let run = Run { options: &options, plan: &plan, remote: &remote, progress: &progress, summary };
        interrupt::or_done(&remote, &progress, run.run()).await
    });
    progress.end();
    // Files that are still being read do not matter any more.
    runtime.shutdown_background();
    ended
}

struct Run<'a> {
    options: &'a Options,
    plan: &'a Plan,
    remote: &'a Remote,
    progress: &'a Progress,
    summary: Summary,
}

impl Run<'_> {
    async fn run(mut self) -> Result<ExitCode> {
        let (inputs, action) = self.describe().await?;
        let response = self.execute(&inputs, &action).await?;
        self.summary.cached = response.cached_result;
        self.summary.operation = self.remote.operation().unwrap_or_default();
        self.remote.set_operation(None);
        let result = response.result.clone().unwrap_or_default();
        self.summary.exit_code = result.exit_code;
        self.summary.worker = result.execution_metadata.clone().unwrap_or_default().worker;
        self.progress.end();
        let streams = self.show_streams(&result).await;
        self.refuse_unless_ran(&response)?;
        streams?;
        self.download_outputs(&result, &inputs).await?;
        self.progress.end();
        self.summary.timings.total_ms = ms(self.progress.elapsed());
        self.progress.line(summary_line(&self.summary, self.progress));
        if self.options.connection.json {
            Output::new().line(serde_json::to_string(&self.summary)?)?;
        }
        Ok(ExitCode::from(exit_code(result.exit_code)))
    }

    /// Reads the inputs and builds the action.
    async fn describe(&mut self) -> Result<(Inputs, Digest), Error> {
        let begun = Instant::now();
        let (input, bar) = (self.options.input.clone(), self.progress.clone());
        let selection = Selection::new(self.options, self.plan);
        let read = move || match input {
            Some(directory) => Inputs::read(&directory, &selection, &bar),
            None => {
                let mut inputs = Inputs::default();
                let root = inputs.add(Vec::new());
                Ok((inputs, root))
            }
        };
        let (mut inputs, root) = blocking(read).await?;
        for left_out in &inputs.left_out {
            self.progress.line(format_args!("{} holds a ledger and is left out", left_out.display()));
        }
        let (command, action) = action::describe(self.options, self.plan, &root, &mut inputs);
        self.summary.timings.inputs_ms = ms(begun.elapsed());
        self.summary.input_root_digest = root.to_string();
        self.summary.command_digest = command.to_string();
        self.summary.action_digest = action.to_string();
        Ok((inputs, action))
    }

    /// Uploads the missing inputs and executes; again if the store evicted inputs meanwhile.
    async fn execute(&mut self, inputs: &Inputs, action: &Digest) -> Result<ExecuteResponse, Error> {
        let request = ExecuteRequest {
            instance_name: self.remote.instance.clone(),
            skip_cache_lookup: self.options.no_cache,
            action_digest: Some(digest::to_proto(action)),
            digest_function: digest::function_to_proto(inputs::FUNCTION).into(),
            inline_stdout: !self.options.connection.json,
            inline_stderr: !self.options.connection.json,
            ..ExecuteRequest::default()
        };
        let mut round = 0;
        loop {
            round += 1;
            let begun = Instant::now();
            let uploaded = upload::upload(self.remote, inputs, self.progress).await?;
            if round > 1 && uploaded.blobs == 0 {
                round = MAX_ROUNDS;
            }
            self.summary.uploaded_blobs += uploaded.blobs;
            self.summary.uploaded_bytes += uploaded.bytes;
            self.summary.timings.upload_ms += ms(begun.elapsed());
            if inputs.files > 0 && round == 1 {
                let files = counted(inputs.files, "input");
                let (all, sent) = (size(inputs.bytes), size(uploaded.bytes));
                self.progress.line(format_args!("{files}, {all}; {sent} uploaded"));
            }
            self.progress.wait("Waiting for a worker");
            let begun = Instant::now();
            let ended = Follower::new(self.remote, self.progress).run(&request).await;
            self.summary.timings.execute_ms += ms(begun.elapsed());
            let lacks_inputs = match &ended {
                Ok(response) => Error::from(status(response)).is_missing_inputs(),
                Err(error) => error.is_missing_inputs(),
            };
            if !lacks_inputs || round >= MAX_ROUNDS {
                return ended;
            }
            self.remote.set_operation(None);
        }
    }

    async fn show_streams(&mut self, result: &ActionResult) -> Result<(), Error> {
        let stdout = Stream::read(&result.stdout_raw, result.stdout_digest.as_ref(), "standard output")?;
        let stderr = Stream::read(&result.stderr_raw, result.stderr_digest.as_ref(), "standard error")?;
        self.summary.stdout_digest = stdout.digest.to_string();
        self.summary.stderr_digest = stderr.digest.to_string();
        if !self.options.connection.json {
            stdout.copy_to(self.remote, std::io::stdout()).await?;
            stderr.copy_to(self.remote, std::io::stderr()).await?;
        }
        Ok(())
    }

    fn refuse_unless_ran(&self, response: &ExecuteResponse) -> Result<(), Error> {
        let status = status(response);
        match status.code() {
            Code::Ok if response.result.is_some() => Ok(()),
            Code::Ok => Err(Error::nonsense("an execution succeeded without a result")),
            Code::DeadlineExceeded => Err(Error::TimedOut { timeout_ms: self.options.timeout }),
            Code::Cancelled => Err(Error::Cancelled(status.message().to_owned())),
            _ => Err(status.into()),
        }
    }

    async fn download_outputs(&mut self, result: &ActionResult, inputs: &Inputs) -> Result<(), Error> {
        let begun = Instant::now();
        let mut outputs = Outputs::read(self.remote, result, &self.plan.outputs).await?;
        if self.plan.is_whole {
            let place = self.plan.to.to_str().and_then(|to| options::relative(to).ok());
            outputs.keep_changes(&inputs.entries, self.options.working_directory.as_ref(), place.as_ref());
        }
        if !outputs.entries.is_empty() || self.plan.is_whole {
            let path = &self.plan.to;
            let to = Destination::open(path);
            let to = to.map_err(|error| Error::output(path.display().to_string(), error))?;
            download::download(self.remote, &outputs, &to, self.progress).await?;
        }
        for path in &outputs.missing {
            self.progress.warn(format_args!("the command made no {path}"));
        }
        self.summary.outputs = outputs.reported;
        self.summary.missing_outputs = outputs.missing;
        self.summary.timings.download_ms = ms(begun.elapsed());
        Ok(())
    }
}

fn summary_line(summary: &Summary, progress: &Progress) -> String {
    let time = took(progress.elapsed());
    let code = summary.exit_code;
    match (summary.cached, summary.worker.as_str()) {
        (true, _) => format!("cached: exit code {code}, {time}"),
        (false, "") => format!("exit code {code}, {time}"),
        (false, worker) => format!("exit code {code}, {time}, on {}", clean(worker)),
    }
}

fn status(response: &ExecuteResponse) -> Status {
    response.status.as_ref().map_or_else(|| Status::ok(""), follow::status)
}

/// The exit code of this process. A larger code is not a success either.
fn exit_code(code: i32) -> u8 {
    u8::try_from(code).unwrap_or(u8::MAX)
}

/// The summary of a run, as `--json` prints it.
#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Summary {
    exit_code: i32,
    cached: bool,
    operation: String,
    action_digest: String,
    command_digest: String,
    input_root_digest: String,
    stdout_digest: String,
    stderr_digest: String,
    /// The worker that ran it, if the server says so.
    #[serde(skip_serializing_if = "String::is_empty")]
    worker: String,
    outputs: Vec<outputs::Output>,
    missing_outputs: Vec<String>,
    uploaded_blobs: usize,
    uploaded_bytes: u64,
    timings: Timings,
}

/// What each part took.
#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Timings {
    inputs_ms: u64,
    upload_ms: u64,
    execute_ms: u64,
    download_ms: u64,
    total_ms: u64,
}

fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
