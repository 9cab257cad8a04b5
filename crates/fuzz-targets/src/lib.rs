//! The decoders of everything that comes from outside or from a disk, as functions for a fuzzer.
//!
//! A target gets arbitrary bytes and must not panic. Its seeds are inputs that the product itself makes, so that a fuzzer
//! begins behind the checksums. The tests of this crate run every target over its seeds and its corpus, with a stable
//! toolchain; `cargo fuzz` runs the same functions for as long as it is let.

mod content_store;
mod ledger_files;
mod messages;
mod texts;

/// A decoder under test.
pub struct Target {
    pub name: &'static str,
    pub run: fn(&[u8]),
    /// Sound inputs.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

pub const TARGETS: &[Target] = &[
    Target { name: "content_store_pack", run: content_store::pack, seeds: content_store::packs },
    Target { name: "json_request", run: texts::json_request, seeds: texts::json_requests },
    Target { name: "lease_id", run: texts::lease_id, seeds: texts::lease_ids },
    Target { name: "ledger_record", run: ledger_files::record, seeds: ledger_files::records },
    Target { name: "ledger_segment", run: ledger_files::segment, seeds: ledger_files::segments },
    Target { name: "ledger_snapshot", run: ledger_files::snapshot, seeds: ledger_files::snapshots },
    Target { name: "page_token", run: texts::page_token, seeds: texts::page_tokens },
    Target { name: "protobuf", run: messages::protobuf, seeds: messages::protobufs },
    Target { name: "resource_name", run: texts::resource_name, seeds: texts::resource_names },
    Target { name: "snapshot_block", run: ledger_files::block, seeds: ledger_files::blocks },
    Target { name: "strict_json", run: texts::strict_json, seeds: texts::json_requests },
    Target { name: "task_token", run: texts::task_token, seeds: texts::task_tokens },
];

/// Runs the target with this name.
pub fn run(name: &str, input: &[u8]) {
    if let Some(target) = TARGETS.iter().find(|target| target.name == name) {
        (target.run)(input);
    }
}
