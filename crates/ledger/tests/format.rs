//! The format that releases have written must stay readable, byte for byte.
//!
//! `fixtures/v1` is a directory as format version 1 wrote it, and so on. A new version gets a fixture of its own, and
//! the old ones stay.

use std::{fs, ops::ControlFlow, path::Path};

use ledger::{
    BatchBuilder, ClusterId, Ledger, Position, Reader,
    file::{FileLedger, Options},
};

const CLUSTER: ClusterId = ClusterId(*b"version 1 format");
const RECORDS: u64 = 21;
const SNAPSHOT_BEGIN: u64 = 9;
const SNAPSHOT_END: u64 = 10;

fn options() -> Options {
    Options { segment_bytes: 4096, create: Some(CLUSTER), ..Options::default() }
}

fn record(position: u64) -> Vec<u8> {
    format!("record {position} of the fixture; ").repeat(position as usize % 7 * 4).into_bytes()
}

/// The history in the fixture: three rotations, one of them into the reserve, and a snapshot.
fn write_history(path: &Path) {
    let (mut ledger, _) = FileLedger::open_dir(path, options()).expect("made");
    for count in [1, 2, 0, 3, 4, 5, 0, 6] {
        if ledger.next() == Position(7) {
            ledger.reserve_job().expect("none yet").run().expect("there is space");
        }
        let mut builder = BatchBuilder::new(ledger.next());
        for _ in 0..count {
            builder.push(&record(builder.next().0)).expect("fits");
        }
        let time_ms = 1_700_000_000_000 + builder.first().0;
        ledger.append(&builder.finish(time_ms)).expect("the disk works");
        if ledger.next() == Position(SNAPSHOT_END + 1) {
            let mut writer = ledger.begin_snapshot(Position(SNAPSHOT_BEGIN)).expect("begun");
            for block in [b"first block".as_slice(), b"", &[0; 1000]] {
                writer.write_block(block).expect("written");
            }
            writer.finish(Position(SNAPSHOT_END)).expect("stored");
        }
    }
    assert_eq!(ledger.next(), Position(RECORDS + 1));
}

fn fixture(version: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(version)
}

/// Every file of a ledger, by name; the lock holds nothing.
fn files(path: &Path) -> Vec<(String, Vec<u8>)> {
    let mut files: Vec<_> = path
        .read_dir()
        .expect("a directory")
        .map(|entry| entry.expect("readable"))
        .map(|entry| (entry.file_name().into_string().expect("ours"), entry.path()))
        .filter(|(name, _)| name != "LOCK")
        .map(|(name, path)| (name, fs::read(path).expect("readable")))
        .collect();
    files.sort();
    files
}

#[test]
fn p12_a_directory_of_format_version_1_can_be_read() {
    assert_can_be_read("v1");
}

#[test]
fn p12_a_directory_of_format_version_2_can_be_read() {
    assert_can_be_read("v2");
}

#[test]
fn p12_a_directory_of_format_version_3_can_be_read() {
    assert_can_be_read("v3");
}

#[test]
fn p12_a_directory_of_format_version_4_can_be_read() {
    assert_can_be_read("v4");
}

fn assert_can_be_read(version: &str) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    for (name, bytes) in files(&fixture(version)) {
        fs::write(directory.path().join(name), bytes).expect("copied");
    }
    let (mut ledger, report) =
        FileLedger::open_dir(directory.path(), Options { create: None, ..options() }).expect("readable");
    assert_eq!((report.cluster, report.first, report.next), (CLUSTER, Position(1), Position(RECORDS + 1)));
    assert_eq!((report.created, report.dropped, report.bad_snapshots), (false, None, vec![]));

    let reader = ledger.reader();
    let snapshots = reader.snapshots().expect("known from the start");
    let mut snapshot = reader.load_snapshot(&snapshots[0]).expect("sound");
    let info = snapshot.info();
    assert_eq!((info.begin, info.end), (Position(SNAPSHOT_BEGIN), Position(SNAPSHOT_END)));
    let (mut block, mut blocks) = (Vec::new(), Vec::new());
    while snapshot.next_block(&mut block).expect("sound") {
        blocks.push(block.clone());
    }
    assert_eq!(blocks, [b"first block".to_vec(), vec![], vec![0; 1000]]);

    let mut expected = 1;
    let replayed = ledger.replay(Position(1), &mut |position, bytes| {
        assert_eq!((position, bytes), (Position(expected), record(expected).as_slice()));
        expected += 1;
        ControlFlow::Continue(())
    });
    replayed.expect("sound");
    assert_eq!(expected, RECORDS + 1);

    let mut builder = BatchBuilder::new(ledger.next());
    builder.push(b"and on").expect("fits");
    ledger.append(&builder.finish(0)).expect("it can be continued");
}

/// Whoever changes a byte of the format on purpose raises `FORMAT_VERSION` and adds a fixture.
#[test]
fn the_same_history_still_gives_the_same_bytes() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    write_history(directory.path());
    for ((name, written), (expected_name, expected)) in
        files(directory.path()).into_iter().zip(files(&fixture("v4")))
    {
        assert_eq!(name, expected_name);
        assert!(written == expected, "{name} differs");
    }
    assert_eq!(files(directory.path()).len(), files(&fixture("v4")).len());
}
