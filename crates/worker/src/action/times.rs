//! The times and the resource usage of an attempt, as metadata of its result (R52).

use std::time::{SystemTime, UNIX_EPOCH};

use bazel_remote_apis::google::protobuf::{Any, Duration, Timestamp};
use execution::any;
use execution::reapi::ExecutedActionMetadata;
use wire::grpc::ResourceUsage;

use crate::executors::{Ran, Usage};

pub(super) fn record_run(metadata: &mut ExecutedActionMetadata, ran: &Ran) {
    metadata.execution_start_timestamp = timestamp(ran.started_at);
    metadata.execution_completed_timestamp = timestamp(ran.ended_at);
    metadata.virtual_execution_duration = Some(Duration {
        seconds: i64::try_from(ran.run_time.as_secs()).unwrap_or(i64::MAX),
        nanos: i32::try_from(ran.run_time.subsec_nanos()).unwrap_or(0),
    });
    metadata.auxiliary_metadata.extend(ran.usage.as_ref().map(used));
}

/// No standard message has the resource usage, so this is `lessor.worker.v1.ResourceUsage`.
fn used(usage: &Usage) -> Any {
    let time = |time| prost_types::Duration::try_from(time).ok();
    let usage = ResourceUsage {
        user_time: time(usage.user_time),
        system_time: time(usage.system_time),
        max_rss_bytes: usage.max_rss_bytes,
    };
    any::pack("lessor.worker.v1.ResourceUsage", &usage)
}

pub(super) fn timestamp(time: SystemTime) -> Option<Timestamp> {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    Some(Timestamp {
        seconds: i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
        nanos: i32::try_from(since.subsec_nanos()).unwrap_or(0),
    })
}

pub(super) fn now() -> Option<Timestamp> {
    timestamp(SystemTime::now())
}
