//! One conformance suite for every storage backend. A new backend adds its own implementation of [`Backend`] and one
//! line to [`for_each_backend`].

mod appends;
mod database_failures;
mod database_setup;
mod fencing;
mod lost_answers;
mod membership;
mod migrations;
mod offsets;
mod proxy;
mod readers;
mod ready_session;
mod recovery;
mod refused_sessions;
mod snapshots;
mod trim;

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use authority::Time;
use ledger::file::{FileLedger, OffsetFiles, Options};
use ledger::memory::MemoryStorage;
use ledger::postgres::{self, Cluster, Server};
use ledger::{Batch, BatchBuilder, ClusterId, Ledger, Position, Reader, Storage};

const END: Position = Position(u64::MAX);

/// Storage that outlives the ledgers that are opened on it.
trait Backend {
    fn open(&self) -> Storage;
}

impl Backend for MemoryStorage {
    fn open(&self) -> Storage {
        MemoryStorage::open(self)
    }
}

/// A directory with small segments, so that the suite fills several.
struct Files(tempfile::TempDir);

impl Backend for Files {
    fn open(&self) -> Storage {
        open_files(self.0.path())
    }
}

fn open_files(path: &Path) -> Storage {
    let options = Options {
        segment_bytes: 16 << 10,
        create: Some(ClusterId([5; 16])),
        history_max_bytes: 0,
        ..Options::default()
    };
    let (ledger, _) = FileLedger::open_dir(&path.join("ledger"), options).expect("the directory is ours");
    let offsets = OffsetFiles::open_dir(&path.join("offsets")).expect("the directory is ours");
    Storage { ledger: Box::new(ledger), offsets: Arc::new(offsets) }
}

/// A database of its own on the server that the tests share.
struct Database(Server);

const CLUSTER: Cluster = Cluster { id: ClusterId([5; 16]), shards: 1, key_print: [9; 16] };

impl Database {
    fn create() -> Database {
        let url = test_servers::postgres::shared().create_database();
        let server = server(&url);
        postgres::initialize(&server, CLUSTER).expect("the database is new");
        Database(server)
    }

    /// The connection of a node.
    fn connect(&self, node: &str) -> postgres::Database {
        postgres::Database::connect(self.0.clone(), database_options(node)).expect("the database is ours")
    }
}

/// A server that loses everything with the machine.
fn server(url: &str) -> Server {
    Server { config: url.parse().expect("an address"), tls: None, unsafe_no_sync: true }
}

fn database_options(node: &str) -> postgres::Options {
    postgres::Options { history_max_bytes: 0, ..postgres::Options::new(node, CLUSTER.key_print) }
}

impl Backend for Database {
    fn open(&self) -> Storage {
        postgres::open(self.0.clone(), database_options("a")).expect("the database is ours")
    }
}

fn for_each_backend(test: impl Fn(&dyn Backend)) {
    test(&Files(tempfile::tempdir().expect("a directory")));
    test(&MemoryStorage::default());
    test(&Database::create());
}

/// The record that the suite writes at a position.
fn record(position: u64) -> Vec<u8> {
    let mut bytes = format!("record {position} ").into_bytes();
    bytes.resize(bytes.len() + (position * 37 % 900) as usize, position as u8);
    bytes
}

fn batch(first: Position, count: u64) -> Batch {
    let mut builder = BatchBuilder::new(first);
    for position in first.0..first.0 + count {
        builder.push(&record(position)).expect("small records fit");
    }
    builder.finish(first.0)
}

/// Appends records in batches of ten at most, and an empty batch for none.
fn append(ledger: &mut dyn Ledger, count: u64) {
    let mut left = count;
    loop {
        let part = left.min(10);
        ledger.append(&batch(ledger.next(), part)).expect("the storage works");
        left -= part;
        if left == 0 {
            return;
        }
    }
}

/// Reads from `from` to the end, checks every record, and returns the position after the last.
fn read(reader: &dyn Reader, from: u64) -> u64 {
    let mut next = from;
    let read = reader.read(Position(from), END, &mut |position, bytes| {
        assert_eq!((position, bytes), (Position(next), &*record(next)));
        next += 1;
        ControlFlow::Continue(())
    });
    read.expect("the records are there");
    next
}

/// Stores a snapshot of two blocks that stands for every record so far.
fn snapshot(ledger: &dyn Ledger) -> Position {
    let end = Position(ledger.next().0 - 1);
    let mut sink = ledger.begin_snapshot(end).expect("no other is being written");
    sink.write_block(b"first block").expect("the storage works");
    sink.write_block(&end.0.to_le_bytes()).expect("the storage works");
    sink.finish(end).expect("the end is durable");
    end
}

/// Runs all maintenance that is due.
fn tend(ledger: &mut dyn Ledger) {
    while let Some(job) = ledger.tend(Time(u64::MAX)) {
        (job.run)();
    }
}
