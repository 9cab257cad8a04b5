//! Headers and names that clients send beside their requests.

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use bazel_remote_apis::build::bazel::remote::execution::v2::{RequestMetadata, ToolDetails};
use prost::Message;
use server::fuzzing;

use crate::seeds::{texts, with_text};

const TASK: &str = "018f0000-0000-7000-8000-000000000001";

pub(crate) fn host(input: &[u8]) {
    fuzzing::host(input);
}

pub(crate) fn hosts() -> Vec<Vec<u8>> {
    texts(["localhost:8980", "127.0.0.1", "[::1]:8980", "build.example", "evil.example:80"])
}

pub(crate) fn scope(input: &[u8]) {
    fuzzing::scope_headers(input);
}

pub(crate) fn scopes() -> Vec<Vec<u8>> {
    texts(["default", "acme corp", "ümlaut"])
}

pub(crate) fn request_metadata(input: &[u8]) {
    fuzzing::request_metadata(input);
}

pub(crate) fn metadata_headers() -> Vec<Vec<u8>> {
    let tool = ToolDetails { tool_name: "bazel".into(), tool_version: "7.4.1".into() };
    let metadata = RequestMetadata {
        tool_details: Some(tool),
        tool_invocation_id: TASK.into(),
        target_id: "//app:bin".into(),
        action_mnemonic: "CppCompile".into(),
        ..Default::default()
    };
    texts([STANDARD_NO_PAD.encode(metadata.encode_to_vec())])
}

pub(crate) fn operation_name(input: &[u8]) {
    with_text(input, fuzzing::operation_name);
}

pub(crate) fn operation_names() -> Vec<Vec<u8>> {
    let secret = "0123456789abcdef0123456789abcdef";
    texts([format!("operations/{TASK}-{secret}"), format!("main/operations/{TASK}-{secret}")])
}

pub(crate) fn operations_page_token(input: &[u8]) {
    with_text(input, fuzzing::operations_page_token);
}

pub(crate) fn operations_page_tokens() -> Vec<Vec<u8>> {
    texts([fuzzing::sound_page_token(), format!("{}.3", fuzzing::sound_page_token())])
}

/// The id of a task, in the one form that its answers have.
pub(crate) fn task_id(input: &[u8]) {
    with_text(input, |text| {
        if let Some(id) = server::parse_task_id(text) {
            assert_eq!(id.to_string(), text.to_ascii_lowercase());
        }
        let _ = server::fault_of_callback_url(text);
    });
}

pub(crate) fn task_ids() -> Vec<Vec<u8>> {
    texts([TASK, "https://lessor.example:8980/base"])
}

pub(crate) fn queue_config(input: &[u8]) {
    fuzzing::queue_config(input);
}

pub(crate) fn queue_configs() -> Vec<Vec<u8>> {
    texts([
        r#"{"leaseMs":60000,"maxQueueSize":10,"maxAttempts":3,"backoff":{"initialMs":100,"factor":2.0},"retryOn":["INFRASTRUCTURE"]}"#,
        r#"{"push":{"url":"https://hooks.example.com/a?b=c","concurrency":4,"headers":{"Authorization":"Bearer hush"},"secret":"0123456789abcdef"}}"#,
    ])
}
