//! Projection offsets: each projection has one of its own, which outlives the process.

use ledger::Position;

use crate::for_each_backend;

#[test]
fn an_offset_is_unknown_until_it_is_saved_and_then_the_newest_counts() {
    for_each_backend(|backend| {
        let offsets = backend.open().offsets;
        assert_eq!(offsets.load("one").unwrap(), None);
        offsets.save("one", Position(5)).unwrap();
        offsets.save("two", Position(7)).unwrap();
        offsets.save("one", Position(9)).unwrap();
        drop(offsets);
        let again = backend.open().offsets;
        assert_eq!(again.load("one").unwrap(), Some(Position(9)));
        assert_eq!(again.load("two").unwrap(), Some(Position(7)));
        assert_eq!(again.load("three").unwrap(), None);
    });
}
