//! The clients that wait for a task to change. Each is checked when a record of its task is decided.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use authority::limits::is_share_used;
use authority::{Scope, Task, TaskId, Time};

use super::ReplyTo;
use super::polls::SWEEP_PAUSE_MS;
use crate::request::WaitCondition;

/// Most waits of clients at one time; tenants share them.
pub(super) const MAX_CLIENT_WATCHERS: usize = 20_000;
/// Most waits of the server itself, which waits for each execution and for leases of workers. They take about 150 MiB.
const MAX_SERVER_WATCHERS: usize = 500_000;

type WatcherId = u64;

pub(super) struct TaskWatchers<T> {
    next: WatcherId,
    parked: BTreeMap<WatcherId, Parked<T>>,
    /// How many of them are the server's own.
    own: usize,
    /// How many of the others each tenant has.
    by_tenant: HashMap<Arc<str>, usize>,
    by_task: HashMap<TaskId, BTreeSet<WatcherId>>,
    overdue: BTreeSet<(Time, WatcherId)>,
    /// When callers who hung up were last swept.
    swept_at: Time,
}

struct Parked<T> {
    scope: Scope,
    task: TaskId,
    condition: WaitCondition,
    until: Time,
    reply_to: T,
}

impl<T> Default for TaskWatchers<T> {
    fn default() -> Self {
        TaskWatchers {
            next: 0,
            parked: BTreeMap::new(),
            own: 0,
            by_tenant: HashMap::new(),
            by_task: HashMap::new(),
            overdue: BTreeSet::new(),
            swept_at: Time::ZERO,
        }
    }
}

pub(super) fn is_met(condition: WaitCondition, task: &Task) -> bool {
    match condition {
        WaitCondition::Final | WaitCondition::FinalForServer => task.is_final(),
        WaitCondition::LeaseOverForServer(token) => {
            task.lease().is_none_or(|lease| lease.fencing_token != token)
        }
        WaitCondition::ChangeAfter(position) => task.last > position,
    }
}

fn is_own(condition: WaitCondition) -> bool {
    matches!(condition, WaitCondition::FinalForServer | WaitCondition::LeaseOverForServer(_))
}

impl<T: ReplyTo> TaskWatchers<T> {
    /// Whether another may wait for this. Those who hung up give way.
    pub(super) fn has_capacity(&mut self, scope: &Scope, condition: WaitCondition, now: Time) -> bool {
        if !self.is_below_limit(scope, condition) && now >= self.swept_at.plus_ms(SWEEP_PAUSE_MS) {
            self.swept_at = now;
            let closed = self.parked.iter().filter(|(_, parked)| parked.reply_to.is_closed());
            for id in closed.map(|(id, _)| *id).collect::<Vec<_>>() {
                self.remove(id);
            }
        }
        self.is_below_limit(scope, condition)
    }

    fn is_below_limit(&self, scope: &Scope, condition: WaitCondition) -> bool {
        if is_own(condition) {
            return self.own < MAX_SERVER_WATCHERS;
        }
        let used = self.by_tenant.get(&scope.tenant).copied().unwrap_or(0);
        let free = MAX_CLIENT_WATCHERS.saturating_sub(self.parked.len() - self.own);
        free > 0 && !is_share_used(used, free)
    }

    pub(super) fn next_due(&self) -> Option<Time> {
        self.overdue.first().map(|(time, _)| *time)
    }

    pub(super) fn park(
        &mut self,
        scope: Scope,
        task: TaskId,
        condition: WaitCondition,
        until: Time,
        reply_to: T,
    ) {
        let id = self.next;
        self.next += 1;
        if is_own(condition) {
            self.own += 1;
        } else {
            *self.by_tenant.entry(scope.tenant.clone()).or_default() += 1;
        }
        self.by_task.entry(task).or_default().insert(id);
        self.overdue.insert((until, id));
        self.parked.insert(id, Parked { scope, task, condition, until, reply_to });
    }

    /// Takes the watchers whose condition the task now meets; all watchers when the task is gone.
    pub(super) fn take_met(&mut self, id: TaskId, task: Option<&Task>) -> Vec<T> {
        let Some(waiting) = self.by_task.get(&id) else { return Vec::new() };
        let met =
            waiting.iter().filter(|wait| task.is_none_or(|task| is_met(self.parked[wait].condition, task)));
        met.copied()
            .collect::<Vec<_>>()
            .into_iter()
            .filter_map(|wait| self.remove(wait))
            .map(|p| p.reply_to)
            .collect()
    }

    pub(super) fn take_overdue(&mut self, now: Time) -> Vec<(Scope, TaskId, T)> {
        let mut out = Vec::new();
        while let Some(&(time, id)) = self.overdue.first() {
            if time > now {
                break;
            }
            out.extend(self.remove(id).map(|parked| (parked.scope, parked.task, parked.reply_to)));
        }
        out
    }

    pub(super) fn take_all(&mut self) -> impl Iterator<Item = T> + use<T> {
        self.by_task.clear();
        self.overdue.clear();
        self.own = 0;
        self.by_tenant.clear();
        std::mem::take(&mut self.parked).into_values().map(|parked| parked.reply_to)
    }

    fn remove(&mut self, id: WatcherId) -> Option<Parked<T>> {
        let parked = self.parked.remove(&id)?;
        if is_own(parked.condition) {
            self.own -= 1;
        } else if let Some(count) = self.by_tenant.get_mut(&parked.scope.tenant) {
            *count -= 1;
            if *count == 0 {
                self.by_tenant.remove(&parked.scope.tenant);
            }
        }
        self.overdue.remove(&(parked.until, id));
        if let Some(waiting) = self.by_task.get_mut(&parked.task) {
            waiting.remove(&id);
            if waiting.is_empty() {
                self.by_task.remove(&parked.task);
            }
        }
        Some(parked)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Caller;

    impl ReplyTo for Caller {
        fn is_closed(&self) -> bool {
            false
        }
    }

    #[test]
    fn a1_clients_who_wait_and_the_servers_own_waits_leave_each_other_room() {
        let scope_of = |tenant: &str| Scope { tenant: tenant.into(), workspace: "w".into() };
        let (scope, other, share) = (scope_of("t"), scope_of("other"), MAX_CLIENT_WATCHERS / 8 * 7);
        let mut watchers = TaskWatchers::default();
        for _ in 0..share {
            for condition in [WaitCondition::Final, WaitCondition::FinalForServer] {
                assert!(watchers.has_capacity(&scope, condition, Time(0)));
                watchers.park(scope.clone(), TaskId(1), condition, Time(9), Caller);
            }
        }
        assert!(!watchers.has_capacity(&scope, WaitCondition::Final, Time(0)));
        assert!(!watchers.has_capacity(&scope, WaitCondition::ChangeAfter(authority::Position(1)), Time(0)));
        assert!(watchers.has_capacity(&scope, WaitCondition::FinalForServer, Time(0)));
        assert!(watchers.has_capacity(&other, WaitCondition::Final, Time(0)), "another tenant finds room");
        assert_eq!(watchers.take_overdue(Time(9)).len(), 2 * share);
        assert_eq!((watchers.own, watchers.by_tenant.len()), (0, 0));
        assert!(watchers.has_capacity(&scope, WaitCondition::Final, Time(9)));
    }
}
