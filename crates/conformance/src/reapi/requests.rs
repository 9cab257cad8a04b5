//! Options of an execution: timeout, platform, priority, and outputs within the answer.

use std::time::{Duration, Instant};

use bazel_remote_apis::build::bazel::remote::execution::v2::execution_stage::Value as Stage;
use bazel_remote_apis::build::bazel::remote::execution::v2::platform::Property;
use bazel_remote_apis::build::bazel::remote::execution::v2::{ExecutionPolicy, Platform};
use bazel_remote_apis::google::longrunning::CancelOperationRequest;
use bazel_remote_apis::google::protobuf::Duration as Span;
use tokio::time::timeout;
use tonic::Code;

use super::actions::Draft;
use super::client::Remote;
use super::waiting::{response, stage};
use crate::finding::must;
use crate::grpc::{format_status, refused};
use crate::{Check, Finding, Subject};

/// How long an action that nobody can run is watched.
const WATCHED: Duration = Duration::from_secs(3);
/// No server waits for an action that long.
const A_CENTURY_S: i64 = 100 * 366 * 24 * 60 * 60;

pub(super) const CHECKS: &[Check] = &[
    Check::new(
        &["R36", "R28"],
        "a command that takes longer than its timeout is ended, and not cached",
        |s| Box::pin(timed_out(s)),
    ),
    Check::new(&["R36"], "a timeout above every limit, or below zero, is INVALID_ARGUMENT", |s| {
        Box::pin(endless(s))
    }),
    Check::new(&["R37"], "an action for a platform that no worker has is not run", |s| Box::pin(platform(s))),
    Check::new(&["R38"], "a priority is honoured within the announced ranges, and refused outside", |s| {
        Box::pin(priority(s))
    }),
    Check::new(&["R39"], "small outputs come within the response where that is asked for", |s| {
        Box::pin(inlined(s))
    }),
];

async fn timed_out(subject: &Subject) -> Result<(), Finding> {
    let remote = Remote::of(subject);
    remote.needs_execution().await?;
    let mut draft = Draft::of("sleep 15")?;
    draft.action.timeout = Some(Span { seconds: 1, nanos: 0 });
    let action = remote.prepare(&draft).await?;
    let start = Instant::now();
    let answer = remote.outcome(remote.ask(&action)).await?;
    refused("`sleep 15` with a timeout of 1 s", answer, &[Code::DeadlineExceeded])?;
    must(start.elapsed() < Duration::from_secs(14), || "`sleep 15` was not ended".into())?;
    refused("GetActionResult of what ran out of time", remote.cached(&action).await, &[Code::NotFound])
}

async fn endless(subject: &Subject) -> Result<(), Finding> {
    let remote = Remote::of(subject);
    remote.needs_execution().await?;
    for seconds in [A_CENTURY_S, -1] {
        let mut draft = Draft::of("true")?;
        draft.action.timeout = Some(Span { seconds, nanos: 0 });
        let action = remote.prepare(&draft).await?;
        let answer = remote.outcome(remote.ask(&action)).await?;
        refused(&format!("a timeout of {seconds} s"), answer, &[Code::InvalidArgument])?;
    }
    Ok(())
}

async fn platform(subject: &Subject) -> Result<(), Finding> {
    let remote = Remote::of(subject);
    remote.needs_execution().await?;
    let name = "conformance-nobody-has-this";
    let property = Property { name: name.into(), value: subject.name("value") };
    let mut draft = Draft::of("true")?;
    draft.action.platform = Some(Platform { properties: vec![property] });
    let action = remote.prepare(&draft).await?;
    let refusals = [Code::FailedPrecondition, Code::InvalidArgument];
    let mut waiting = match remote.execute(remote.ask(&action)).await {
        Err(status) => return named(name, status, &refusals),
        Ok(waiting) => waiting,
    };
    let mut operation = waiting.first().await?;
    let watched = timeout(WATCHED, async {
        while !operation.done {
            must(stage(&operation)? != Stage::Executing, || "it is being executed".into())?;
            match waiting.next().await? {
                Some(next) => operation = next,
                None => return Err(Finding::broken("the stream ended before the operation did")),
            }
        }
        Ok(())
    })
    .await;
    match watched {
        Ok(ended) => ended?,
        // It waits for such a worker; nobody needs it any more.
        Err(_) => {
            let cancel = CancelOperationRequest { name: operation.name };
            let _ = remote.operations().cancel_operation(remote.scoped(cancel)).await;
            return Ok(());
        }
    }
    let status = response(&operation)?.status.unwrap_or_default();
    named(name, tonic::Status::new(Code::from(status.code), status.message), &refusals)
}

/// The refusal says which property it is about.
fn named(name: &str, status: tonic::Status, codes: &[Code]) -> Result<(), Finding> {
    must(status.message().contains(name), || {
        format!("the refusal does not name the property {name}: {}", format_status(&status))
    })?;
    refused("an action that no worker can run", Err::<(), _>(status), codes)
}

async fn priority(subject: &Subject) -> Result<(), Finding> {
    let remote = Remote::of(subject);
    remote.needs_execution().await?;
    let answer = remote.capabilities().await?.execution_capabilities.unwrap_or_default();
    let ranges = answer.execution_priority_capabilities.unwrap_or_default().priorities;
    let Some(lowest) = ranges.iter().map(|range| range.min_priority).min() else {
        return Err(Finding::Skipped("the server announces no ranges of priorities".into()));
    };
    let highest = ranges.iter().map(|range| range.max_priority).max().unwrap_or(lowest);
    let action = remote.action("true").await?;
    let asked = |priority: i32| {
        let mut asked = remote.ask(&action);
        asked.execution_policy = Some(ExecutionPolicy { priority });
        asked.skip_cache_lookup = true;
        asked
    };
    for within in [lowest, highest] {
        remote.run(asked(within)).await?;
    }
    for outside in [lowest.checked_sub(1), highest.checked_add(1)].into_iter().flatten() {
        let answer = remote.outcome(asked(outside)).await?;
        refused(&format!("the priority {outside}"), answer, &[Code::InvalidArgument])?;
    }
    Ok(())
}

async fn inlined(subject: &Subject) -> Result<(), Finding> {
    let remote = Remote::of(subject);
    remote.needs_execution().await?;
    let mut draft = Draft::of("echo out; echo err >&2; echo file > f")?;
    draft.command.output_paths = vec!["f".into()];
    let action = remote.prepare(&draft).await?;
    for cached in [false, true] {
        let mut asked = remote.ask(&action);
        (asked.inline_stdout, asked.inline_stderr) = (true, true);
        asked.inline_output_files = vec!["f".into()];
        let (_, result) = remote.run(asked).await?;
        let file = result.output_files.iter().find(|file| file.path == "f");
        let file = file.map(|file| file.contents.clone()).unwrap_or_default();
        let answer = (&result.stdout_raw[..], &result.stderr_raw[..], &file[..]);
        must(answer == (b"out\n", b"err\n", b"file\n"), || {
            format!("with inline_* (cached: {cached}) the output, the error and the file are {answer:?}")
        })?;
    }
    Ok(())
}
