//! Several writers on one database: the link of a batch fences all but one.

use ledger::postgres::{self, Feed, FeedOptions, Kept, PostgresLedger};
use ledger::{AppendError, ErrorKind, Ledger, Position, Refusal};

use crate::{Backend, Database, append, batch, database_options, read, snapshot, tend};

fn refusal(result: Result<(), AppendError>) -> Refusal {
    match result {
        Err(AppendError::Refused(refusal)) => refusal,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_first_append_of_a_new_writer_fences_the_earlier_writer() {
    let database = Database::create();
    let (mut old, mut new) = (database.open().ledger, database.open().ledger);
    append(&mut *old, 3);
    old.confirm().unwrap();
    drop(std::mem::replace(&mut new, database.open().ledger));
    append(&mut *new, 2);
    let fenced = Refusal::Fenced { expected: Position(6), found: Position(4) };
    assert_eq!(refusal(old.confirm()), fenced, "it must not answer reads either");
    assert_eq!(refusal(old.append(&batch(Position(4), 1))), fenced);
    new.confirm().unwrap();
    append(&mut *new, 1);
    assert_eq!(read(&*new.reader(), 1), 7);
}

#[test]
fn c13_of_several_writers_that_append_at_once_one_wins() {
    let database = Database::create();
    let writers: Vec<_> = (0..4).map(|_| database.open().ledger).collect();
    let won: Vec<bool> = std::thread::scope(|scope| {
        let race = |(count, mut ledger): (u64, Box<dyn Ledger>)| {
            // Each with other content: equal batches would be one batch.
            scope.spawn(move || ledger.append(&batch(Position(1), count)).is_ok())
        };
        let threads: Vec<_> = (1..).zip(writers).map(race).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(won.iter().filter(|won| **won).count(), 1, "{won:?}");
}

/// C3: without the link, its batch would take the place of a batch that everybody has forgotten.
#[test]
fn c3_a_writer_that_slept_until_its_position_was_trimmed_is_fenced() {
    let database = Database::create();
    let mut asleep = database.open().ledger;
    append(&mut *asleep, 5);
    let mut awake = database.open().ledger;
    for _ in 0..4 {
        append(&mut *awake, 40);
        snapshot(&*awake);
        tend(&mut *awake);
    }
    assert!(awake.reader().first().unwrap() > Position(6));
    let refused = refusal(asleep.append(&batch(Position(6), 1)));
    assert!(matches!(refused, Refusal::Fenced { found: Position(6), .. }), "{refused}");
    assert!(asleep.confirm().is_err());
    assert_eq!(awake.reader().record(Position(6)).unwrap(), None);
}

/// C6: the first attempt was committed, but its answer was lost, and the batch is sent again.
#[test]
fn c6_a_batch_that_is_found_in_its_place_is_durable_and_stored_once() {
    let database = Database::create();
    let (mut first, mut again) = (database.open().ledger, database.open().ledger);
    first.append(&batch(Position(1), 3)).unwrap();
    again.append(&batch(Position(1), 3)).unwrap();
    append(&mut *again, 2);
    assert_eq!(read(&*again.reader(), 1), 6);
}

#[test]
fn an_empty_batch_of_a_fenced_writer_is_refused() {
    let database = Database::create();
    let (mut old, mut new) = (database.open().ledger, database.open().ledger);
    append(&mut *new, 1);
    assert!(matches!(refusal(old.append(&batch(Position(1), 0))), Refusal::Fenced { .. }));
}

/// Its standbys follow the new owner, so nobody sends the receipt that it waits for.
#[test]
fn a_writer_that_is_replaced_while_it_waits_for_a_receipt_is_fenced() {
    let database = Database::create();
    let feed = Feed::new(FeedOptions { hot_standbys: 1, answers_wait_for_standby: true });
    let mut old = PostgresLedger::open_after(database.connect("a"), &Kept::default(), feed.clone()).unwrap();
    feed.begin_to_serve();
    let mut new = database.open().ledger;
    let waiting = std::thread::spawn(move || old.append(&batch(Position(1), 3)));
    while new.next() == Position(1) {
        new = database.open().ledger;
    }
    append(&mut *new, 2);
    assert!(matches!(refusal(waiting.join().unwrap()), Refusal::Fenced { .. }));
}

#[test]
fn a_reader_without_a_writer_sees_what_others_append() {
    let database = Database::create();
    let shared = postgres::Database::connect(database.0.clone(), database_options("reader")).unwrap();
    let reader = postgres::PostgresReader::new(shared.clone());
    let mut ledger = PostgresLedger::open(
        postgres::Database::connect(database.0.clone(), database_options("writer")).unwrap(),
    )
    .unwrap();
    append(&mut ledger, 12);
    assert_eq!(read(&reader, 1), 13);
    append(&mut ledger, 12);
    assert_eq!(read(&reader, 5), 25);
}

/// A follower that has everything asks again and again.
#[test]
fn a_follower_sees_every_record_once_and_notices_another_history() {
    let database = Database::create();
    let mut ledger = database.open().ledger;
    let reader = ledger.reader();
    let follow = |from: u64, after| {
        let mut seen = Vec::new();
        let link = reader.follow(Position(from), after, &mut |position, _| {
            seen.push(position.0);
            std::ops::ControlFlow::Continue(())
        });
        (link, seen)
    };
    append(&mut *ledger, 12);
    let (link, seen) = follow(1, None);
    assert_eq!(seen, (1..=12).collect::<Vec<_>>());
    let link = link.unwrap();
    let (again, seen) = follow(13, link);
    assert_eq!((again.unwrap(), seen), (link, vec![]));
    append(&mut *ledger, 3);
    let (last, seen) = follow(13, link);
    assert_eq!(seen, [13, 14, 15]);
    let (other, _) = follow(16, link);
    assert_eq!(other.unwrap(), link, "there is nothing yet");
    append(&mut *ledger, 1);
    assert_eq!(follow(16, link).0.unwrap_err().kind(), ErrorKind::Forked);
    assert_eq!(follow(16, last.unwrap()).1, [16]);
}
