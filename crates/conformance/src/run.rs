//! Runs checks concurrently and reports their outcomes in the order of the checks.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::{Check, Finding, Subject};

/// The time limit of one check: enough for a few leases to expire and for a poll to wait.
pub const MAX_CHECK: Duration = Duration::from_secs(20);
/// The time limit of all checks. A check that has not begun by then fails.
pub const MAX_RUN: Duration = Duration::from_secs(55);
/// The time limit to withdraw the push targets afterwards.
const MAX_WITHDRAW: Duration = Duration::from_secs(4);
/// Checks that run concurrently. A check mostly waits.
const CHECKS_AT_ONCE: usize = 16;

pub struct Outcome {
    pub check: &'static Check,
    /// `None` if the check passed.
    pub finding: Option<Finding>,
    pub took: Duration,
}

/// Runs the checks; `on_outcome` is called for each check as soon as the check and all checks before it are over.
pub async fn run(
    subject: Arc<Subject>,
    checks: Vec<&'static Check>,
    mut on_outcome: impl FnMut(&Outcome),
) -> Vec<Outcome> {
    let permits = Arc::new(Semaphore::new(CHECKS_AT_ONCE));
    let end = Instant::now() + MAX_RUN;
    let running: Vec<_> = checks
        .into_iter()
        .map(|check| {
            let (subject, permits) = (subject.clone(), permits.clone());
            (check, tokio::spawn(async move { one(check, &subject, &permits, end).await }))
        })
        .collect();
    let mut outcomes = Vec::with_capacity(running.len());
    for (check, running) in running {
        let outcome = running.await.unwrap_or_else(|error| {
            let finding = Finding::broken(format!("the check itself failed: {error}"));
            Outcome { check, finding: Some(finding), took: Duration::ZERO }
        });
        on_outcome(&outcome);
        outcomes.push(outcome);
    }
    let _ = timeout(MAX_WITHDRAW, subject.withdraw()).await;
    outcomes
}

async fn one(check: &'static Check, subject: &Subject, permits: &Semaphore, end: Instant) -> Outcome {
    let _permit = permits.acquire().await;
    let start = Instant::now();
    let limit = MAX_CHECK.min(end.saturating_duration_since(start));
    let result = timeout(limit, check.run(subject)).await.unwrap_or_else(|_| {
        Err(Finding::broken(format!("it was not over after {:.1} s", limit.as_secs_f64())))
    });
    Outcome { check, finding: result.err(), took: start.elapsed() }
}
