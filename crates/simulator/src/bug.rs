//! The injected bugs, around the product's code and within it: a check that cannot fail proves nothing.

use std::io;
use std::sync::Arc;

use authority::injected_bug::InjectedBug;
use disk::{Disk, File};
use fake_disk::FakeDisk;
use ledger::{Batch, BatchBuilder};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// A bug within the product's own code.
    Inside(InjectedBug),
    /// Answers leave when their batch is taken, not when it is durable.
    AnswerBeforeSync,
    /// After a failed sync the coordinator carries on as if it had worked.
    FailedSyncIgnored,
    /// The ledger's syncs do nothing.
    SyncSkipped,
    /// Names of new files are not made durable.
    DirectorySyncSkipped,
    /// A snapshot says that it ends one record earlier than it does.
    SnapshotOneShort,
    /// A snapshot lacks a block.
    SnapshotLacksABlock,
    /// A start leaves the last record out.
    ReplayOneShort,
    /// Time is looked at before requests that were received earlier.
    TickOvertakesRequests,
    /// Undelivered leases are given back at the time of the clock.
    UndeliveredAtClockTime,
    /// Two answers of one batch go to each other's callers.
    AnswersSwapped,
    /// A delivered lease is given back as if it had not been delivered.
    DeliveredTakenBack,
}

impl Bug {
    /// The bugs around the product's code.
    pub const AROUND: &[Bug] = &[
        Bug::AnswerBeforeSync,
        Bug::FailedSyncIgnored,
        Bug::SyncSkipped,
        Bug::DirectorySyncSkipped,
        Bug::SnapshotOneShort,
        Bug::SnapshotLacksABlock,
        Bug::ReplayOneShort,
        Bug::TickOvertakesRequests,
        Bug::UndeliveredAtClockTime,
        Bug::AnswersSwapped,
        Bug::DeliveredTakenBack,
    ];

    /// Every bug that there is.
    pub fn all() -> impl Iterator<Item = Bug> {
        Bug::AROUND.iter().copied().chain(InjectedBug::ALONE.iter().copied().map(Bug::Inside))
    }

