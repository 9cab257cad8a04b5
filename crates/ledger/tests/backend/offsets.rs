//! Projection offsets: each projection has one of its own, which outlives the process.

use fake_disk::FakeDisk;
use ledger::file::OffsetFiles;
use ledger::memory::MemoryStorage;
use ledger::{ErrorKind, Position, ProjectionOffsets};

use std::sync::Arc;

use crate::{Backend, Database, for_each_backend};

#[test]
fn an_offset_is_unknown_until_it_is_saved_and_then_the_newest_counts() {
    for_each_backend(|backend| {
        let offsets = backend.open().offsets;
        assert_eq!(offsets.load("one").unwrap(), None);
        offsets.save("one", Position(5), 1).unwrap();
        offsets.save("two", Position(7), 1).unwrap();
        offsets.save("one", Position(9), 1).unwrap();
        drop(offsets);
        let again = backend.open().offsets;
        assert_eq!(again.load("one").unwrap(), Some(Position(9)));
        assert_eq!(again.load("two").unwrap(), Some(Position(7)));
        assert_eq!(again.load("three").unwrap(), None);
    });
}

#[test]
fn an_earlier_owner_does_not_overwrite_the_offset_of_its_successor() {
    for storage in [Database::create().open(), MemoryStorage::default().open()] {
        let offsets = storage.offsets;
        offsets.save("one", Position(5), 2).unwrap();
        offsets.save("one", Position(9), 1).unwrap();
        assert_eq!(offsets.load("one").unwrap(), Some(Position(5)));
        offsets.save("one", Position(3), 3).unwrap();
        assert_eq!(offsets.load("one").unwrap(), Some(Position(3)));
    }
}

/// A flipped bit made another position of the saved one: records were skipped, or the server waited for records that
/// were never written.
#[test]
fn an_offset_with_a_flipped_bit_or_a_missing_byte_is_refused() {
    let disk = FakeDisk::new();
    let offsets = OffsetFiles::new(Arc::new(disk.clone()));
    offsets.save("one", Position(1_234_567), 1).unwrap();
    let saved = disk.content("one").unwrap();
    let damaged = |content: Vec<u8>| {
        disk.put("one", content);
        offsets.load("one")
    };
    for bit in 0..saved.len() * 8 {
        let mut content = saved.clone();
        content[bit / 8] ^= 1 << (bit % 8);
        let loaded = damaged(content.clone());
        let same = matches!(loaded, Ok(Some(Position(1_234_567))));
        let refused = loaded.as_ref().is_err_and(|error| error.kind() == ErrorKind::Damaged);
        assert!(same || refused, "{:?}: {loaded:?}", String::from_utf8_lossy(&content));
    }
    // The last byte is the end of the line.
    for length in 0..saved.len() - 1 {
        let loaded = damaged(saved[..length].to_vec());
        assert!(loaded.is_err(), "{length} bytes: {loaded:?}");
    }
}

#[test]
fn an_offset_that_an_earlier_version_saved_is_read() {
    let disk = FakeDisk::new();
    disk.put("one", b"1234567\n".to_vec());
    let offsets = OffsetFiles::new(Arc::new(disk));
    assert_eq!(offsets.load("one").unwrap(), Some(Position(1_234_567)));
}
