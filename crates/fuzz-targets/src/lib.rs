//! The decoders of everything that comes from outside or from a disk, as functions for a fuzzer.
//!
//! A target gets arbitrary bytes. It must not panic, and it asserts what its decoder promises. Its seeds are inputs that the
//! product itself makes, so that a fuzzer begins behind the checksums. The tests of this crate run every target over its
//! seeds and its corpus; `cargo xtask fuzz` mutates them for as long as it is let, and `cargo fuzz` runs the same functions.

mod audit_trail;
pub mod campaign;
mod compression;
mod content_store;
mod credentials;
mod execution_messages;
mod ledger_files;
mod messages;
pub mod mutator;
mod names;
mod requests;
mod seeds;
mod small_files;
mod texts;
mod worker_side;

/// A decoder under test.
#[derive(Clone, Copy)]
pub struct Target {
    pub name: &'static str,
    pub run: fn(&[u8]),
    /// Sound inputs.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

const fn target(name: &'static str, run: fn(&[u8]), seeds: fn() -> Vec<Vec<u8>>) -> Target {
    Target { name, run, seeds }
}

pub const TARGETS: &[Target] = &[
    target(
        "action_and_command",
        execution_messages::action_and_command,
        execution_messages::actions_and_commands,
    ),
    target("api_key", credentials::authorization, credentials::authorizations),
    target("audit_file", audit_trail::file, audit_trail::files),
    target("audit_head", audit_trail::head, audit_trail::heads),
    target("audit_line", audit_trail::line, audit_trail::lines),
    target("cache_file_name", worker_side::cache_file_name, worker_side::cache_file_names),
    target("client_certificate", credentials::client_certificate, credentials::certificates),
    target("command_line_value", small_files::command_line_value, small_files::command_line_values),
    target("command_payload", worker_side::command_payload, worker_side::command_payloads),
    target("config_file", small_files::config_file, small_files::config_files),
    target("content_store_list", content_store::list, content_store::lists),
    target("content_store_pack", content_store::pack, content_store::packs),
    target("digest", execution_messages::digest_text, execution_messages::digest_texts),
    target("directory", execution_messages::directory, execution_messages::directories),
    target("execution_payload", execution_messages::payload, execution_messages::payloads),
    target("execution_result", execution_messages::recorded_result, execution_messages::recorded_results),
    target("grpc_request", requests::grpc, requests::grpc_requests),
    target("host_header", names::host, names::hosts),
    target("http_request", requests::http, requests::http_requests),
    target("identity_file", small_files::identity, small_files::identities),
    target("ignore_file", small_files::ignore_file, small_files::ignore_files),
    target("input_tree", worker_side::input_tree, execution_messages::trees),
    target("issuer_claims", credentials::issuer_claims, credentials::claims),
    target("issuer_header", credentials::issuer_header, credentials::headers),
    target("issuer_token", credentials::issuer_token, credentials::issuer_tokens),
    target("json_request", texts::json_request, texts::json_requests),
    target("key_set", credentials::key_set, credentials::key_sets),
    target("lease_id", texts::lease_id, texts::lease_ids),
    target("lease_key", small_files::lease_key, small_files::lease_keys),
    target("leased_task", worker_side::leased_task, worker_side::leased_tasks),
    target("ledger_record", ledger_files::record, ledger_files::records),
    target("ledger_segment", ledger_files::segment, ledger_files::segments),
    target("ledger_snapshot", ledger_files::snapshot, ledger_files::snapshots),
    target("operation_name", names::operation_name, names::operation_names),
    target("operations_page_token", names::operations_page_token, names::operations_page_tokens),
    target("page_token", texts::page_token, texts::page_tokens),
    target("projection_offset", small_files::offset, small_files::offsets),
    target("protobuf", messages::protobuf, messages::protobufs),
    target("push_envelope", worker_side::push_envelope, worker_side::envelopes),
    target("push_secret", credentials::push_secret, credentials::push_secrets),
    target("push_signature", credentials::push_signature, credentials::push_signatures),
    target("queue_config", names::queue_config, names::queue_configs),
    target("relative_path", execution_messages::path, execution_messages::paths),
    target("request_metadata", names::request_metadata, names::metadata_headers),
    target("resource_name", texts::resource_name, texts::resource_names),
    target("retry_after", worker_side::retry_after, worker_side::waits),
    target("scope_header", names::scope, names::scopes),
    target("sdk_answer", worker_side::sdk_answer, worker_side::sdk_answers),
    target("sdk_leases", worker_side::sdk_leases, worker_side::lease_lists),
    target("snapshot_block", ledger_files::block, ledger_files::blocks),
    target("strict_json", texts::strict_json, texts::json_requests),
    target("submit_lines", small_files::submit_lines, small_files::line_files),
    target("system_file", small_files::system_files, small_files::system_lists),
    target("task_id", names::task_id, names::task_ids),
    target("task_token", texts::task_token, texts::task_tokens),
    target("tls_file", credentials::tls_files, credentials::pem_files),
    target("tree", execution_messages::tree, execution_messages::trees),
    target("worker_file", small_files::worker_file, small_files::worker_files),
    target("zstd", compression::zstd, compression::zstd_streams),
];

pub fn find(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}

/// Runs the target with this name.
pub fn run(name: &str, input: &[u8]) {
    if let Some(target) = find(name) {
        (target.run)(input);
    }
}
