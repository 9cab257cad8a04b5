//! One lease that the worker holds, and the state of its attempt.

use std::time::Duration;

use bytes::Bytes;
use lessor_sdk::protocol::LeaseClock;
use prost::Message;
use prost_types::Timestamp;
use wire::grpc::{LeasedTask, TaskStatus, UpdateTaskStatusRequest};

use super::pool::SlotGuard;
use crate::{Failure, Outcome, Permit};

/// The delay before a report is repeated that the coordinator could not decide about.
const RESEND_DELAY: Duration = Duration::from_secs(1);

/// Longest time between heartbeats of a lease. Cancellations come with their answers, so a worker sends far more than
/// the lease needs; the coordinator records only what the lease needs.
const MAX_HEARTBEAT_INTERVAL: Duration = Duration::from_secs(2);
/// Shortest time between heartbeats, whatever the coordinator asks for.
pub(super) const MIN_HEARTBEAT_INTERVAL: Duration = Duration::from_millis(10);

/// Largest report. The coordinator takes results of at most this size, and errors are far smaller.
const MAX_REPORT_BYTES: usize = 1024 * 1024;

pub(crate) struct HeldLease {
    pub task_id: String,
    pub clock: LeaseClock,
    pub heartbeat_interval: Duration,
    /// Without a slot if the attempt is never begun.
    pub permit: Permit,
    /// Whether the coordinator knows that the attempt has begun.
    pub start: SendState,
    /// The attempt's end, once it has ended.
    pub report: Option<(UpdateTaskStatusRequest, SendState)>,
    /// How often its outputs were uploaded again.
    pub uploads_again: u32,
}

/// The state of a message that needs an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SendState {
    DueAt(Duration),
    InFlight,
    Answered,
}

impl SendState {
    pub(super) const NOW: SendState = SendState::DueAt(Duration::ZERO);

    pub(super) fn is_due(self, now: Duration) -> bool {
        matches!(self, SendState::DueAt(at) if at <= now)
    }

    /// The connection is lost, and the answer with it.
    pub(super) fn resend(&mut self) {
        if *self == SendState::InFlight {
            *self = SendState::NOW;
        }
    }

    /// The answer decided nothing.
    pub(super) fn retry_later(&mut self, now: Duration) {
        *self = SendState::DueAt(now + RESEND_DELAY);
    }
}

impl HeldLease {
    pub(crate) fn new(
        task: &LeasedTask,
        slot: Option<SlotGuard>,
        now: Duration,
        default_interval: Duration,
    ) -> HeldLease {
        let interval = task.heartbeat_interval.and_then(|interval| Duration::try_from(interval).ok());
        HeldLease {
            task_id: task.task_id.clone(),
            clock: lease_clock(task, now),
            heartbeat_interval: interval
                .filter(|interval| !interval.is_zero())
                .unwrap_or(default_interval)
                .clamp(MIN_HEARTBEAT_INTERVAL, MAX_HEARTBEAT_INTERVAL),
            permit: Permit::new(slot),
            start: SendState::NOW,
            report: None,
            uploads_again: 0,
        }
    }

    pub(super) fn on_attempt_end(&mut self, lease_id: &str, outcome: Outcome) {
        let mut report = UpdateTaskStatusRequest {
            lease_id: lease_id.to_owned(),
            task_id: self.task_id.clone(),
            status: TaskStatus::Completed.into(),
            ..UpdateTaskStatusRequest::default()
        };
        match outcome {
            Outcome::Action(result) => report.result = Some(*result),
            Outcome::Json(result) => report.result_json = result,
            Outcome::Failed(failure) => {
                report.status = TaskStatus::Failed.into();
                report.error_message = failure.message;
                report.error_category = failure.category.into();
                report.error_code = failure.code.to_owned();
                report.retryable = Some(failure.retryable);
                let partial = failure.partial.and_then(|partial| execution::result::encode(&partial).ok());
                report.partial_progress_json = partial.map(Bytes::from).unwrap_or_default();
            }
        }
        // The coordinator rejects a larger report, and an even larger one would end the stream.
        let bytes = report.encoded_len();
        if bytes > MAX_REPORT_BYTES {
            let why = format!("it has {bytes} bytes, and at most {MAX_REPORT_BYTES} are accepted");
            return self.on_attempt_end(lease_id, Failure::result_rejected(&why).into());
        }
        self.permit.free();
        self.report = Some((report, SendState::NOW));
    }
}

/// A lease without times has no length and is over at once.
fn lease_clock(task: &LeasedTask, received_at: Duration) -> LeaseClock {
    let length = match (&task.granted_at, &task.lease_expires_at) {
        (Some(granted), Some(expires)) => span(granted, expires),
        _ => Duration::ZERO,
    };
    // The timeout of an action limits its command, which the executor enforces, and not the lease.
    let timeout = task.timeout.filter(|_| task.action_digest.is_empty());
    let timeout = timeout.and_then(|timeout| Duration::try_from(timeout).ok());
    LeaseClock::streamed(length, timeout, received_at)
}

fn span(from: &Timestamp, to: &Timestamp) -> Duration {
    let nanos = |time: &Timestamp| i128::from(time.seconds) * 1_000_000_000 + i128::from(time.nanos);
    u64::try_from(nanos(to) - nanos(from)).map_or(Duration::ZERO, Duration::from_nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_without_times_is_over_at_once() {
        let now = Duration::from_secs(1);
        let at = |seconds| Some(Timestamp { seconds, nanos: 0 });
        let backwards = LeasedTask { granted_at: at(9), lease_expires_at: at(4), ..LeasedTask::default() };
        assert_eq!(lease_clock(&LeasedTask::default(), now).valid_until(), now);
        assert_eq!(lease_clock(&backwards, now).valid_until(), now);
    }

    #[test]
    fn r42_a_lease_gets_heartbeats_as_often_as_a_cancel_should_be_noticed() {
        let interval = |interval_s: i64| {
            let heartbeat_interval = Some(prost_types::Duration { seconds: interval_s, nanos: 0 });
            let task = LeasedTask { heartbeat_interval, ..LeasedTask::default() };
            HeldLease::new(&task, None, Duration::ZERO, Duration::from_secs(30)).heartbeat_interval
        };
        assert_eq!(interval(30), MAX_HEARTBEAT_INTERVAL);
        assert_eq!(interval(0), MAX_HEARTBEAT_INTERVAL);
        assert_eq!(interval(1), Duration::from_secs(1));
    }

    /// An interval of a nanosecond had the worker send heartbeats without a pause.
    #[test]
    fn heartbeats_have_a_distance_whatever_the_coordinator_asks_for() {
        let heartbeat_interval = Some(prost_types::Duration { seconds: 0, nanos: 1 });
        let task = LeasedTask { heartbeat_interval, ..LeasedTask::default() };
        let held = HeldLease::new(&task, None, Duration::ZERO, Duration::from_secs(30));
        assert_eq!(held.heartbeat_interval, MIN_HEARTBEAT_INTERVAL);
    }
}
