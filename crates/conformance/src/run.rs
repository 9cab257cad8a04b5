//! Runs checks side by side, and tells their outcomes in the order of the checks.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::{Check, Finding, Subject};

/// How long one check may take: enough for a few leases to run out and for a poll to wait.
pub const MAX_CHECK: Duration = Duration::from_secs(20);
/// How long all of them may take. What has not begun by then has failed.
pub const MAX_RUN: Duration = Duration::from_secs(55);
/// How long it may take to withdraw the push targets afterwards.
const MAX_WITHDRAW: Duration = Duration::from_secs(4);
/// How many checks run at once. Most of a check is waiting.
const CHECKS_AT_ONCE: usize = 16;

pub struct Outcome {
    pub check: &'static Check,
    /// Nothing when it passed.
    pub finding: Option<Finding>,
    pub took: Duration,
}

/// Runs the checks; `told` hears of each as soon as it and those before it are over.
pub async fn run(
    subject: Arc<Subject>,
    checks: Vec<&'static Check>,
    mut told: impl FnMut(&Outcome),
) -> Vec<Outcome> {
    let places = Arc::new(Semaphore::new(CHECKS_AT_ONCE));
    let end = Instant::now() + MAX_RUN;
    let running: Vec<_> = checks
        .into_iter()
        .map(|check| {
            let (subject, places) = (subject.clone(), places.clone());
            (check, tokio::spawn(async move { one(check, &subject, &places, end).await }))
        })
        .collect();
    let mut outcomes = Vec::with_capacity(running.len());
    for (check, running) in running {
        let outcome = running.await.unwrap_or_else(|error| {
            let finding = Finding::broken(format!("the check itself failed: {error}"));
            Outcome { check, finding: Some(finding), took: Duration::ZERO }
        });
        told(&outcome);
        outcomes.push(outcome);
    }
    let _ = timeout(MAX_WITHDRAW, subject.withdraw()).await;
    outcomes
}

async fn one(check: &'static Check, subject: &Subject, places: &Semaphore, end: Instant) -> Outcome {
    let _place = places.acquire().await;
    let start = Instant::now();
    let limit = MAX_CHECK.min(end.saturating_duration_since(start));
    let result = timeout(limit, check.run(subject)).await.unwrap_or_else(|_| {
        Err(Finding::broken(format!("it was not over after {:.1} s", limit.as_secs_f64())))
    });
    Outcome { check, finding: result.err(), took: start.elapsed() }
}
