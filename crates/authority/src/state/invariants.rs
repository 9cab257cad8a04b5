//! The invariants of the state, checked with a full scan: for tests, the simulator and offline checks.

use std::collections::{BTreeMap, BTreeSet};

use super::keys::{Eligibility, IndexKeys};
use super::{Slot, State, TenantUsage};
use crate::{Outcome, Phase, TaskState, Time};

impl State {
    /// Says which invariant is broken, or nothing.
    pub fn check_invariants(&self) -> Result<(), String> {
        for (slot, task) in self.tasks.iter() {
            self.check_task(slot).map_err(|what| format!("task {} ({:?}): {what}", task.id, task.state()))?;
        }
        ensure(self.keys.len() <= crate::limits::MAX_KEYS, "more keys live than may")?;
        self.check_leases()?;
        self.check_indexes()
    }

    fn check_task(&self, slot: Slot) -> Result<(), String> {
        let task = self.tasks.at(slot);
        ensure(self.slot_of(task.id) == Some(slot), "is not found by its id")?;
        ensure(task.last >= task.created && task.last <= self.position, "has a last record out of range")?;
        ensure(task.releases <= task.attempt, "was released more often than granted")?;
        // Invariant 2: LEASED has exactly one lease, granted by a record of this task.
        if let Phase::Leased(lease) = &task.phase {
            ensure(task.attempt > 0, "is leased without an attempt")?;
            ensure(
                lease.fencing_token > task.created && lease.fencing_token <= task.last,
                "has a lease out of range",
            )?;
            ensure(task.report_of(lease.fencing_token).is_none(), "has a report on its live lease")?;
        }
        // Invariant 4: at most one report was accepted as the end, and it is the end that the task shows.
        let ends: Vec<Outcome> = task
            .reports
            .iter()
            .map(|report| report.outcome)
            .filter(|outcome| outcome.state().is_some_and(|state| state != TaskState::Waiting))
            .collect();
        ensure(ends.len() <= 1, "has two accepted ends")?;
        if let Some(end) = ends.first() {
            ensure(end.state() == Some(task.state()), "ended in another way than its report")?;
        }
        ensure(
            !matches!(task.state(), TaskState::Completed | TaskState::Failed) || ends.len() == 1,
            "ended without a report",
        )?;
        if let Some((at, ended)) = task.ended() {
            ensure(at <= self.time && ended <= task.last, "ended out of range")?;
        }
        ensure(
            task.cancel.is_none() || task.state() != TaskState::Waiting,
            "waits although it is being cancelled",
        )?;
        let leases: BTreeSet<_> = task.reports.iter().map(|report| report.fencing_token).collect();
        ensure(leases.len() == task.reports.len(), "has two reports on one lease")?;
        ensure(
            task.reports.iter().all(|report| report.attempt <= task.attempt),
            "has a report from the future",
        )
    }

    /// Invariant 1: a lease belongs to exactly one task.
    fn check_leases(&self) -> Result<(), String> {
        let mut numbers = BTreeSet::new();
        for (_, task) in self.tasks.iter() {
            if let Some(lease) = task.lease() {
                ensure(
                    numbers.insert(lease.fencing_token),
                    &format!("lease {} belongs to two tasks", lease.fencing_token),
                )?;
            }
        }
        Ok(())
    }

    /// Invariant 7: every index equals what a scan of the tasks gives.
    fn check_indexes(&self) -> Result<(), String> {
        let mut counts: BTreeMap<(u32, TaskState), u64> = BTreeMap::new();
        let (mut due, mut delayed, mut workers) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        let (mut ready, mut ended, mut created) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        let (mut bytes, mut final_bytes, mut redrives) = (0, 0, BTreeMap::new());
        let mut tenants: BTreeMap<_, TenantUsage> = BTreeMap::new();
        for (slot, task) in self.tasks.iter() {
            let queue = self.queue_by_slot[slot.0 as usize];
            let keys = IndexKeys::of(slot, task, self.ready_until);
            *counts.entry((queue, keys.state)).or_default() += 1;
            due.extend(keys.due.map(|time: Time| (time, slot)));
            workers.extend(keys.worker.map(|worker| (worker, slot)));
            ended.extend(keys.ended.map(|position| (queue, position, slot)));
            created.insert((queue, task.created, slot));
            match keys.eligibility {
                Eligibility::NotLeasable => {}
                Eligibility::Ready(entry) => drop(ready.insert((queue, task.properties.clone(), entry))),
                Eligibility::Delayed(time, _) => drop(delayed.insert((time, slot))),
            }
            bytes += task.bytes();
            let tenant = tenants.entry(&self.queues[&queue].key.scope.tenant).or_default();
            tenant.bytes += task.bytes();
            tenant.open_tasks += usize::from(!task.is_final());
            final_bytes += if task.is_final() { task.bytes() } else { 0 };
            if let Some(old) = task.options.as_ref().and_then(|options| options.redrive_of) {
                redrives.insert(old, task.id);
            }
        }
        ensure(due == self.due, "the due index differs from the tasks")?;
        ensure(delayed == self.delayed, "the delayed index differs from the tasks")?;
        ensure(workers == self.workers, "the worker index differs from the tasks")?;
        ensure(redrives == self.redrives, "the redrive index differs from the tasks")?;
        ensure(bytes == self.bytes, "the byte count differs from the tasks")?;
        ensure(final_bytes == self.final_bytes, "the byte count of final tasks differs from the tasks")?;
        ensure(self.ids.len() == self.tasks.len(), "the id index differs from the tasks")?;
        let (mut queue_ready, mut queue_ended, mut queue_created) =
            (BTreeSet::new(), Vec::new(), BTreeSet::new());
        for (id, queue) in &self.queues {
            tenants.entry(&queue.key.scope.tenant).or_default().queues += 1;
            queue_ready
                .extend(queue.ready.iter().map(|(properties, entry)| (*id, properties.clone(), *entry)));
            queue_ended.extend(queue.ended.iter().map(|(position, slot)| (*id, *position, *slot)));
            queue_created.extend(queue.created.iter().map(|(position, slot)| (*id, *position, *slot)));
            ensure(
                queue.ready.worker_profiles_match_scan(),
                "the heads of a worker profile differ from the requirement sets",
            )?;
            ensure(queue.ready.iter().count() == queue.ready.len(), "the ready count differs")?;
            ensure(!queue.is_unused(), "an unused queue was kept")?;
            let slots = queue.created.iter().map(|(_, slot)| self.tasks.at(*slot));
            let with_key =
                slots.filter(|task| task.options.as_ref().is_some_and(|options| options.dedup.is_some()));
            ensure(with_key.count() == queue.dedup_len(), "the dedup index differs from the tasks")?;
            for state in [
                TaskState::Waiting,
                TaskState::Leased,
                TaskState::Completed,
                TaskState::Failed,
                TaskState::Dead,
            ] {
                let scanned = counts.get(&(*id, state)).copied().unwrap_or(0);
                ensure(scanned == queue.count(state), "a count by state differs from the tasks")?;
            }
        }
        ensure(self.tenants.iter().eq(tenants), "the usage of a tenant differs from its queues and tasks")?;
        ensure(queue_ready == ready, "the ready index differs from the tasks")?;
        ensure(
            queue_ended.iter().copied().eq(ended),
            "the ended index differs from the tasks or is out of order",
        )?;
        ensure(queue_created == created, "the created index differs from the tasks")
    }
}

fn ensure(holds: bool, what: &str) -> Result<(), String> {
    if holds { Ok(()) } else { Err(what.to_string()) }
}
