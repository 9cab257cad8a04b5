//! Renders a timeline as text. Texts of workers and users are quoted as they are; whoever prints them makes them safe.

use authority::event::{ExpiryCause, ReleaseCause};
use authority::{CancelCause, DeadReason, TaskError, TaskState};

use super::{DiscardReason, FinalReason, Step, StepKind, Timeline};

const SECOND_MS: u64 = 1_000;
const MINUTE_MS: u64 = 60 * SECOND_MS;
const TWO_MINUTES_MS: u64 = 2 * MINUTE_MS;
const HOUR_MS: u64 = 60 * MINUTE_MS;
const DAY_MS: u64 = 24 * HOUR_MS;

impl Step {
    /// What happened, in one sentence.
    pub fn render(&self) -> String {
        match &self.by {
            Some(by) => format!("{}, by {by}", self.render_kind()),
            None => self.render_kind(),
        }
    }

    fn render_kind(&self) -> String {
        let attempt = self.attempt.map_or("the attempt".to_owned(), |attempt| format!("attempt {attempt}"));
        let worker = self.worker.as_deref().unwrap_or("its worker");
        let ran = self.ran_ms.map_or(String::new(), |ms| format!(" after {}", span(ms)));
        match &self.kind {
            StepKind::Submitted { queue, priority, delay_ms, redrive_of } => {
                let mut text = format!("submitted to queue {queue}");
                if *priority != 0 {
                    text.push_str(&format!(" with priority {priority}"));
                }
                if let Some(ms) = delay_ms {
                    text.push_str(&format!(", not to be leased for {}", span(*ms)));
                }
                if let Some(old) = redrive_of {
                    text.push_str(&format!(", to do task {old} again"));
                }
                text
            }
            StepKind::Leased { waited_ms, lease_ms } => {
                let waited = waited_ms.map_or(String::new(), |ms| format!(" after waiting {}", span(ms)));
                format!("{attempt} was given to {worker}{waited}, with a lease of {}", span(*lease_ms))
            }
            StepKind::Started { by } => format!("{by} began {attempt}"),
            StepKind::Lost { cause, silent_ms, is_last } => {
                let why = match (cause, silent_ms) {
                    (ExpiryCause::Silence, Some(ms)) => {
                        format!("{worker} was not heard of for {}", span(*ms))
                    }
                    (ExpiryCause::Silence, None) => format!("{worker} was not heard of in time"),
                    (ExpiryCause::Timeout, _) => format!("{worker} reached the time limit of one attempt"),
                    (ExpiryCause::WorkerLost, _) => format!("{worker} was silent for the heartbeat timeout"),
                };
                let next = if *is_last { "no attempt is left" } else { "the task waits again" };
                format!("{attempt} was lost{ran}: {why}; {next}")
            }
            StepKind::Released { cause } => {
                let why = match cause {
                    ReleaseCause::Worker => format!("{worker} gave it back"),
                    ReleaseCause::Undelivered => format!("the lease could not be delivered to {worker}"),
                    ReleaseCause::Session => format!("{worker} began a new session"),
                };
                format!(
                    "{attempt} was released{ran}: {why}; the task waits again, and this attempt does not count"
                )
            }
            StepKind::Failed { error, retry_ms } => {
                let next = match retry_ms {
                    0 => "at once".to_owned(),
                    ms => format!("in {}", span(*ms)),
                };
                format!(
                    "{attempt} failed{ran}: {worker} reported {}; it is tried again {next}",
                    render_error(error)
                )
            }
            StepKind::FailedForGood { error, why } => {
                let why = match why {
                    FinalReason::LastAttempt { allowed: 1, released: 0 } => {
                        "it was the only attempt allowed, so the task is FAILED".to_owned()
                    }
                    FinalReason::LastAttempt { allowed, released: 0 } => {
                        format!("it was the last of {allowed} attempts, so the task is FAILED")
                    }
                    FinalReason::LastAttempt { allowed, released } => format!(
                        "it was the last of {allowed} attempts, not counting {released} released, so the task is FAILED"
                    ),
                    FinalReason::NotRetryable => {
                        "this error is not tried again, so the task is FAILED".to_owned()
                    }
                    FinalReason::Unknown => "it is not tried again, so the task is FAILED".to_owned(),
                };
                format!("{attempt} failed{ran}: {worker} reported {}; {why}", render_error(error))
            }
            StepKind::Completed { result_bytes } => {
                let bytes = match result_bytes {
                    1 => "1 byte".to_owned(),
                    many => format!("{many} bytes"),
                };
                format!("{attempt} was completed by {worker}{ran}, with a result of {bytes}")
            }
            StepKind::Dead { .. } => self.render_dead(&attempt, worker, &ran),
            StepKind::AskedToStop { cause, reason, grace_ms } => {
                let who = match cause {
                    CancelCause::User => format!("a cancel was asked for ({reason})"),
                    CancelCause::Deadline => "the deadline passed".to_owned(),
                };
                format!("{who}; {worker} has {} to stop", span(*grace_ms))
            }
            StepKind::Discarded { why } => {
                let why = match why {
                    DiscardReason::Lost => "its lease had run out",
                    DiscardReason::WorkerLost => "its worker had been lost",
                    DiscardReason::TimedOut => "it had passed the time limit of one attempt",
                    DiscardReason::Released => "its lease had been given back",
                    DiscardReason::Reported => "it had reported before",
                    DiscardReason::Ended => "the task had ended",
                    DiscardReason::Unknown => "it had no authority any more",
                };
                format!("a late report of {attempt} by {worker} was discarded: {why}")
            }
            StepKind::Restarted { epoch, taken_from } => {
                let what = match (taken_from, &self.owner) {
                    (Some(before), Some(owner)) => format!("node {owner} took over from node {before}"),
                    _ => "the coordinator was started again".to_owned(),
                };
                format!("{what} (epoch {epoch}); {attempt} by {worker} kept its lease")
            }
            StepKind::Note { text, .. } => text.clone(),
            StepKind::Purged => {
                "it was purged: its retention was over, or finished tasks took too much memory".to_owned()
            }
        }
    }

