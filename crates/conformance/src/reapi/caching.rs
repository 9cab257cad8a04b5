//! The caching of results: when a result is stored, served and shared.

use tonic::Code;

use super::actions::{Draft, TELLS_RUNS_APART};
use super::client::Remote;
use crate::finding::must;
use crate::grpc::refused;
use crate::{Check, Finding, Subject};

pub(super) const CHECKS: &[Check] = &[
    Check::new(&["R28"], "the result of a command that failed is not cached", |s| Box::pin(failed(s))),
    Check::new(&["R34"], "a result is cached and served, and skip_cache_lookup makes a new one", |s| {
        Box::pin(skipped(s))
    }),
    Check::new(&["R35", "R28"], "with do_not_cache nothing is cached and nothing is merged", |s| {
        Box::pin(uncached(s))
    }),
    Check::new(&["R35"], "another salt makes another action", |s| Box::pin(salted(s))),
    Check::new(&["R44"], "equal executions in flight are one", |s| Box::pin(merged(s))),
];

async fn failed(subject: &Subject) -> Result<(), Finding> {
    let remote = Remote::of(subject);
    remote.needs_execution().await?;
    let action = remote.action("exit 3").await?;
    for _ in 0..2 {
        let (response, result) = remote.run(remote.ask(&action)).await?;
        must(result.exit_code == 3 && !response.cached_result, || {
            format!("`exit 3` ended with {}, cached_result {}", result.exit_code, response.cached_result)
        })?;
    }
    refused("GetActionResult of `exit 3`", remote.cached(&action).await, &[Code::NotFound])
}

async fn skipped(subject: &Subject) -> Result<(), Finding> {
    let remote = Remote::of(subject);
    remote.needs_execution().await?;
    let action = remote.action(TELLS_RUNS_APART).await?;
    let (first, cached) = remote.run_for_stdout(remote.ask(&action)).await?;
    must(!cached, || "an action that was never run came from the cache".into())?;
    let (again, cached) = remote.run_for_stdout(remote.ask(&action)).await?;
    must(cached && again == first, || "an action that was run should come from the cache".into())?;
    let mut fresh = remote.ask(&action);
    fresh.skip_cache_lookup = true;
    let (second, cached) = remote.run_for_stdout(fresh).await?;
    must(!cached && second != first, || "skip_cache_lookup was answered with an earlier result".into())?;
    let (last, cached) = remote.run_for_stdout(remote.ask(&action)).await?;
    must(cached && last == second, || "the newer result should have replaced the older one".into())
}

async fn uncached(subject: &Subject) -> Result<(), Finding> {
    let remote = Remote::of(subject);
    remote.needs_execution().await?;
    let mut draft = Draft::of(TELLS_RUNS_APART)?;
    draft.action.do_not_cache = true;
    let action = remote.prepare(&draft).await?;
    let both =
        tokio::join!(remote.run_for_stdout(remote.ask(&action)), remote.run_for_stdout(remote.ask(&action)));
    let ((one, one_cached), (other, other_cached)) = (both.0?, both.1?);
    must(one != other && !one_cached && !other_cached, || "two executions at once were one".into())?;
    let (last, cached) = remote.run_for_stdout(remote.ask(&action)).await?;
    must(!cached && last != one && last != other, || "a later execution was served from the cache".into())?;
    refused("GetActionResult with do_not_cache", remote.cached(&action).await, &[Code::NotFound])
}

async fn salted(subject: &Subject) -> Result<(), Finding> {
    let remote = Remote::of(subject);
    remote.needs_execution().await?;
    let one = remote.action(TELLS_RUNS_APART).await?;
    let other = remote.action(TELLS_RUNS_APART).await?;
    let (one, other) =
        (remote.run_for_stdout(remote.ask(&one)).await?, remote.run_for_stdout(remote.ask(&other)).await?);
    must(one.0 != other.0 && !other.1, || "two actions with different salts had one result".into())
}

async fn merged(subject: &Subject) -> Result<(), Finding> {
    let remote = Remote::of(subject);
    remote.needs_execution().await?;
    let action = remote.action(&format!("sleep 1; {TELLS_RUNS_APART}")).await?;
    let mut one = remote.begin(remote.ask(&action)).await?;
    let (first, mut leaves) = (one.first().await?, remote.begin(remote.ask(&action)).await?);
    let third = remote.begin(remote.ask(&action)).await?;
    leaves.first().await?;
    // Whoever goes away takes nothing from the others.
    drop(leaves);
    let mut words = Vec::new();
    for waiting in [one, third] {
        let response = waiting.end().await?;
        let result = response.result.ok_or_else(|| {
            Finding::broken(format!("an execution that was shared ended with {:?}", response.status))
        })?;
        words.push(remote.stdout(&result).await?);
    }
    must(words[0] == words[1] && !words[0].is_empty(), || {
        format!("equal executions at once were run more than once (the first is {})", first.name)
    })
}
