//! Execute and WaitExecution: what a client is told, and when.

use std::time::Duration;

use bazel_remote_apis::build::bazel::remote::execution::v2::execution_stage::Value as Stage;
use bazel_remote_apis::google::longrunning::Operation;
use tokio::time::timeout;
use tonic::Code;

use super::client::Remote;
use super::waiting::{metadata, response, stage};
use crate::finding::must;
use crate::grpc::{format_status, refused};
use crate::{Check, Finding, Subject};

pub(super) const CHECKS: &[Check] = &[
    Check::new(&["R32"], "an operation is told at once, and COMPLETED is done and the end", |s| {
        Box::pin(stages(s))
    }),
    Check::new(&["R33"], "WaitExecution finds an operation by its name, running or done", |s| {
        Box::pin(waited(s))
    }),
    Check::new(&["R33"], "an operation's name is nobody else's, and cannot be guessed", |s| {
        Box::pin(guessed(s))
    }),
    Check::new(&["R40"], "a response has the result, its exit code and where it comes from", |s| {
        Box::pin(whole(s))
    }),
    Check::new(&["R41"], "every message of an operation says its stage and its action", |s| {
        Box::pin(described(s))
    }),
    Check::new(&["R44"], "an execution that nobody waits for can be waited for again", |s| Box::pin(left(s))),
];

async fn operations(remote: &Remote<'_>, script: &str) -> Result<Vec<Operation>, Finding> {
    let action = remote.action(script).await?;
    let mut waiting = remote.begin(remote.ask(&action)).await?;
    let mut all = vec![waiting.first().await?];
    all.extend(waiting.all().await?);
    Ok(all)
}

async fn stages(subject: &Subject) -> Result<(), Finding> {
    let remote = Remote::of(subject);
    remote.needs_execution().await?;
    let all = operations(&remote, "sleep 1").await?;
    must(all.iter().all(|one| one.name == all[0].name), || "the operation changed its name".into())?;
    must(!all[0].done, || "a command that takes a second was done at once".into())?;
    for (number, one) in all.iter().enumerate() {
        let (is_last, is_over) = (number + 1 == all.len(), stage(one)? == Stage::Completed);
        must(one.done == is_last && is_over == is_last, || {
            format!("message {number} of {} is {:?}, done {}", all.len(), stage(one), one.done)
        })?;
    }
    Ok(())
}

async fn waited(subject: &Subject) -> Result<(), Finding> {
    let remote = Remote::of(subject);
    remote.needs_execution().await?;
    let action = remote.action("sleep 1; exit 5").await?;
    let mut waiting = remote.begin(remote.ask(&action)).await?;
    let name = waiting.first().await?.name;
    for _ in 0..2 {
        let again = remote.wait_execution(&name).await;
        let mut again = again.map_err(|status| {
            Finding::broken(format!("WaitExecution was refused: {}", format_status(&status)))
        })?;
        let first = again.first().await?;
        must(first.name == name, || format!("WaitExecution of {name} told of {}", first.name))?;
        let last = again.all().await?.pop().unwrap_or(first);
        let code = response(&last)?.result.map(|result| result.exit_code);
        must(code == Some(5), || format!("`exit 5` was told as {code:?}"))?;
    }
    Ok(())
}

async fn guessed(subject: &Subject) -> Result<(), Finding> {
    let remote = Remote::of(subject);
    remote.needs_execution().await?;
    let action = remote.action("sleep 1").await?;
    let (mut one, mut other) =
        (remote.begin(remote.ask(&action)).await?, remote.begin(remote.ask(&action)).await?);
    let (one, other) = (one.first().await?.name, other.first().await?.name);
    must(one.len() >= 16, || format!("{one} can be guessed"))?;
    let mut guess = other.clone();
    let last = if guess.pop() == Some('0') { '1' } else { '0' };
    guess.push(last);
    for name in [guess.as_str(), "operations/nothing", ""] {
        if name == one {
            continue;
        }
        let answer = match remote.wait_execution(name).await {
            Err(status) => Err(status),
            Ok(mut waiting) => waiting.next().await.map(|_| ()).map_err(|_| tonic::Status::not_found("")),
        };
        let codes = [Code::NotFound, Code::InvalidArgument];
        refused(&format!("WaitExecution of {name:?}"), answer, &codes)?;
    }
    Ok(())
}

async fn whole(subject: &Subject) -> Result<(), Finding> {
    let remote = Remote::of(subject);
    remote.needs_execution().await?;
    let action = remote.action("echo out; echo err >&2").await?;
    for cached in [false, true] {
        let (response, result) = remote.run(remote.ask(&action)).await?;
        must(response.cached_result == cached, || {
            format!("cached_result is {}, not {cached}", response.cached_result)
        })?;
        let out = remote.stdout(&result).await?;
        must(result.exit_code == 0 && out == b"out\n", || {
            format!("`echo out` ended with {} and wrote {out:?}", result.exit_code)
        })?;
        let has_error = !result.stderr_raw.is_empty()
            || result.stderr_digest.as_ref().is_some_and(|digest| digest.size_bytes == 4);
        must(has_error, || "the standard error is not in the result".into())?;
    }
    Ok(())
}

async fn described(subject: &Subject) -> Result<(), Finding> {
    let remote = Remote::of(subject);
    remote.needs_execution().await?;
    let action = remote.action("true").await?;
    for _ in 0..2 {
        for operation in remote.begin(remote.ask(&action)).await?.all().await? {
            let answer = metadata(&operation)?;
            must(answer.stage() != Stage::Unknown, || "the stage is UNKNOWN".into())?;
            must(answer.action_digest.as_ref() == Some(&action), || {
                format!("the action_digest is {:?}", answer.action_digest)
            })?;
        }
    }
    Ok(())
}

async fn left(subject: &Subject) -> Result<(), Finding> {
    let remote = Remote::of(subject);
    remote.needs_execution().await?;
    let action = remote.action("sleep 1; echo left").await?;
    let mut waiting = remote.begin(remote.ask(&action)).await?;
    let name = waiting.first().await?.name;
    drop(waiting);
    let again = remote.wait_execution(&name).await;
    let again = again.map_err(|status| {
        Finding::broken(format!("WaitExecution was refused: {}", format_status(&status)))
    })?;
    // Whether it goes on or was stopped is the server's policy; that it says so is not.
    let ended = timeout(Duration::from_secs(15), again.end()).await;
    ended.map_err(|_| Finding::broken("the operation neither went on nor ended"))?.map(|_| ())
}
