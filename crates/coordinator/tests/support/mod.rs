//! Short ways to say what the coordinator's tests say often.

#![allow(dead_code)]

pub(crate) mod direct_peer;
pub(crate) mod stalling_disk;

use std::path::Path;
use std::sync::Arc;

use authority::command::{Grant, LeaseTasks, ReportCompletion, SubmitTask};
use authority::{Digest, LeaseRef, Properties, QueueKey, Scope, TaskId};
use coordinator::{Options, Running};
use disk::Disk;
use ledger::file::{self, FileLedger};
use ledger::memory::MemoryStorage;
use ledger::{ClusterId, Storage};

/// Small enough that tests rotate, large enough for a batch.
pub(crate) const SEGMENT_BYTES: u64 = 32 << 20;

pub(crate) fn scope() -> Scope {
    Scope { tenant: Arc::from("default"), workspace: Arc::from("default") }
}

pub(crate) fn queue(name: &str) -> Arc<QueueKey> {
    Arc::new(QueueKey { scope: scope(), name: Arc::from(name) })
}

pub(crate) fn submit(id: u128, queue_name: &str) -> SubmitTask {
    SubmitTask {
        id: TaskId(id),
        queue: queue(queue_name),
        payload: Arc::from(&b"{}"[..]),
        priority: 0,
        delay_ms: 0,
        properties: Arc::new(Properties::default()),
        options: None,
        operation: None,
    }
}

pub(crate) fn lease(worker: &str, queue_name: &str) -> LeaseTasks {
    LeaseTasks {
        scope: scope(),
        worker: Arc::from(worker),
        session: None,
        queues: vec![Arc::from(queue_name)],
        properties: Arc::new(Properties::default()),
        max_tasks: 1,
        request: None,
        contract: authority::Contract::Leases,
    }
}

pub(crate) fn lease_ref(worker: &str, grant: &Grant) -> LeaseRef {
    LeaseRef {
        scope: scope(),
        worker: Arc::from(worker),
        task: grant.task,
        attempt: grant.attempt,
        fencing_token: grant.fencing_token,
    }
}

pub(crate) fn completion(worker: &str, grant: &Grant) -> ReportCompletion {
    ReportCompletion {
        lease: lease_ref(worker, grant),
        digest: Digest([7; 16]),
        result: Arc::from(&b"1"[..]),
        details: None,
    }
}

pub(crate) fn ledger_options() -> file::Options {
    file::Options {
        create: Some(ClusterId([1; 16])),
        segment_bytes: SEGMENT_BYTES,
        ..file::Options::default()
    }
}

pub(crate) fn storage(directory: &Path) -> Storage {
    let options = file::Options { preallocate_bytes: 1 << 20, ..ledger_options() };
    file::open_data_dir(directory, options).expect("the ledger opens").0
}

/// A file ledger on a disk that is not a directory of the operating system.
pub(crate) fn storage_on(disk: Arc<dyn Disk>) -> Storage {
    let (ledger, _) = FileLedger::open(disk, ledger_options()).expect("the ledger opens");
    Storage { ledger: Box::new(ledger), offsets: MemoryStorage::default().open().offsets }
}

pub(crate) fn start(directory: &Path) -> Running {
    start_on(storage(directory))
}

pub(crate) fn start_on(storage: Storage) -> Running {
    coordinator::start(storage, Options::default()).expect("the coordinator starts")
}
