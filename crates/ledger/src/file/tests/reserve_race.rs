//! The job that prepares the reserve: it takes the last space before the batch does, or never runs.

use std::{
    io,
    sync::{Arc, Mutex},
};

use authority::Time;
use disk::{Disk, File};
use fake_disk::FakeDisk;

use super::{super::*, script::*};

/// Has no space for another segment. The job that is under way ends while the disk says so.
struct RacingDisk {
    disk: FakeDisk,
    job: Mutex<Option<reserve::ReserveJob>>,
}

impl Disk for RacingDisk {
    fn create(&self, name: &str) -> io::Result<Arc<dyn File>> {
        if name != names::SEGMENT_TEMP {
            return self.disk.create(name);
        }
        let job = self.job.lock().unwrap().take();
        job.map_or(Ok(()), reserve::ReserveJob::run).expect("the job has the space");
        Err(io::ErrorKind::StorageFull.into())
    }

    fn lock(&self) -> io::Result<Box<dyn Send + Sync>> {
        self.disk.lock()
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn File>> {
        self.disk.open(name)
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
        self.disk.sync_dir()
    }
}

/// The reserve became ready between the batch's look at it and the refusal of the batch. The refusal stayed, although
/// nothing would ever lift it.
#[test]
fn d4_a_batch_without_space_uses_the_reserve_that_became_ready_meanwhile() {
    let fake = FakeDisk::new();
    drop(open(&fake).expect("a new directory"));
    let disk = Arc::new(RacingDisk { disk: fake.clone(), job: Mutex::default() });
    let (mut ledger, _) = FileLedger::open(disk.clone(), options()).expect("reopen");
    *disk.job.lock().unwrap() = ledger.reserve_job();
    while segments(&fake).len() < 2 {
        must_append(&mut ledger, 1);
    }
    assert_eq!(ledger.space(), DiskSpace::Plenty);
    let count = ledger.next().0 - 1;
    drop(ledger);
    assert_eq!(recover(&fake).expect("reopen"), count);
}

/// The thread of the job could not be started, and the ledger waited for the job until the process ended.
#[test]
fn d4_a_reserve_job_that_never_ran_is_given_out_again() {
    let disk = FakeDisk::new();
    let (mut ledger, _) = open(&disk).expect("a new directory");
    drop(Ledger::tend(&mut ledger, Time(1)).expect("the reserve is due"));
    assert_eq!(ledger.space(), DiskSpace::FinishOnly, "nobody knows whether there is space");
    let again = Ledger::tend(&mut ledger, Time(2)).expect("the reserve is still due");
    (again.run)();
    assert_eq!(ledger.space(), DiskSpace::Plenty);
    assert!(disk.names().iter().any(|name| name == names::RESERVE));
}
