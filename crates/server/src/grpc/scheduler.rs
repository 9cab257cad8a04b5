//! The settings of the worker service, and what all its calls share.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use authority::Scope;
use coordinator::LogBudget;
use tokio::sync::{Mutex, MutexGuard, OwnedSemaphorePermit, Semaphore};

use crate::convert::{Code, Problem};
use crate::edge::limits::{PoolPermit, SharedPool};

/// Most streams of workers at one time; tenants share them.
const MAX_WORK_STREAMS: usize = 10_000;
/// Most watches of the health service at one time. Anyone may watch, so they take nothing away from workers.
const MAX_HEALTH_WATCHES: usize = 1_000;
/// Locks that keep registrations of one worker apart; different workers seldom share one.
const TURNS: usize = 256;
/// Longest wait for a task that may be configured.
const MAX_LONG_POLL: Duration = Duration::from_millis(wire::MAX_WAIT_MS);
/// How often a worker is told to send heartbeats, unless its registration ends sooner than three of them.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(30);

/// How the worker service treats workers (S3-30). Lease lengths and queue sizes are settings of the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scheduler {
    /// A worker that was silent for so long is offered nothing until it registers again.
    pub heartbeat_timeout: Duration,
    /// The longest wait of a call for tasks; more than a minute is taken as a minute.
    pub long_poll_timeout: Duration,
}

impl Default for Scheduler {
    fn default() -> Scheduler {
        Scheduler { heartbeat_timeout: Duration::from_secs(120), long_poll_timeout: Duration::from_secs(30) }
    }
}

/// Most lines in one second about reports that are refused.
const MAX_REFUSED_REPORT_LINES_PER_SECOND: u32 = 100;

pub(crate) struct Shared {
    pub(crate) settings: Scheduler,
    streams: Arc<SharedPool>,
    health_watches: Arc<Semaphore>,
    turns: Vec<Mutex<()>>,
    hasher: RandomState,
    /// The lines about reports that are refused before the coordinator is asked.
    pub(crate) refused_reports: LogBudget,
}

impl Shared {
    pub(crate) fn new(settings: Scheduler) -> Shared {
        let long_poll_timeout = settings.long_poll_timeout.min(MAX_LONG_POLL);
        Shared {
            settings: Scheduler { long_poll_timeout, ..settings },
            streams: SharedPool::new(MAX_WORK_STREAMS),
            health_watches: Arc::new(Semaphore::new(MAX_HEALTH_WATCHES)),
            turns: (0..TURNS).map(|_| Mutex::default()).collect(),
            hasher: RandomState::new(),
            refused_reports: LogBudget::new(MAX_REFUSED_REPORT_LINES_PER_SECOND),
        }
    }

    pub(crate) fn heartbeat_interval(&self) -> Duration {
        HEARTBEAT_INTERVAL.min(self.settings.heartbeat_timeout / 3)
    }

    /// Held while a worker registers, so that its sessions take turns.
    pub(crate) async fn turn(&self, scope: &Scope, worker: &Arc<str>) -> MutexGuard<'_, ()> {
        // By the tenant and not the workspace: a session is one over all of them.
        let number = self.hasher.hash_one((&scope.tenant, worker)) as usize % TURNS;
        self.turns[number].lock().await
    }

    pub(crate) fn stream(&self, tenant: &Arc<str>) -> Result<PoolPermit, Problem> {
        self.streams.take(tenant, 1).ok_or_else(|| {
            let detail = format!(
                "of at most {MAX_WORK_STREAMS} streams of workers, tenant {tenant} has its share, or all are taken"
            );
            Problem::new(Code::TooManyPolls, detail)
        })
    }

    /// A permit to watch the health of a service.
    pub(crate) fn health_watch(&self) -> Result<OwnedSemaphorePermit, Problem> {
        self.health_watches.clone().try_acquire_owned().map_err(|_| {
            let detail = format!("more than {MAX_HEALTH_WATCHES} clients watch the health of this server");
            Problem::new(Code::TooManyPolls, detail)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watches_of_the_health_take_no_stream_from_workers() {
        let shared = Shared::new(Scheduler::default());
        let watches: Vec<_> = (0..MAX_HEALTH_WATCHES).map(|_| shared.health_watch().unwrap()).collect();
        assert_eq!(shared.health_watch().unwrap_err().code, Code::TooManyPolls);
        assert!(shared.stream(&Arc::from("t")).is_ok());
        drop(watches);
        assert!(shared.health_watch().is_ok());
    }
}
