//! Remote execution in the hands of the hostile: which calls there are, and what only they can suffer.
//!
//! The protocol's crate has no descriptors, so the calls stand in a table here. It is compared with the code that serves
//! them, so that a new one cannot be forgotten.

use std::path::Path;

use bytes::Bytes;
use tonic::Code;

use crate::endpoints::impatient;
use crate::grpc::{framed, send};

const EXECUTION: &str = "build.bazel.remote.execution.v2";

/// Every call that is served, by the trait that has it.
pub(crate) const CALLS: &[(&str, &str, &[&str])] = &[
    ("Capabilities", EXECUTION, &["GetCapabilities"]),
    (
        "ContentAddressableStorage",
        EXECUTION,
        &["FindMissingBlobs", "BatchUpdateBlobs", "BatchReadBlobs", "GetTree"],
    ),
    ("ByteStream", "google.bytestream", &["Read", "Write", "QueryWriteStatus"]),
    ("ActionCache", EXECUTION, &["GetActionResult", "UpdateActionResult"]),
    ("Execution", EXECUTION, &["Execute", "WaitExecution"]),
    (
        "Operations",
        "google.longrunning",
        &["ListOperations", "GetOperation", "DeleteOperation", "CancelOperation", "WaitOperation"],
    ),
];

/// The paths of the calls.
pub(crate) fn calls() -> Vec<String> {
    let paths = CALLS.iter().flat_map(|(service, package, calls)| {
        calls.iter().map(move |call| format!("{package}.{service}/{call}"))
    });
    paths.collect()
}

/// The methods of each `impl Service for Reapi` below a directory.
fn implemented(directory: &Path, found: &mut Vec<(String, String)>) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            implemented(&path, found);
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        for block in text.split("#[tonic::async_trait]\nimpl ").skip(1) {
            let (service, rest) = block.split_once(" for Reapi {").unwrap();
            let body = rest.split("\n}\n").next().unwrap();
            for method in body.split("\n    async fn ").skip(1) {
                let words = method.split('(').next().unwrap().split('_');
                let camel = words.map(|word| word[..1].to_uppercase() + &word[1..]);
                found.push((service.to_owned(), camel.collect()));
            }
        }
    }
}

#[test]
fn the_table_has_every_call_that_is_served() {
    let mut served = Vec::new();
    implemented(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src/reapi"), &mut served);
    let table = CALLS
        .iter()
        .flat_map(|(service, _, calls)| calls.iter().map(|call| ((*service).to_owned(), (*call).to_owned())));
    let mut table: Vec<_> = table.collect();
    served.sort();
    table.sort();
    assert_eq!(served, table);
}

/// A6: a message that says it is larger than any may be is refused before it comes; one of nothing but empty fields takes
/// little more memory than it has bytes times the size of what it names.
#[tokio::test]
async fn a6_huge_messages_and_those_of_a_million_empty_fields_are_refused() {
    let served = impatient().await;
    for path in calls() {
        assert_eq!(send(&served, &path, framed(2_000_000_000, b"x")).await, Code::OutOfRange, "{path}");
    }
    // Field 2 (digests), field 2 (requests): each empty, two bytes a piece.
    let empty = |bytes: usize| Bytes::from([0x12, 0x00].repeat(bytes / 2));
    let cas = format!("{EXECUTION}.ContentAddressableStorage");
    let before = peak_kib();
    for (call, bytes) in
        [("FindMissingBlobs", 4 << 20), ("BatchReadBlobs", 4 << 20), ("BatchUpdateBlobs", 7 << 20)]
    {
        let message = empty(bytes);
        let told = send(&served, &format!("{cas}/{call}"), framed(message.len(), &message)).await;
        assert!(
            matches!(told, Code::InvalidArgument | Code::OutOfRange | Code::ResourceExhausted),
            "{call}: {told:?}"
        );
    }
    let grown_mib = (peak_kib() - before) >> 10;
    assert!(grown_mib < 1_024, "{grown_mib} MiB more than before");
    assert_eq!(served.get("/healthz").await.status, 200);
}

/// The most memory that this process ever had.
fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}
