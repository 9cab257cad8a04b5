//! Converts times, durations, texts and enumerations between the authority and protobuf.

use std::sync::Arc;
use std::time::Duration;

use authority::limits::MAX_POLL_QUEUES;
use authority::{Category, TaskState, Time};
use coordinator::{Activity, WorkerStatus};
use wire::grpc;

use crate::convert::Problem;
use crate::convert::names::{name, name_list};
use crate::convert::problem::shortened;

/// The queue of a worker that names none, which is what the workers of the remote execution plan do.
const DEFAULT_QUEUE: &str = execution::EXECUTION_QUEUE;

/// A text that is missing when it is empty, as protobuf has it.
pub(super) fn given(text: &str) -> Option<&str> {
    Some(text).filter(|text| !text.is_empty())
}

/// A name that is missing when it is empty.
pub(super) fn optional_name(field: &str, value: &str) -> Result<Option<Arc<str>>, Problem> {
    given(value).map(|value| name(field, value)).transpose()
}

/// Why a lease should stop, in short: many are told of in one message, which has to stay one that clients can read.
pub(super) fn cancel_reason(reason: Option<Arc<str>>) -> String {
    reason.map(|reason| shortened(&reason).to_owned()).unwrap_or_default()
}

/// A value that is missing when it is zero or empty.
pub(super) fn nonzero<N: Default + PartialEq>(value: N) -> Option<N> {
    Some(value).filter(|value| *value != N::default())
}

pub(super) fn parse_queues(queues: &[String]) -> Result<Vec<Arc<str>>, Problem> {
    if queues.is_empty() {
        return Ok(vec![Arc::from(DEFAULT_QUEUE)]);
    }
    name_list("queues", queues, MAX_POLL_QUEUES)
}

/// Checks the length of a list.
pub(super) fn at_most(field: &str, count: usize, max: usize) -> Result<(), Problem> {
    if count > max {
        return Err(Problem::field(field, format!("must be at most {max}, but are {count}")));
    }
    Ok(())
}

pub(super) fn timestamp(time: Time) -> prost_types::Timestamp {
    prost_types::Timestamp {
        seconds: i64::try_from(time.0 / 1_000).unwrap_or(i64::MAX),
        nanos: (time.0 % 1_000) as i32 * 1_000_000,
    }
}

pub(super) fn millis(ms: u64) -> prost_types::Duration {
    span(Duration::from_millis(ms))
}

pub(super) fn span(span: Duration) -> prost_types::Duration {
    prost_types::Duration {
        seconds: i64::try_from(span.as_secs()).unwrap_or(i64::MAX),
        nanos: span.subsec_nanos() as i32,
    }
}

/// A time from outside, as the JSON types have it.
pub(super) fn parse_timestamp(field: &str, time: prost_types::Timestamp) -> Result<jiff::Timestamp, Problem> {
    jiff::Timestamp::new(time.seconds, time.nanos).map_err(|_| Problem::field(field, "is not a time"))
}

pub(super) fn state(state: TaskState) -> grpc::TaskState {
    match state {
        TaskState::Waiting => grpc::TaskState::Waiting,
        TaskState::Leased => grpc::TaskState::Leased,
        TaskState::Completed => grpc::TaskState::Completed,
        TaskState::Failed => grpc::TaskState::Failed,
        TaskState::Dead => grpc::TaskState::Dead,
    }
}

/// What an error is when the worker does not say is the same in every contract.
pub(super) fn category(category: i32) -> Result<Category, Problem> {
    let category = grpc::ErrorCategory::try_from(category).map_err(|_| {
        Problem::field("error_category", format!("{category} is none of those that there are"))
    })?;
    Ok(match category {
        grpc::ErrorCategory::Unspecified | grpc::ErrorCategory::UserCode => Category::UserCode,
        grpc::ErrorCategory::DataQuality => Category::DataQuality,
        grpc::ErrorCategory::Infrastructure => Category::Infrastructure,
        grpc::ErrorCategory::Configuration => Category::Configuration,
        grpc::ErrorCategory::Timeout => Category::Timeout,
        grpc::ErrorCategory::Cancelled => Category::Cancelled,
    })
}

/// The status that a worker reports. An unknown state is taken as BUSY: it decides nothing.
pub(super) fn worker_status(state: i32, stats: Option<&grpc::WorkerStats>) -> WorkerStatus {
    let activity = match grpc::WorkerState::try_from(state) {
        Ok(grpc::WorkerState::Idle) => Activity::Idle,
        Ok(grpc::WorkerState::Draining) => Activity::Draining,
        Ok(grpc::WorkerState::Busy) | Err(_) => Activity::Busy,
    };
    let count = |count: i64| u64::try_from(count).unwrap_or(0);
    let stats = stats.cloned().unwrap_or_default();
    WorkerStatus {
        activity,
        active_tasks: count(stats.active_tasks.into()),
        total_completed: count(stats.total_completed),
        total_failed: count(stats.total_failed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_spans_keep_their_milliseconds() {
        let time = timestamp(Time(1_700_000_000_123));
        assert_eq!((time.seconds, time.nanos), (1_700_000_000, 123_000_000));
        assert_eq!(parse_timestamp("deadline", time).unwrap().as_millisecond(), 1_700_000_000_123);
        assert!(parse_timestamp("deadline", prost_types::Timestamp { seconds: i64::MAX, nanos: 0 }).is_err());
        assert_eq!((millis(1_500).seconds, millis(1_500).nanos), (1, 500_000_000));
    }

    #[test]
    fn a_category_that_is_none_is_refused_and_none_given_is_user_code() {
        assert_eq!(category(0).unwrap(), Category::UserCode);
        assert_eq!(category(5).unwrap(), Category::Timeout);
        assert!(category(7).is_err());
    }

    #[test]
    fn negative_counts_count_as_nothing() {
        let stats = grpc::WorkerStats { active_tasks: -1, total_completed: 5, total_failed: i64::MIN };
        let status = worker_status(99, Some(&stats));
        assert_eq!((status.active_tasks, status.total_completed, status.total_failed), (0, 5, 0));
        assert_eq!(status.activity, Activity::Busy);
    }
}
