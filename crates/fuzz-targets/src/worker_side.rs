//! Answers of a server, as workers and push targets get them.

use lessor_sdk::fuzzing as sdk;
use prost::Message;
use prost_types::{Duration, Timestamp};
use worker::fuzzing;

use wire::grpc::LeasedTask;

use crate::seeds::{texts, with_text};

/// The status of an answer in its first two bytes, and its body.
pub(crate) fn sdk_answer(input: &[u8]) {
    if let Some((status, body)) = input.split_first_chunk() {
        sdk::answer(u16::from_be_bytes(*status) % 1_000, body);
    }
}

pub(crate) fn sdk_answers() -> Vec<Vec<u8>> {
    let answers: [(u16, &str); 6] = [
        (200, r#"{"expiresAt":"2030-01-31T12:00:00Z","shouldCancel":true,"cancelReason":"x"}"#),
        (200, r#"{"verdict":"COMMITTED","state":"COMPLETED"}"#),
        (200, r#"{"acknowledged":true,"finalState":"SUCCEEDED","shouldCancel":false,"taskToken":"t2"}"#),
        (
            410,
            r#"{"type":"about:blank","title":"Gone","status":410,"code":"lease_expired","detail":"over","verdict":"CANCELLED"}"#,
        ),
        (409, r#"{"error":"attempt_mismatch","message":"no"}"#),
        (502, "<html>bad gateway</html>"),
    ];
    answers.iter().map(|(status, body)| [&status.to_be_bytes()[..], body.as_bytes()].concat()).collect()
}

pub(crate) fn sdk_leases(input: &[u8]) {
    sdk::leases(input);
}

pub(crate) fn lease_lists() -> Vec<Vec<u8>> {
    texts([
        r#"{"leases":[{"leaseId":"l","taskId":"t","attempt":1,"queue":"mail","payload":{"to":"ada"},"grantedAt":"2026-01-31T12:00:00Z","expiresAt":"2026-01-31T12:01:00Z","heartbeatIntervalMs":20000,"fencingToken":7,"timeoutMs":1000}]}"#,
        r#"{"leases":[]}"#,
    ])
}

pub(crate) fn push_envelope(input: &[u8]) {
    sdk::envelope(input);
}

pub(crate) fn envelopes() -> Vec<Vec<u8>> {
    texts([sdk::ENVELOPE])
}

pub(crate) fn retry_after(input: &[u8]) {
    sdk::retry_after(input);
}

pub(crate) fn waits() -> Vec<Vec<u8>> {
    texts(["1", "120", "18446744073709551615"])
}

pub(crate) fn leased_task(input: &[u8]) {
    fuzzing::leased_task(input);
}

pub(crate) fn leased_tasks() -> Vec<Vec<u8>> {
    let task = LeasedTask {
        lease_id: "l".into(),
        task_id: "t".into(),
        granted_at: Some(Timestamp { seconds: 1_700_000_000, nanos: 0 }),
        lease_expires_at: Some(Timestamp { seconds: 1_700_000_060, nanos: 500 }),
        heartbeat_interval: Some(Duration { seconds: 0, nanos: 500_000_000 }),
        timeout: Some(Duration { seconds: 9, nanos: 0 }),
        resources_json: bytes::Bytes::from_static(b"{\"cpuCores\":1.5,\"memoryBytes\":1024}"),
        ..LeasedTask::default()
    };
    vec![task.encode_to_vec()]
}

pub(crate) fn command_payload(input: &[u8]) {
    fuzzing::command_payload(input);
    fuzzing::resources(input);
}

pub(crate) fn command_payloads() -> Vec<Vec<u8>> {
    texts([
        r#"{"command":["cc","-c","a.c"],"env":{"LANG":"C"},"timeoutMs":60000,"platform":{"os":"linux"}}"#,
        r#"{"cpuCores":1.5,"memoryBytes":1024,"diskBytes":1}"#,
    ])
}

pub(crate) fn input_tree(input: &[u8]) {
    fuzzing::input_tree(input);
}

pub(crate) fn cache_file_name(input: &[u8]) {
    with_text(input, fuzzing::cache_file_name);
}

pub(crate) fn cache_file_names() -> Vec<Vec<u8>> {
    let hash = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";
    texts([format!("{hash}.5.sha256.x"), format!("{hash}.0.blake3.r")])
}
