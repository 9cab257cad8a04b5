//! Snapshots that were put together wrongly are refused, whatever their checksums say.

use authority::Position;
use ledger::record::snapshot::{BlockDecoder, FORMAT, LoadError, Loader, SnapshotEntry};

use crate::samples;

const END: Position = Position(200_000);

fn header() -> SnapshotEntry {
    samples::entries().remove(0)
}

fn a_task() -> SnapshotEntry {
    samples::entries().remove(4)
}

#[test]
fn a_snapshot_begins_with_its_one_header() {
    assert_eq!(Loader::new().entry(a_task()), Err(LoadError::Header));
    assert_eq!(Loader::new().finish(END).err(), Some(LoadError::Header));
    let mut loader = Loader::new();
    assert_eq!(loader.entry(header()), Ok(()));
    assert_eq!(loader.entry(header()), Err(LoadError::Header));
}

#[test]
fn d25_a_snapshot_of_a_newer_format_is_refused() {
    let found = FORMAT + 1;
    let SnapshotEntry::Header { begin, time, .. } = header() else { panic!("the first is the header") };
    let newer = SnapshotEntry::Header { begin, time, format: found };
    assert_eq!(Loader::new().entry(newer), Err(LoadError::NewerFormat { found }));
}

#[test]
fn a_task_that_comes_twice_is_refused() {
    let mut loader = Loader::new();
    assert_eq!(loader.entry(header()), Ok(()));
    assert_eq!(loader.entry(a_task()), Ok(()));
    assert!(matches!(loader.entry(a_task()), Err(LoadError::InvalidTransition(_))));
}

#[test]
fn a_snapshot_holds_nothing_from_beyond_its_end() {
    let loaded = |end| {
        let mut loader = Loader::new();
        loader.entry(header()).expect("the header comes first");
        loader.entry(a_task()).expect("the task is alone");
        loader.finish(Position(end)).map(|state| state.position())
    };
    let newest = Position(123_456);
    assert_eq!(loaded(123_455), Err(LoadError::BeyondEnd { newest, end: Position(123_455) }));
    assert_eq!(loaded(123_456), Ok(newest));
}

#[test]
fn a_block_that_ends_within_an_entry_is_refused() {
    let block = crate::fixture::block_of(&samples::entries()[..4]);
    assert_eq!(load(&block), Ok(()));
    assert!(matches!(load(&block[..block.len() - 1]), Err(LoadError::Decode(_))));
}

fn load(block: &[u8]) -> Result<(), LoadError> {
    let mut loader = Loader::new();
    BlockDecoder::default().entries(block).try_for_each(|entry| loader.entry(entry?))
}
