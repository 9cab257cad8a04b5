//! The worker service over gRPC: the messages of calls, and of the stream that carries the same messages.

use tonic::transport::{Channel, Endpoint, Error};
use wire::grpc::worker_scheduler_client::WorkerSchedulerClient;
use wire::grpc::{
    ErrorCategory, LeaseHeartbeat, LeaseTaskRequest, RegisterWorkerRequest, TaskStatus,
    UpdateTaskStatusRequest, WorkHello, WorkRequest,
};

use crate::{LeaseRef, ReportKind, Timeouts};

pub type Client = WorkerSchedulerClient<Channel>;

/// The server at a URL, to which the caller connects at once or on first use.
pub fn endpoint(url: &str, timeouts: Timeouts) -> Result<Endpoint, Error> {
    Ok(Endpoint::from_shared(url.to_owned())?.connect_timeout(timeouts.connect).timeout(timeouts.call))
}

pub fn registration(worker_id: &str) -> RegisterWorkerRequest {
    RegisterWorkerRequest { worker_id: worker_id.to_owned(), ..RegisterWorkerRequest::default() }
}

/// Asks for up to `max_tasks` tasks of a queue, without waiting.
pub fn lease(worker_id: &str, queue: &str, max_tasks: u32) -> LeaseTaskRequest {
    LeaseTaskRequest {
        worker_id: worker_id.to_owned(),
        max_tasks: i32::try_from(max_tasks).unwrap_or(i32::MAX),
        queues: vec![queue.to_owned()],
        ..LeaseTaskRequest::default()
    }
}

/// The first message of a stream.
pub fn hello(worker: RegisterWorkerRequest, queue: &str, credit: u32) -> WorkRequest {
    let hello = WorkHello { worker: Some(worker), queues: vec![queue.to_owned()] };
    WorkRequest { hello: Some(hello), credit, ..WorkRequest::default() }
}

/// An update without a result or an error.
pub fn update(lease: &LeaseRef, status: TaskStatus) -> UpdateTaskStatusRequest {
    let LeaseRef { lease_id, task_id, worker_id, attempt } = lease.clone();
    UpdateTaskStatusRequest {
        lease_id,
        task_id,
        worker_id,
        attempt,
        status: status.into(),
        ..UpdateTaskStatusRequest::default()
    }
}

pub fn report(lease: &LeaseRef, kind: &ReportKind) -> UpdateTaskStatusRequest {
    match kind {
        ReportKind::Completed(result) => UpdateTaskStatusRequest {
            result_json: result.to_string().into(),
            ..update(lease, TaskStatus::Completed)
        },
        ReportKind::Failed(failure) => UpdateTaskStatusRequest {
            error_message: failure.message.clone(),
            error_category: category(failure.category).into(),
            retryable: Some(failure.retryable),
            ..update(lease, TaskStatus::Failed)
        },
        ReportKind::Released => {
            UpdateTaskStatusRequest { release: true, ..update(lease, TaskStatus::Unknown) }
        }
    }
}

/// The part of a heartbeat about one lease.
pub fn heartbeat(lease_id: &str) -> LeaseHeartbeat {
    LeaseHeartbeat { lease_id: lease_id.to_owned(), ..LeaseHeartbeat::default() }
}

fn category(category: wire::ErrorCategory) -> ErrorCategory {
    match category {
        wire::ErrorCategory::UserCode => ErrorCategory::UserCode,
        wire::ErrorCategory::DataQuality => ErrorCategory::DataQuality,
        wire::ErrorCategory::Infrastructure => ErrorCategory::Infrastructure,
        wire::ErrorCategory::Configuration => ErrorCategory::Configuration,
        wire::ErrorCategory::Timeout => ErrorCategory::Timeout,
        wire::ErrorCategory::Cancelled => ErrorCategory::Cancelled,
    }
}