    fn render_dead(&self, attempt: &str, worker: &str, ran: &str) -> String {
        let StepKind::Dead { reason, detail, error, silent_ms, cancel } = &self.kind else {
            return String::new();
        };
        let detail = detail.as_ref().map_or(String::new(), |detail| format!(" ({detail})"));
        let held = self.attempt.is_some();
        let report = error.as_ref().map(|error| format!("{worker} reported {}", render_error(error)));
        let stopped = match (report, silent_ms, cancel) {
            (Some(report), _, _) => format!("; {attempt} ended{ran}: {report}"),
            (None, Some(ms), Some(_)) if held && *reason != DeadReason::CancelTimeout => {
                format!("; {attempt} ended{ran}: {worker} was not heard of for {}", span(*ms))
            }
            (None, _, _) if held => format!("; {attempt} by {worker} was cut off{ran}"),
            _ => String::new(),
        };
        let why = match reason {
            DeadReason::Cancelled if held => format!("it was cancelled{detail}"),
            DeadReason::Cancelled => format!("it was cancelled while it waited{detail}"),
            DeadReason::CancelTimeout => {
                format!("it was asked to stop{detail} and did not within its grace period")
            }
            DeadReason::HeartbeatTimeout => "its last attempt was lost, and none is left".to_owned(),
            DeadReason::Deadline => "its deadline passed".to_owned(),
            DeadReason::Killed => format!("it was ended from outside{detail}"),
        };
        format!("the task is DEAD: {why}{stopped}")
    }
}

