//! The crate's own decoders of what clients send, for the fuzz targets. Nothing else may use them.

use std::sync::Arc;

use authority::{LeaseRef, Position, Scope, TaskId, Time};
use serde::de::DeserializeOwned;

use crate::convert::lease_id::LeaseIds;
use crate::convert::page_token::{List, PageTokens};
use crate::convert::task_token::{DEFAULT_TTL, KeyRing, TaskTokens};
use crate::edge::json::parse;
use crate::reapi::resource_name;

const SECRET: [u8; 32] = [7; 32];
const NOW: Time = Time(1_000_000_000);

fn scope() -> Scope {
    Scope { tenant: "default".into(), workspace: "default".into() }
}

fn lease() -> LeaseRef {
    LeaseRef {
        scope: scope(),
        worker: Arc::from("w"),
        task: TaskId(1),
        attempt: 1,
        fencing_token: Position(3),
    }
}

/// Verifies a lease id. A sound one makes the same text again.
pub fn lease_id(text: &str) {
    let ids = LeaseIds::new(&SECRET);
    if let Some(lease) = ids.verify(text, &scope(), &Arc::from("w")) {
        assert_eq!(ids.make(&lease), text);
    }
}

pub fn sound_lease_id() -> String {
    LeaseIds::new(&SECRET).make(&lease())
}

pub fn page_token(text: &str) {
    let scope = scope();
    let _ = PageTokens::new(&SECRET).verify(List { scope: &scope, queue: None, state: None }, text);
}

pub fn sound_page_token() -> String {
    let scope = scope();
    let list = List { scope: &scope, queue: None, state: None };
    PageTokens::new(&SECRET).make(list, &(Arc::from("mail"), Position(9)))
}

/// Verifies a task token, and uses what it says.
pub fn task_token(text: &str) {
    let tokens = TaskTokens::new(&SECRET, DEFAULT_TTL);
    if let Some((claims, _)) = KeyRing::first(&tokens).verify(text, NOW) {
        let _ = (claims.lease(), claims.is_ageing(NOW));
    }
}

pub fn sound_task_token() -> String {
    KeyRing::first(&TaskTokens::new(&SECRET, DEFAULT_TTL)).issue(&lease(), "run", None, (0, 0), NOW).token
}

pub fn resource_name(text: &str) {
    let _ = resource_name::parse_read(text);
    let _ = resource_name::parse_write(text);
}

/// Reads a body as each request of the HTTP contracts.
pub fn json_request(body: &[u8]) {
    fn read<T: DeserializeOwned>(body: &[u8]) {
        let _ = parse::<T>(body);
    }
    read::<wire::SubmitTask>(body);
    read::<wire::SubmitBatch>(body);
    read::<wire::LeaseTasks>(body);
    read::<wire::Heartbeat>(body);
    read::<wire::ReportCompletion>(body);
    read::<wire::ReportFailure>(body);
    read::<wire::ReleaseLease>(body);
    read::<wire::QueueConfig>(body);
    read::<wire::ClaimJob>(body);
    read::<wire::HeartbeatJob>(body);
    read::<wire::CompleteJob>(body);
    read::<wire::FailJob>(body);
    read::<wire::TaskStarted>(body);
    read::<wire::TaskHeartbeat>(body);
    read::<wire::TaskCompleted>(body);
}
