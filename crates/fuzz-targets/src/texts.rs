//! Texts that clients send: ids, tokens, names and JSON.

use server::fuzzing;

/// Bytes that are no UTF-8 never reach these decoders.
fn with_text(input: &[u8], decode: fn(&str)) {
    if let Ok(text) = std::str::from_utf8(input) {
        decode(text);
    }
}

fn seeds<const N: usize>(texts: [&str; N]) -> Vec<Vec<u8>> {
    texts.iter().map(|text| text.as_bytes().to_vec()).collect()
}

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
    let _ = wire::strict_json::check(input, MAX_DEPTH);
    let _ = wire::strict_json::canonical(input);
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
