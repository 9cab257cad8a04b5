//! Readers: reads from a position, and reads beside the writer.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};

use ledger::Position;

use crate::{END, append, for_each_backend, read, record};

#[test]
fn a_read_starts_anywhere_and_ends_where_it_is_told() {
    for_each_backend(|backend| {
        let mut ledger = backend.open().ledger;
        append(&mut *ledger, 60);
        let reader = ledger.reader();
        for (from, to) in [(1, 1), (17, 45), (60, 60), (45, 90)] {
            let mut positions = Vec::new();
            reader
                .read(Position(from), Position(to), &mut |position, bytes| {
                    assert_eq!(bytes, record(position.0));
                    positions.push(position.0);
                    ControlFlow::Continue(())
                })
                .unwrap();
            assert_eq!(positions, (from..=to.min(60)).collect::<Vec<_>>());
        }
    });
}

#[test]
fn a_read_ends_when_the_visitor_breaks() {
    for_each_backend(|backend| {
        let mut ledger = backend.open().ledger;
        append(&mut *ledger, 10);
        let mut visited = 0;
        ledger
            .reader()
            .read(Position(1), END, &mut |position, _| {
                visited += 1;
                if position == Position(4) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            })
            .unwrap();
        assert_eq!(visited, 4);
    });
}

#[test]
fn readers_beside_the_writer_see_a_growing_prefix() {
    for_each_backend(|backend| {
        let mut ledger = backend.open().ledger;
        let reader = ledger.reader();
        let is_done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let mut seen = 1;
                    while !is_done.load(Ordering::Acquire) {
                        let next = read(&*reader, 1);
                        assert!(next >= seen, "records never vanish");
                        seen = next;
                    }
                    assert_eq!(read(&*reader, 1), 501);
                });
            }
            for _ in 0..50 {
                append(&mut *ledger, 10);
            }
            is_done.store(true, Ordering::Release);
        });
    });
}

#[test]
fn a_search_by_time_starts_at_or_before_the_wanted_record() {
    for_each_backend(|backend| {
        let mut ledger = backend.open().ledger;
        for _ in 0..100 {
            append(&mut *ledger, 1);
        }
        let reader = ledger.reader();
        for time in [0, 1, 50, 100, 1_000] {
            // The suite dates each batch by its first position.
            let start = reader.seek(authority::Time(time)).unwrap();
            assert!(start.0 <= time.max(1), "records before {start} were made before {time}");
        }
    });
}
