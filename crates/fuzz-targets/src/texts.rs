//! Texts that clients send: ids, tokens, names and JSON.

use serde_json::Value;
use server::fuzzing;

use crate::seeds::{texts as seeds, with_text};

pub(crate) fn lease_id(input: &[u8]) {
    with_text(input, fuzzing::lease_id);
}

pub(crate) fn lease_ids() -> Vec<Vec<u8>> {
    seeds([&fuzzing::sound_lease_id()])
}

pub(crate) fn page_token(input: &[u8]) {
    with_text(input, fuzzing::page_token);
}

pub(crate) fn page_tokens() -> Vec<Vec<u8>> {
    seeds([&fuzzing::sound_page_token()])
}

pub(crate) fn task_token(input: &[u8]) {
    with_text(input, fuzzing::task_token);
}

pub(crate) fn task_tokens() -> Vec<Vec<u8>> {
    seeds([&fuzzing::sound_task_token()])
}

pub(crate) fn resource_name(input: &[u8]) {
    with_text(input, fuzzing::resource_name);
}

pub(crate) fn resource_names() -> Vec<Vec<u8>> {
    const HASH: &str = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";
    seeds([
        &format!("blobs/{HASH}/5"),
        &format!("main/compressed-blobs/zstd/{HASH}/5"),
        &format!("main/blobs/blake3/{HASH}/5"),
        &format!("uploads/6d1c7b1e-0000-0000-0000-000000000000/blobs/{HASH}/5/name"),
        &format!("main/uploads/x/compressed-blobs/zstd/sha256/{HASH}/5"),
    ])
}

pub(crate) fn json_request(input: &[u8]) {
    fuzzing::json_request(input);
}

pub(crate) fn strict_json(input: &[u8]) {
    const MAX_DEPTH: usize = 64;
    if wire::strict_json::check(input, MAX_DEPTH).is_ok() {
        assert!(serde_json::from_slice::<Value>(input).is_ok(), "what is strict is JSON");
    }
    let Ok(canonical) = wire::strict_json::canonical(input) else { return };
    let Ok(value) = serde_json::from_slice::<Value>(input) else { return };
    if !has_float(&value) {
        let again = serde_json::to_vec(&value).ok().and_then(|text| wire::strict_json::canonical(&text).ok());
        assert_eq!(again, Some(canonical), "there is one canonical form");
    }
}

/// A float can be written in a way that is read as its neighbor.
fn has_float(value: &Value) -> bool {
    match value {
        Value::Number(number) => number.is_f64(),
        Value::Array(list) => list.iter().any(has_float),
        Value::Object(members) => members.values().any(has_float),
        Value::Null | Value::Bool(_) | Value::String(_) => false,
    }
}

pub(crate) fn json_requests() -> Vec<Vec<u8>> {
    seeds([
        r#"{"queue":"mail","payload":{"to":"ada@example.com"},"priority":3,"delayMs":10,"maxAttempts":2}"#,
        r#"{"tasks":[{"queue":"a","payload":1},{"queue":"b","payload":[1.5e3,null,"\u00e9\n"]}]}"#,
        r#"{"workerId":"w1","queues":["mail"],"waitMs":10000,"maxTasks":4}"#,
        r#"{"workerId":"w1","result":{"sent":true}}"#,
        r#"{"workerId":"w1","reason":"no","retryable":false,"code":"x"}"#,
        r#"{"leaseMs":60000,"maxQueueSize":10}"#,
        r#"{"deep":[[[[[[[[{"a":[]}]]]]]]]]}"#,
    ])
}
