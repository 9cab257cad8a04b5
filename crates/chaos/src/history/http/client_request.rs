//! Parses a call of a client: the endpoint and the body.

use authority::TaskId;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::super::names::task_id;
use crate::api::Call;

pub(super) enum ClientRequest {
    Submit(Box<wire::SubmitTask>),
    Batch(Vec<wire::SubmitTask>),
    Read(TaskId),
    List,
    Cancel(TaskId, wire::CancelTask),
    Configure(String, Box<wire::QueueConfig>),
}

impl ClientRequest {
    /// None when it is nonsense, or asks for what is no request to the coordinator, like a history.
    pub(super) fn parse(call: &Call) -> Option<ClientRequest> {
        let (path, _query) = call.path.split_once('?').unwrap_or((&call.path, ""));
        let parts: Vec<&str> = path.trim_start_matches("/v1/").split('/').collect();
        let body = &call.body;
        Some(match (call.method.as_str(), parts.as_slice()) {
            ("POST", ["tasks"]) => ClientRequest::Submit(parse(body)?),
            ("POST", ["tasks", "batch"]) => ClientRequest::Batch(parse::<wire::SubmitBatch>(body)?.tasks),
            ("GET", ["tasks"]) => ClientRequest::List,
            ("GET", ["tasks", id]) => ClientRequest::Read(task_id(id)?),
            ("POST", ["tasks", id, "cancel"]) => ClientRequest::Cancel(task_id(id)?, parse(body)?),
            ("PUT", ["queues", name]) => ClientRequest::Configure((*name).to_owned(), parse(body)?),
            _ => return None,
        })
    }
}

fn parse<T: DeserializeOwned>(body: &Value) -> Option<T> {
    serde_json::from_value(body.clone()).ok()
}
