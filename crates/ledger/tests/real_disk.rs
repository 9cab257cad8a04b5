//! The ledger on the operating system's files.

use std::{
    ops::ControlFlow,
    process::Command,
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use ledger::{
    BatchBuilder, ClusterId, ErrorKind, Ledger, Position, Reader,
    file::{Error, FileLedger, FileReader, Options, ReserveJob, SnapshotReader, SnapshotWriter, TrimJob},
};

const CLUSTER: ClusterId = ClusterId([3; 16]);

fn options() -> Options {
    Options {
        segment_bytes: 64 << 10,
        create: Some(CLUSTER),
        history_max_bytes: 256 << 10,
        ..Options::default()
    }
}

fn record(position: u64) -> Vec<u8> {
    vec![position as u8; (position * 37 % 900) as usize]
}

fn append(ledger: &mut FileLedger, count: u64) {
    let mut builder = BatchBuilder::new(ledger.next());
    for _ in 0..count {
        builder.push(&record(builder.next().0)).expect("fits");
    }
    ledger.append(&builder.finish(0)).expect("the disk works");
}

fn check_all(ledger: &FileLedger, from: u64, count: u64) {
    let mut expected = from;
    let replayed = ledger.replay(Position(from), &mut |position, bytes| {
        assert_eq!((position, bytes), (Position(expected), record(expected).as_slice()));
        expected += 1;
        ControlFlow::Continue(())
    });
    replayed.expect("sound");
    assert_eq!(expected, count + 1);
}

#[test]
fn a_ledger_survives_reopening() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("a/new/place");
    let (mut ledger, report) = FileLedger::open_dir(&path, options()).expect("made");
    assert!(report.created);
    for count in 0..40 {
        append(&mut ledger, count);
    }
    drop(ledger);
    let (ledger, report) =
        FileLedger::open_dir(&path, Options { create: None, ..options() }).expect("reopen");
    assert_eq!((report.next, report.dropped), (Position(781), None));
    check_all(&ledger, 1, 780);
}

/// D26: a volume that is not mounted must not become an empty history.
#[test]
fn d26_a_missing_directory_is_made_only_on_request() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("absent");
    let careful = Options { create: None, ..options() };
    assert!(matches!(FileLedger::open_dir(&path, careful.clone()), Err(Error::NotInitialised)));
    assert!(!path.exists());
    assert!(matches!(FileLedger::open_dir(directory.path(), careful), Err(Error::NotInitialised)));
    assert_eq!(directory.path().read_dir().expect("readable").count(), 0, "not even a lock file");
}

/// The data is nobody else's to read.
#[test]
fn files_belong_to_the_owner_alone() {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("ledger");
    let (_ledger, _) = FileLedger::open_dir(&path, options()).expect("made");
    let mode = |path: &std::path::Path| path.metadata().expect("there").permissions().mode() & 0o077;
    assert_eq!(mode(&path), 0);
    for entry in path.read_dir().expect("readable") {
        let entry = entry.expect("readable").path();
        assert_eq!(mode(&entry), 0, "{entry:?}");
    }
}

const CHILD: &str = "LEDGER_TEST_DIRECTORY";

/// P10, D23: while one process has the directory, no other gets it; when it is gone, another does.
#[test]
fn p10_a_second_process_is_refused() {
    if let Some(path) = std::env::var_os(CHILD) {
        // This is the second process.
        let refused = FileLedger::open_dir(path.as_ref(), options());
        assert!(matches!(refused, Err(Error::Locked)));
        return;
    }
    let directory = tempfile::tempdir().expect("a temporary directory");
    let (mut ledger, _) = FileLedger::open_dir(directory.path(), options()).expect("made");
    append(&mut ledger, 5);
    assert!(matches!(FileLedger::open_dir(directory.path(), options()), Err(Error::Locked)));
    let second = Command::new(std::env::current_exe().expect("this test"))
        .args(["--exact", "p10_a_second_process_is_refused"])
        .env(CHILD, directory.path())
        .output()
        .expect("it starts");
    assert!(second.status.success(), "{}", String::from_utf8_lossy(&second.stdout));
    append(&mut ledger, 5);
    drop(ledger);
    let (ledger, _) = FileLedger::open_dir(directory.path(), options()).expect("free again");
    check_all(&ledger, 1, 10);
}

