//! The types of the contracts, JSON and (with the feature `grpc`) protobuf, shared by the server, the command line and
//! the tests.
//!
//! Requests refuse fields that they do not know, so that a misspelt one is not silently ignored. Answers accept
//! them, so that an old client reads a newer server. Payloads, results and resources are kept byte for byte as they
//! were sent. Nothing here decides anything.

mod api_key;
mod batch;
#[cfg(feature = "grpc")]
pub mod bytestream;
mod callback;
mod cancel;
mod claim;
mod envelope;
#[cfg(feature = "grpc")]
pub mod grpc;
mod history;
mod json;
mod lease;
mod list;
mod object;
#[cfg(feature = "openapi")]
mod openapi;
mod problem;
mod push;
mod queue;
#[cfg(feature = "grpc")]
pub mod reapi;
mod report;
mod seconds;
pub mod strict_json;
mod submit;
mod task;
mod task_context;
mod token_key;
mod worker;

/// The header that names the tenant; `default` when it is missing.
pub const TENANT_HEADER: &str = "lessor-tenant";
/// The header that names the workspace; `default` when it is missing.
pub const WORKSPACE_HEADER: &str = "lessor-workspace";
/// The tenant and the workspace of a request that names none.
pub const DEFAULT_SCOPE_NAME: &str = "default";

/// Longest wait of a long poll.
pub const MAX_WAIT_MS: u64 = 60_000;
/// How long a poll for leases waits when it does not say.
pub const DEFAULT_WAIT_MS: u64 = 10_000;
/// Most tasks in one batch.
pub const MAX_BATCH_TASKS: usize = 1_000;
/// Most tasks on one page of a list, and how many there are when the request does not say.
pub const MAX_PAGE_TASKS: usize = 1_000;
pub const DEFAULT_PAGE_TASKS: usize = 100;

pub use api_key::{ApiKey, ApiKeyList, ApiKeyRevoked, CreateApiKey, CreatedApiKey, Role};
pub use batch::{BatchItem, SubmitBatch, SubmittedBatch};
pub use callback::{
    CallbackError, CallbackMetrics, CallbackOutcome, CallbackProblem, CallbackState, CompletionAcknowledged,
    HeartbeatAcknowledged, StartAcknowledged, TaskCompleted, TaskHeartbeat, TaskStarted,
};
pub use cancel::CancelTask;
pub use claim::{
    ClaimJob, ClaimProblem, ClaimedJob, CompleteJob, DEFAULT_CLAIM_WAIT_MS, FailJob, HeartbeatJob,
    JobCompleted, JobError, JobFailed, JobHeartbeat,
};
pub use envelope::TaskEnvelope;
pub use history::{Actor, HistoryEvent, TaskHistory};
pub use json::Json;
pub use lease::{Heartbeat, HeartbeatAnswer, Lease, LeaseTasks, Leases};
pub use list::{ListTasks, TaskList, WaitTask};
pub use problem::{PROBLEM_JSON, Problem};
pub use push::{DEFAULT_PUSH_CONCURRENCY, HIDDEN, PushTarget};
pub use queue::{Queue, QueueConfig, QueueCounts, QueueList, QueueSettings};
pub use report::{
    ReleaseLease, Released, ReportAnswer, ReportCompletion, ReportFailure, ReportedError, Verdict,
};
pub use seconds::Seconds;
pub use submit::{Backoff, SubmitTask, Submitted};
pub use task::{CancelRequested, ErrorCategory, Progress, Task, TaskError, TaskLease, TaskState};
pub use task_context::{EnvelopeContext, TaskContext};
pub use token_key::{RotateTokenKey, TokenKeyRotated};
pub use worker::{
    InstanceList, OrderWorker, WaitInstances, Worker, WorkerList, WorkerRegistration, WorkerState,
};
