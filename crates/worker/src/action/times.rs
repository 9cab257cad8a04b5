//! Records the times and the resource usage of an attempt (R52).

use std::time::{SystemTime, UNIX_EPOCH};

use bazel_remote_apis::google::protobuf::{Any, Duration, Timestamp};
use execution::any;
use execution::reapi::ExecutedActionMetadata;
use wire::grpc::ResourceUsage;

use crate::executors::{Ran, Usage};

#[derive(Debug)]
pub(super) struct Times {
    metadata: ExecutedActionMetadata,
}

impl Times {
    /// The worker has the action, and begins to fetch.
    pub(super) fn begin() -> Times {
        let now = timestamp(SystemTime::now());
        Times {
            metadata: ExecutedActionMetadata {
                worker_start_timestamp: now,
                input_fetch_start_timestamp: now,
                ..ExecutedActionMetadata::default()
            },
        }
    }

    pub(super) fn inputs_fetched(&mut self) {
        self.metadata.input_fetch_completed_timestamp = timestamp(SystemTime::now());
    }

    /// The command has ended, and its outputs are collected from now on.
    pub(super) fn ran(&mut self, ran: &Ran) {
        self.metadata.execution_start_timestamp = timestamp(ran.started_at);
        self.metadata.execution_completed_timestamp = timestamp(ran.ended_at);
        self.metadata.virtual_execution_duration = Some(Duration {
            seconds: i64::try_from(ran.run_time.as_secs()).unwrap_or(i64::MAX),
            nanos: i32::try_from(ran.run_time.subsec_nanos()).unwrap_or(0),
        });
        self.metadata.auxiliary_metadata.extend(ran.usage.as_ref().map(used));
        self.metadata.output_upload_start_timestamp = timestamp(SystemTime::now());
    }

    pub(super) fn finish(mut self, worker: &str) -> ExecutedActionMetadata {
        let now = timestamp(SystemTime::now());
        self.metadata.worker = worker.to_owned();
        self.metadata.output_upload_completed_timestamp = now;
        self.metadata.worker_completed_timestamp = now;
        self.metadata
    }
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
