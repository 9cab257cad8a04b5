//! A client of a coordinator in this process: the limits of the core and the disk, without a network.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use authority::command::{Grant, LeaseTasks, ReportCompletion, SubmitAnswer, SubmitTask, Verdict};
use authority::{Contract, Digest, LeaseRef, Outcome, Properties, QueueKey, Scope, TaskId};
use coordinator::Handle;

/// How long a worker waits for a task.
const POLL: Duration = Duration::from_secs(30);

/// A client and a worker of the coordinator in this process.
#[derive(Clone)]
pub(crate) struct InProcess {
    handle: Handle,
    queue: Arc<QueueKey>,
    properties: Arc<Properties>,
    payload: Arc<[u8]>,
    next_id: Arc<AtomicU64>,
}

impl InProcess {
    pub(crate) fn new(handle: Handle, payload_bytes: usize) -> InProcess {
        let scope = Scope { tenant: Arc::from("default"), workspace: Arc::from("default") };
        InProcess {
            handle,
            queue: Arc::new(QueueKey { scope, name: Arc::from("bench") }),
            properties: Arc::new(Properties::default()),
            payload: vec![b'1'; payload_bytes].into(),
            next_id: Arc::new(AtomicU64::new(1)),
        }
    }

    pub(crate) fn handle(&self) -> &Handle {
        &self.handle
    }

    pub(crate) fn task(&self) -> SubmitTask {
        let number = u128::from(self.next_id.fetch_add(1, Ordering::Relaxed));
        SubmitTask {
            // Percentiles over the id space as random ids are.
            id: TaskId(number.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835)),
            queue: self.queue.clone(),
            payload: self.payload.clone(),
            priority: 0,
            delay_ms: 0,
            properties: self.properties.clone(),
            options: None,
            operation: None,
        }
    }

    /// A task whose id no other run on the same ledger has used.
    pub(crate) fn fresh_task(&self) -> SubmitTask {
        let mut task = self.task();
        task.id.0 ^= u128::from(self.handle.now().0) << 64;
        task
    }

    pub(crate) async fn submit(&self) -> Result<()> {
        match self.handle.submit(self.task()).await? {
            SubmitAnswer::Created(_) => Ok(()),
            other => bail!("a submit was answered {other:?}"),
        }
    }

    pub(crate) fn ask(&self, worker: &Arc<str>, max_tasks: usize) -> LeaseTasks {
        LeaseTasks {
            scope: self.queue.scope.clone(),
            worker: worker.clone(),
            session: None,
            queues: vec![self.queue.name.clone()],
            properties: self.properties.clone(),
            max_tasks,
            request: None,
            contract: Contract::Leases,
        }
    }

    pub(crate) async fn lease(&self, worker: &Arc<str>) -> Result<Grant> {
        let mut grants = self.handle.lease(self.ask(worker, 1), POLL).await?;
        grants.pop().context("no task came in time")
    }

    pub(crate) async fn complete(&self, worker: &Arc<str>, grant: &Grant) -> Result<()> {
        let lease = LeaseRef {
            scope: self.queue.scope.clone(),
            worker: worker.clone(),
            task: grant.task,
            attempt: grant.attempt,
            fencing_token: grant.fencing_token,
        };
        let report =
            ReportCompletion { lease, digest: Digest([0; 16]), result: Arc::from(&b"1"[..]), details: None };
        match self.handle.complete(report).await? {
            Verdict::Committed(Outcome::Completed) => Ok(()),
            other => bail!("a completion was answered {other:?}"),
        }
    }
}