impl Timeline {
    /// The whole timeline in a sentence or two: how it stands, how often it ran, and why more than once.
    pub fn summary(&self) -> String {
        let ended = match self.state {
            None if self.steps.is_empty() => return "no record is about this task".to_owned(),
            None => "how it stood is no longer known",
            Some(TaskState::Waiting) => "it waits",
            Some(TaskState::Leased) => "it is leased",
            Some(TaskState::Completed) => "it was completed",
            Some(TaskState::Failed) => "it failed",
            Some(TaskState::Dead) => "it is dead",
        };
        let times = match self.attempts {
            0 if self.is_truncated => "is older than the records that are kept".to_owned(),
            0 => "was never given to a worker".to_owned(),
            1 => "was given to a worker once".to_owned(),
            many => format!("was given to a worker {many} times{}", self.retry_reasons()),
        };
        let forgotten = if self.is_purged { ", and has been forgotten since" } else { "" };
        let all = if self.is_truncated { "as far as is known" } else { "in all" };
        let spans = format!("It waited {} and ran {} {all}.", span(self.waited_ms), span(self.ran_ms));
        format!("The task {times}; {ended}{forgotten}. {spans}")
    }

    /// What made further attempts necessary.
    fn retry_reasons(&self) -> String {
        let count = |is: fn(&StepKind) -> bool| self.steps.iter().filter(|step| is(&step.kind)).count();
        let causes = [
            (count(|kind| matches!(kind, StepKind::Lost { .. })), "lost"),
            (count(|kind| matches!(kind, StepKind::Failed { .. })), "failed"),
            (count(|kind| matches!(kind, StepKind::Released { .. })), "released"),
        ];
        let reasons: Vec<_> = causes
            .into_iter()
            .filter(|(times, _)| *times > 0)
            .map(|(times, kind)| format!("{times} {kind}"))
            .collect();
        if reasons.is_empty() { String::new() } else { format!(" ({})", reasons.join(", ")) }
    }
}

fn render_error(error: &TaskError) -> String {
    let code = error.code.as_ref().map_or(String::new(), |code| format!(" {code}"));
    format!("{}{code}: {}", error.category.name(), error.message)
}

/// A duration with its two largest units, to the tenth of a second below two minutes.
pub(super) fn span(ms: u64) -> String {
    let pair = |big: u64, big_name: &str, small: u64, small_name: &str| match ms % big / small {
        0 => format!("{} {big_name}", ms / big),
        rest => format!("{} {big_name} {rest} {small_name}", ms / big),
    };
    match ms {
        0..SECOND_MS => format!("{ms} ms"),
        // Leases are configured and printed in seconds.
        SECOND_MS..TWO_MINUTES_MS => match ms % SECOND_MS / 100 {
            0 => format!("{} s", ms / SECOND_MS),
            tenths => format!("{}.{tenths} s", ms / SECOND_MS),
        },
        TWO_MINUTES_MS..HOUR_MS => pair(MINUTE_MS, "min", SECOND_MS, "s"),
        HOUR_MS..DAY_MS => pair(HOUR_MS, "h", MINUTE_MS, "min"),
        _ => pair(DAY_MS, "d", HOUR_MS, "h"),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use authority::{Actor, ActorKind, Position, Time};

    use super::*;

    #[test]
    fn a_step_names_who_asked_for_it() {
        let by = Some(Arc::new(Actor::new(ActorKind::Token, "https://issuer", "ci")));
        let kind = StepKind::Started { by: "w1".into() };
        let step = Step { by, attempt: Some(1), ..Step::new(Position(1), Time(0), kind) };
        assert_eq!(step.render(), "w1 began attempt 1, by the token ci (https://issuer)");
    }

    #[test]
    fn spans_are_told_in_their_two_largest_units() {
        for (ms, expected) in [
            (0, "0 ms"),
            (999, "999 ms"),
            (1_500, "1.5 s"),
            (60_000, "60 s"),
            (66_049, "66 s"),
            (120_000, "2 min"),
            (125_000, "2 min 5 s"),
            (3_660_000, "1 h 1 min"),
            (90_000_000, "1 d 1 h"),
        ] {
            assert_eq!(span(ms), expected);
        }
    }
}