/// P10: of many that start at the same time, exactly one runs.
#[test]
fn p10_of_many_starts_at_once_one_wins() {
    for _ in 0..5 {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let outcomes: Vec<_> = thread::scope(|scope| {
            let start = || scope.spawn(|| FileLedger::open_dir(directory.path(), options()));
            let threads: Vec<_> = (0..8).map(|_| start()).collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
        });
        assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), 1);
        for outcome in outcomes {
            assert!(matches!(outcome, Ok(_) | Err(Error::Locked)), "{:?}", outcome.err());
        }
    }
}

#[test]
fn what_runs_elsewhere_can_be_sent_there() {
    fn send<T: Send>() {}
    fn share<T: Send + Sync + Clone>() {}
    send::<FileLedger>();
    send::<ReserveJob>();
    send::<TrimJob>();
    send::<SnapshotWriter>();
    send::<SnapshotReader>();
    share::<FileReader>();
}

/// The writer, readers, snapshots, the reserve and trimming, all at the same time.
#[test]
fn jobs_and_readers_run_beside_the_writer() {
    const RECORDS: u64 = 6_000;
    let directory = tempfile::tempdir().expect("a temporary directory");
    let (mut ledger, _) = FileLedger::open_dir(directory.path(), options()).expect("made");
    append(&mut ledger, 10);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..2 {
            let reader = ledger.reader();
            let done = &done;
            scope.spawn(move || {
                let mut position = 1;
                while !done.load(Ordering::Relaxed) {
                    let end = reader.next().expect("sound").0 - 1;
                    position = (position * 7919) % end + 1;
                    if let Some(found) = reader.record(Position(position)).expect("sound") {
                        assert_eq!(found, record(position));
                    }
                    let from = reader.first().expect("sound").max(Position(end.saturating_sub(30)));
                    let mut expected = from.0;
                    let read = reader.read(from, Position(end), &mut |position, found| {
                        assert_eq!((position, found), (Position(expected), record(expected).as_slice()));
                        expected += 1;
                        ControlFlow::Continue(())
                    });
                    match read {
                        Ok(()) => assert_eq!(expected, end + 1),
                        // Trimming went past the start meanwhile.
                        Err(error) => assert_eq!(error.kind(), ErrorKind::Trimmed),
                    }
                }
            });
        }
        let mut reserving = None;
        let mut snapshotting: Option<thread::ScopedJoinHandle<'_, ()>> = None;
        while ledger.next().0 < RECORDS {
            append(&mut ledger, 25);
            if let Some(job) = ledger.reserve_job() {
                reserving = Some(scope.spawn(|| job.run()));
            }
            if let Some(job) = reserving.take_if(|job| job.is_finished()) {
                job.join().expect("no panic").expect("there is space");
            }
            if snapshotting.as_ref().is_none_or(|job| job.is_finished()) {
                let end = Position(ledger.next().0 - 1);
                let mut writer = ledger.begin_snapshot(end).expect("one at a time");
                let trim = ledger.trim_job(0);
                snapshotting = Some(scope.spawn(move || {
                    writer.write_block(&end.0.to_le_bytes()).expect("written");
                    writer.finish(end).expect("stored");
                    trim.map(|job| job.run().expect("trimmed"));
                }));
            }
        }
        done.store(true, Ordering::Relaxed);
    });
    let count = ledger.next().0 - 1;
    drop(ledger);
    let (ledger, report) = FileLedger::open_dir(directory.path(), options()).expect("reopen");
    assert!(report.first > Position(1), "history was trimmed");
    let snapshots = ledger.reader().snapshots().expect("known from the start");
    check_all(&ledger, snapshots.last().expect("there is one").begin.0 + 1, count);
    check_all(&ledger, report.first.0, count);
}
