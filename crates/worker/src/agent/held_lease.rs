//! One lease that the worker holds, and how far its attempt is.

use std::time::Duration;

use prost::Message;
use wire::grpc::{LeasedTask, TaskStatus, UpdateTaskStatusRequest};

use super::lease_clock::LeaseClock;
use super::pool::SlotGuard;
use crate::{Failure, Outcome, Permit};

/// How long to wait before a report is repeated that the coordinator could not decide about.
const RESEND_DELAY: Duration = Duration::from_secs(1);

/// Longest time between heartbeats of a lease. Their answers are how a worker hears that its work is no longer wanted, so
/// it asks far more often than the lease needs; the coordinator records only what the lease needs.
const MAX_HEARTBEAT_INTERVAL: Duration = Duration::from_secs(2);

/// Largest report. A result has at most so many bytes as the coordinator keeps it, and an error far fewer.
const MAX_REPORT_BYTES: usize = 1024 * 1024;

pub struct HeldLease {
    pub task_id: String,
    pub clock: LeaseClock,
    pub heartbeat_interval: Duration,
    /// Without a slot if it is never begun.
    pub permit: Permit,
    /// Whether the coordinator knows that the attempt has begun.
    pub start: SendState,
    /// How the attempt ended, once it has.
    pub report: Option<(UpdateTaskStatusRequest, SendState)>,
}

/// Something to be said, until it is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendState {
    /// Not before then.
    DueAt(Duration),
    InFlight,
    Answered,
}

impl SendState {
    pub const NOW: SendState = SendState::DueAt(Duration::ZERO);

    pub fn is_due(self, now: Duration) -> bool {
        matches!(self, SendState::DueAt(at) if at <= now)
    }

    /// The connection is gone, and the answer with it.
    pub fn resend(&mut self) {
        if *self == SendState::InFlight {
            *self = SendState::NOW;
        }
    }

    /// The answer decided nothing.
    pub fn retry_later(&mut self, now: Duration) {
        *self = SendState::DueAt(now + RESEND_DELAY);
    }
}

impl HeldLease {
    pub fn new(task: &LeasedTask, slot: Option<SlotGuard>, now: Duration, default_interval: Duration) -> HeldLease {
        let interval = task.heartbeat_interval.and_then(|interval| Duration::try_from(interval).ok());
        HeldLease {
            task_id: task.task_id.clone(),
            clock: LeaseClock::new(task, now),
            heartbeat_interval: interval
                .filter(|interval| !interval.is_zero())
                .unwrap_or(default_interval)
                .min(MAX_HEARTBEAT_INTERVAL),
            permit: Permit::new(slot),
            start: SendState::NOW,
            report: None,
        }
    }

    /// The words for how the attempt ended.
    pub fn ended(&mut self, lease_id: &str, outcome: Outcome) {
        let report = UpdateTaskStatusRequest {
            lease_id: lease_id.to_owned(),
            task_id: self.task_id.clone(),
            ..UpdateTaskStatusRequest::default()
        };
        let report = match outcome {
            Outcome::Action(result) => UpdateTaskStatusRequest {
                status: TaskStatus::Completed.into(),
                result: Some(*result),
                ..report
            },
            Outcome::Json(result) => UpdateTaskStatusRequest {
                status: TaskStatus::Completed.into(),
                result_json: result,
                ..report
            },
            Outcome::Failed(failure) => UpdateTaskStatusRequest {
                status: TaskStatus::Failed.into(),
                error_message: failure.message,
                error_category: failure.category.into(),
                error_code: failure.code.to_owned(),
                retryable: Some(failure.retryable),
                ..report
            },
        };
        // A larger one is not taken, and one that is larger still would end the stream.
        let bytes = report.encoded_len();
        if bytes > MAX_REPORT_BYTES {
            let why = format!("it has {bytes} bytes, and at most {MAX_REPORT_BYTES} are taken");
            return self.ended(lease_id, Failure::result_rejected(&why).into());
        }
        self.permit.free();
        self.report = Some((report, SendState::NOW));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r42_a_lease_is_beaten_as_often_as_a_cancel_should_be_heard() {
        let beaten = |interval_s: i64| {
            let heartbeat_interval = Some(prost_types::Duration { seconds: interval_s, nanos: 0 });
            let task = LeasedTask { heartbeat_interval, ..LeasedTask::default() };
            HeldLease::new(&task, None, Duration::ZERO, Duration::from_secs(30)).heartbeat_interval
        };
        assert_eq!(beaten(30), MAX_HEARTBEAT_INTERVAL);
        assert_eq!(beaten(0), MAX_HEARTBEAT_INTERVAL);
        assert_eq!(beaten(1), Duration::from_secs(1));
    }
}
