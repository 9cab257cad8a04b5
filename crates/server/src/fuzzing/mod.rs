//! The crate's own decoders of what clients send, for the fuzz targets. Nothing else may use them.

mod audit_files;
mod credentials;
mod headers;
mod queues;

pub use audit_files::{audit_line, sound_audit_lines};
pub use credentials::{
    authorization, certificate_holder, key_set, opened_secret, sealed_secret, tls_files, verified_token,
};
pub use headers::{host, operation_name, operations_page_token, request_metadata, scope_headers};
pub use queues::queue_config;

use std::sync::Arc;

use authority::{LeaseRef, Position, Scope, TaskId, Time};
use serde::Serialize;
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

/// Verifies a page token. A sound one makes the same text again.
pub fn page_token(text: &str) {
    let (scope, tokens) = (scope(), PageTokens::new(&SECRET));
    let list = List { scope: &scope, queue: None, state: None };
    if let Some(after) = tokens.verify(list, text) {
        assert_eq!(tokens.make(list, &after), text);
    }
}

pub fn sound_page_token() -> String {
    let scope = scope();
    let list = List { scope: &scope, queue: None, state: None };
    PageTokens::new(&SECRET).make(list, &(Arc::from("mail"), Position(9)))
}

/// Verifies a task token, and uses what it says. Only our own lease can be in one with a good signature.
pub fn task_token(text: &str) {
    let tokens = TaskTokens::new(&SECRET, DEFAULT_TTL);
    if let Some((claims, _)) = KeyRing::first(&tokens).verify(text, NOW) {
        assert_eq!(claims.lease(), Some(lease()), "nobody else can sign");
        let _ = claims.is_ageing(NOW);
    }
}

pub fn sound_task_token() -> String {
    KeyRing::first(&TaskTokens::new(&SECRET, DEFAULT_TTL)).issue(&lease(), "run", None, (0, 0), NOW).token
}

pub fn resource_name(text: &str) {
    let _ = resource_name::parse_read(text);
    let _ = resource_name::parse_write(text);
}

/// Reads a body as each request of the HTTP contracts. What was read is written and read again without a difference.
pub fn json_request(body: &[u8]) {
    fn read<T: DeserializeOwned + Serialize>(body: &[u8]) {
        let Ok(request) = parse::<T>(body) else { return };
        let Ok(written) = serde_json::to_vec(&request) else { panic!("what was read cannot be written") };
        let Ok(again) = parse::<T>(&written) else {
            panic!("what was written cannot be read: {}", String::from_utf8_lossy(&written))
        };
        assert_eq!(serde_json::to_vec(&again).ok(), Some(written), "a request changes on its way");
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
    read::<wire::CancelTask>(body);
    read::<wire::CreateApiKey>(body);
}
