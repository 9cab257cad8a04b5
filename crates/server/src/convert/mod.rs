//! Conversions between the wire and the coordinator that several protocol adapters share. They know no adapter.

pub(crate) mod content;
pub(crate) mod grpc_status;
pub(crate) mod ids;
pub(crate) mod jwt_crypto;
pub(crate) mod lease_id;
mod limit;
mod message;
pub(crate) mod missing_task;
pub(crate) mod names;
pub(crate) mod page_token;
pub(crate) mod problem;
pub(crate) mod push_secrets;
pub(crate) mod push_target;
mod refusal;
pub(crate) mod report;
pub(crate) mod report_details;
pub(crate) mod request_metadata;
pub(crate) mod scope;
pub(crate) mod submission;
pub(crate) mod task_context;
pub(crate) mod task_json;
pub(crate) mod task_token;
pub(crate) mod time;

pub(crate) use ids::parse_task_id;
pub(crate) use limit::Limit;
pub(crate) use message::{last_wait, message_id};
pub(crate) use problem::{Code, Problem, ReportProblem};
pub(crate) use scope::{Scoped, ScopedPath};
pub(crate) use time::to_timestamp;
