//! Conversions between the wire and the coordinator that several protocol adapters share. They know no adapter.

pub mod content;
pub mod grpc_status;
pub mod ids;
pub mod lease_id;
pub mod lease_ref;
pub mod names;
pub mod page_token;
pub mod problem;
pub mod push_target;
pub mod report;
pub mod scope;
pub mod submission;
pub mod task_json;
pub mod task_token;
pub mod time;
