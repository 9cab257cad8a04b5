//! Give waiting tasks to a worker: the queues in the order named, in each queue the tasks in their order.

use std::sync::Arc;

use super::Decision;
use super::verdict::{attempts_lost, dead};
use crate::event::{Event, ExpiryCause, LeaseGranted};
use crate::limits::{MAX_GRANT_BYTES, MAX_GRANTS};
use crate::rules;
use crate::state::Slot;
use crate::{
    Contract, DeadReason, Digest, LeaseRef, Position, Properties, QueueKey, Scope, State, Task, TaskId,
    TaskOptions, Time,
};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseTasks {
    pub scope: Scope,
    pub worker: Arc<str>,
    pub session: Option<Arc<str>>,
    pub queues: Vec<Arc<str>>,
    pub properties: Arc<Properties>,
    pub max_tasks: usize,
    /// A digest of the worker's own name for this request: repeating it gives the same leases while they live.
    pub request: Option<Digest>,
    /// The contract that asks.
    pub contract: Contract,
}

/// A lease as its worker gets it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    pub fencing_token: Position,
    pub worker: Arc<str>,
    pub task: TaskId,
    pub attempt: u32,
    pub queue: Arc<QueueKey>,
    pub payload: Arc<[u8]>,
    pub created_at: Time,
    /// The record that made the task wait for its first lease. A later lease or one that is sent again does not have it;
    /// the task's history does.
    pub since: Option<Position>,
    pub granted_at: Time,
    /// How long the lease lives without a heartbeat, by its contract; `expires_at` lies a little later.
    pub length_ms: u64,
    pub expires_at: Time,
    pub heartbeat_interval_ms: u64,
    pub cancel_grace_ms: u64,
    pub options: Option<Arc<TaskOptions>>,
    /// What an earlier attempt had done when it ended; JSON.
    pub partial_progress: Option<Arc<[u8]>>,
}

impl Grant {
    /// The reference by which the worker names the lease.
    pub fn lease_ref(&self) -> LeaseRef {
        LeaseRef {
            scope: self.queue.scope.clone(),
            worker: self.worker.clone(),
            task: self.task,
            attempt: self.attempt,
            fencing_token: self.fencing_token,
        }
    }
}

impl LeaseTasks {
    pub(super) fn decide(&self, state: &State, now: Time) -> Decision<Vec<Grant>> {
        let repeated = self.repeated(state, now);
        if !repeated.is_empty() {
            return Decision::only(repeated);
        }
        let mut events = Vec::new();
        let mut grants = Vec::new();
        let mut granted_bytes = 0;
        let max_tasks = self.max_tasks.min(MAX_GRANTS);
        for (at, name) in self.queues.iter().enumerate() {
            if rules::is_polled_already(&self.queues[..at], name) {
                continue;
            }
            let key = QueueKey { scope: self.scope.clone(), name: name.clone() };
            let Some(queue) = state.queue_by_key(&key) else { continue };
            let mut entries = queue.ready.entries(&self.properties);
            while grants.len() < max_tasks && granted_bytes < MAX_GRANT_BYTES && events.len() < 2 * MAX_GRANTS
            {
                let Some(entry) = entries.next() else { break };
                let task = state.task_at(entry.slot);
                if task.deadline().is_some_and(|deadline| now >= deadline) {
                    events.push(past_deadline(task));
                    continue;
                }
                if task.attempt == u32::MAX {
                    // Leased and given back for billions of times, it has no number left for another attempt.
                    events.push(attempts_lost(task, ExpiryCause::Silence));
                    continue;
                }
                let fencing_token = rules::next_fencing_token(state.position(), events.len());
                let (event, grant) = self.grant(state, entry.slot, fencing_token, now);
                granted_bytes += grant.payload.len();
                events.push(event);
                grants.push(grant);
            }
        }
        Decision { events, answer: grants }
    }

    fn repeated(&self, state: &State, now: Time) -> Vec<Grant> {
        let Some(request) = self.request else { return Vec::new() };
        let mine = state.leases_of(&self.scope.tenant, &self.worker);
        let live = mine.filter(|slot| {
            state
                .task_at(*slot)
                .lease()
                .is_some_and(|lease| lease.request == Some(request) && !lease.is_over(now))
        });
        live.filter(|slot| state.queue_at(*slot).key.scope == self.scope)
            .filter_map(|slot| to_grant(state, slot))
            .collect()
    }

    fn grant(&self, state: &State, slot: Slot, fencing_token: Position, now: Time) -> (Event, Grant) {
        let task = state.task_at(slot);
        let queue = state.queue_at(slot);
        let length_ms = task.lease_ms(&queue.settings);
        let expires_at = lease_end(task, length_ms, now, now);
        let granted = LeaseGranted {
            task: task.id,
            attempt: task.attempt + 1,
            worker: self.worker.clone(),
            session: self.session.clone(),
            request: self.request,
            length_ms,
            expires_at,
            contract: Some(self.contract),
        };
        let grant = Grant {
            fencing_token,
            worker: self.worker.clone(),
            task: task.id,
            attempt: task.attempt + 1,
            queue: queue.key.clone(),
            payload: task.payload.clone(),
            created_at: task.created_at,
            since: task.waiting_since().filter(|_| task.attempt == 0),
            granted_at: now,
            length_ms,
            expires_at,
            heartbeat_interval_ms: queue.settings.heartbeat_interval_for(length_ms),
            cancel_grace_ms: queue.settings.cancel_grace_ms,
            options: task.options.clone(),
            partial_progress: task.partial_progress().cloned(),
        };
        (Event::LeaseGranted(granted), grant)
    }
}

/// When a lease granted or extended now ends. A tenth is added to its length, because an extension younger than
/// that is not recorded and no worker may be expired earlier than its contract says. No lease passes the time
/// limit of its attempt.
pub(super) fn lease_end(task: &Task, length_ms: u64, granted_at: Time, now: Time) -> Time {
    let end = now.plus_ms(length_ms).plus_ms(length_ms / 10);
    match task.timeout_ms() {
        Some(timeout_ms) => end.min(granted_at.plus_ms(timeout_ms)),
        None => end,
    }
}

pub(super) fn past_deadline(task: &Task) -> Event {
    dead(task, DeadReason::Deadline, None)
}

/// A live lease, to be sent again.
fn to_grant(state: &State, slot: Slot) -> Option<Grant> {
    let task = state.task_at(slot);
    let queue = state.queue_at(slot);
    let lease = task.lease()?;
    Some(Grant {
        fencing_token: lease.fencing_token,
        worker: lease.worker.clone(),
        task: task.id,
        attempt: task.attempt,
        queue: queue.key.clone(),
        payload: task.payload.clone(),
        created_at: task.created_at,
        since: None,
        granted_at: lease.granted_at,
        length_ms: lease.length_ms,
        expires_at: lease.expires_at,
        heartbeat_interval_ms: queue.settings.heartbeat_interval_for(lease.length_ms),
        cancel_grace_ms: queue.settings.cancel_grace_ms,
        options: task.options.clone(),
        partial_progress: task.partial_progress().cloned(),
    })
}