    /// Parts of the error messages that the auditor may give for a history with this bug.
    pub fn expected_errors(self) -> &'static [&'static str] {
        const LOST: &[&str] = &["a power cut would", "but the ledger ends before"];
        const FLIPPED: &[&str] = &["a start serves all the same", "is refused, but for something else"];
        match self {
            Bug::AnswerBeforeSync => &["no durable record"],
            Bug::FailedSyncIgnored => LOST,
            Bug::SyncSkipped => &["the segment header is damaged", "the identity is damaged"],
            Bug::DirectorySyncSkipped => &["every segment is missing"],
            Bug::SnapshotOneShort => &["the snapshot ends at", "the tail does not replay"],
            Bug::SnapshotLacksABlock => &["the tail does not replay", "is not what all records give"],
            Bug::ReplayOneShort => &["is not what all records give"],
            Bug::TickOvertakesRequests => &["it was received before the lease ran out"],
            Bug::UndeliveredAtClockTime => &["may not be leased yet", "received before the lease ran out"],
            Bug::AnswersSwapped => &["it is no answer to what was asked"],
            Bug::DeliveredTakenBack => &["it was delivered to its worker"],
            Bug::Inside(injected) => match injected {
                InjectedBug::LateReportCommits => &["the lease had passed its time"],
                InjectedBug::GraceNotChecked => &["the grace of its cancel was over"],
                InjectedBug::ExpiredLeaseRevived => &["the lease had passed its time"],
                InjectedBug::RequeueForgotten => &["never ends"],
                InjectedBug::ConflictingReportAccepted => &["what is recorded is"],
                InjectedBug::RepeatCalledStale => &["no record discards it"],
                InjectedBug::CancelledWaitsAgain => &["it waits again after a cancel"],
                InjectedBug::LeaseGrantedTwice => &["the task does not wait"],
                InjectedBug::WaitingTaskPurged => &["has not ended, or is purged already"],
                InjectedBug::DedupKeyForgotten => &["its dedup key belongs to another task"],
                InjectedBug::TokenRepeated => &["no durable record grants it"],
                InjectedBug::ExpiryCostsNothing => &["counts the attempts in another way"],
                InjectedBug::RetryDelayIgnored => &["the task may not be leased yet"],
                InjectedBug::RetryForgotten => &["the policy asks for another end"],
                InjectedBug::BackoffForgotten => &["its next attempt is not when the backoff says"],
                InjectedBug::ReadyOrderReversed => &["stood before it in the queue"],
                InjectedBug::WrongWorkerAccepted => &["its holder", "the lease is another worker's"],
                InjectedBug::StaleLeaseAccepted => &["is not the task's current one"],
                InjectedBug::ReportLostToCancel => &["no record discards it"],
                InjectedBug::CancelForgotten => &["the task goes on"],
                InjectedBug::AnyLeaseEndsWithWorker => &["its contract does not end with its worker"],
                InjectedBug::TimersLostAtRestore => &["the due index differs from the tasks"],
                InjectedBug::SettingsLostAtRestore => &["is not what all records give"],
                InjectedBug::WindowAppliedTwice => &["does not fit"],
                InjectedBug::TornFrameApplied => &["was never on its way to the disk", "do not add up"],
                InjectedBug::ChecksumIgnored | InjectedBug::DamagedFrameSkipped => FLIPPED,
                InjectedBug::FailedSyncRetried => LOST,
                InjectedBug::TrimmedTooFar => &["is trimmed, and no usable snapshot stands for it"],
                InjectedBug::ClockFromWall => &["which the ledger had seen"],
                InjectedBug::FailedProjectionPassed => &["is left out", "are applied"],
                // A single coordinator does not have it.
                _ => &[],
            },
        }
    }

    pub fn injected_bug(self) -> Option<InjectedBug> {
        match self {
            Bug::Inside(injected) => Some(injected),
            _ => None,
        }
    }
}

/// The disk as the ledger sees it, with the injected bug if it is one of the disk's.
pub(crate) fn disk(bug: Option<Bug>, disk: &FakeDisk) -> Arc<dyn Disk> {
    match bug {
        Some(Bug::SyncSkipped) => Arc::new(Lazy { disk: disk.clone(), files: true }),
        Some(Bug::DirectorySyncSkipped) => Arc::new(Lazy { disk: disk.clone(), files: false }),
        _ => Arc::new(disk.clone()),
    }
}

/// The same batch again, for the disk, when the engine learned too early that its own batch is durable.
pub(crate) fn copy(batch: &Batch) -> Batch {
    let mut copy = BatchBuilder::new(batch.first());
    for (_, record) in batch.records() {
        let _ = copy.push(record);
    }
    copy.finish(batch.time_ms())
}

/// Leaves out the syncs of its files, or those of its directory.
struct Lazy {
    disk: FakeDisk,
    files: bool,
}

struct LazyFile(Arc<dyn File>);

impl Lazy {
    fn file(&self, file: Arc<dyn File>) -> Arc<dyn File> {
        if self.files { Arc::new(LazyFile(file)) } else { file }
    }
}

impl Disk for Lazy {
    fn lock(&self) -> io::Result<Box<dyn Send + Sync>> {
        self.disk.lock()
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn File>> {
        Ok(self.file(self.disk.create(name)?))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn File>> {
        Ok(self.file(self.disk.open(name)?))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        self.disk.list()
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.disk.rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.disk.remove(name)
    }

    fn exists(&self, name: &str) -> io::Result<bool> {
        self.disk.exists(name)
    }

    fn sync_dir(&self) -> io::Result<()> {
        if self.files { self.disk.sync_dir() } else { Ok(()) }
    }
}

impl File for LazyFile {
    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_at(into, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        self.0.write_at(bytes, offset)
    }

    fn allocate(&self, bytes: u64) -> io::Result<()> {
        self.0.allocate(bytes)?;
        self.0.sync_data()
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }
}
