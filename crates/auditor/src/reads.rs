//! Checks the answers to reads: they show durable records only, and all that were durable when the read was sent.

use std::collections::BTreeMap;
use std::sync::Arc;

use authority::{Event, HeldLease, Position, PushTarget, QueueKey, Scope, TaskId, TaskView};
use coordinator::{Read, Reply, TaskDetail};

use super::model::Version;
use super::{Asked, Auditor, ensure};

impl Auditor {
    pub(super) fn check_read(&mut self, asked: &Asked, read: &Read, reply: &Reply) -> Result<(), String> {
        match (read, reply) {
            (Read::Task { scope, task }, Reply::Task(detail)) => {
                self.check_task(asked, scope, *task, detail.as_deref())
            }
            (Read::Queue(key), Reply::Queue(view)) => {
                let tasks = self.tasks.values().filter(|task| *task.queue == *key);
                let known = tasks.into_iter().any(|task| !task.purged && task.created() <= asked.asked_at);
                ensure(view.is_some() || !known, "the queue has tasks")
            }
            (Read::Queues(_), Reply::Queues(_))
            | (Read::Workers(_), Reply::Workers(_))
            | (Read::Worker { .. }, Reply::Worker(_))
            | (Read::TenantLeases { .. }, Reply::Leases(_)) => Ok(()),
            (Read::Leases { scope, worker }, Reply::Leases(held)) => {
                self.check_leases(asked, scope, worker, held)
            }
            (Read::ScopesWith(queue), Reply::ScopesWith(scopes)) => {
                let named = self.tasks.values().filter(|task| task.queue.name == *queue);
                let mut known = named.filter(|task| !task.purged && task.created() <= asked.asked_at);
                ensure(known.all(|task| scopes.contains(&task.queue.scope)), "a scope has such a queue")
            }
            (Read::PushTargets, Reply::PushTargets(targets)) => self.check_push_targets(asked, targets),
            (Read::TokenKey, Reply::TokenKey(key)) => {
                self.check_token_key(asked, key.as_ref().map(|key| &*key.id))
            }
            (Read::Keys, Reply::Keys(keys)) => self.check_keys(asked, keys),
            (Read::Status, Reply::Status(status)) => {
                ensure(status.position <= self.position, "it speaks of records that are not durable")?;
                ensure(status.position >= asked.asked_at, "it is older than what was known when it was asked")
            }
            (Read::Depths(names), Reply::Depths(depths)) => {
                ensure(depths.len() == names.len() + 1, "it does not tell of each queue")?;
                let total = depths.iter().map(|depth| depth.waiting + depth.leased).sum::<u64>();
                ensure(total <= self.tasks.len() as u64, "it counts tasks that no durable record made")
            }
            (Read::Tenant { names, .. }, Reply::Tenant(status)) => {
                ensure(status.depths.len() == names.len() + 1, "it does not tell of each queue")?;
                let total = status.depths.iter().map(|depth| depth.waiting + depth.leased).sum::<u64>();
                ensure(
                    total == status.usage.open_tasks as u64,
                    "its queues have other tasks than the tenant",
                )?;
                ensure(total <= self.tasks.len() as u64, "it counts tasks that no durable record made")
            }
            (Read::List { .. }, Reply::List(page)) => {
                page.tasks.iter().try_for_each(|view| self.check_view(asked, view))
            }
            _ => Err("it is no answer to what was asked".into()),
        }
    }

    /// Each is what a durable record made of its queue, and no queue is left out that had one all the time.
    fn check_push_targets(
        &self,
        asked: &Asked,
        targets: &[(Arc<QueueKey>, Arc<PushTarget>)],
    ) -> Result<(), String> {
        let mut configured: BTreeMap<&QueueKey, Vec<(Position, Option<&PushTarget>)>> = BTreeMap::new();
        for record in &self.log {
            if let Event::QueueConfigured(event) = &record.event {
                let step = (record.position, event.config.push.as_deref());
                configured.entry(&event.queue).or_default().push(step);
            }
        }
        let targets: BTreeMap<&QueueKey, &PushTarget> =
            targets.iter().map(|(key, target)| (&**key, &**target)).collect();
        ensure(targets.keys().all(|key| configured.contains_key(*key)), "no durable record configures it")?;
        configured.iter().try_for_each(|(key, steps)| {
            let known = steps.iter().rposition(|(position, _)| *position <= asked.asked_at);
            let fits =
                steps[known.unwrap_or(0)..].iter().any(|(_, target)| *target == targets.get(key).copied());
            let unknown_yet = known.is_none() && !targets.contains_key(key);
            ensure(fits || unknown_yet, "no durable record made it the queue's target")
        })
    }

    /// Each was granted to this worker and not over when it was asked, and none is left out that was there all the time.
    fn check_leases(
        &self,
        asked: &Asked,
        scope: &Scope,
        worker: &Arc<str>,
        held: &[HeldLease],
    ) -> Result<(), String> {
        for HeldLease { lease, queue, session, contract } in held {
            let (task, model) = self.find(lease).ok_or("no durable record grants it")?;
            ensure(task.queue.scope == *scope && lease.scope == *scope, "it is another tenant's")?;
            ensure(task.queue.name == *queue, "it is another queue's")?;
            ensure(model.worker == *worker && lease.worker == *worker, "it is another worker's")?;
            let same =
                model.attempt == lease.attempt && model.session == *session && model.contract == *contract;
            ensure(same, "it was granted otherwise")?;
            ensure(model.over.is_none_or(|(at, _)| at > asked.asked_at), "the lease was over before")?;
        }
        let all_along = self.tasks.values().filter(|task| task.queue.scope == *scope).filter(|task| {
            task.current.is_some_and(|number| number <= asked.asked_at)
                && task.lease().is_some_and(|lease| lease.worker == *worker)
        });
        let is_listed = |number| held.iter().any(|held| Some(held.lease.fencing_token) == number);
        let missing = all_along.map(|task| task.current).find(|number| !is_listed(*number)).flatten();
        ensure(missing.is_none(), format!("lease {missing:?} is left out"))
    }

    /// It is the key that was known when it was asked for, or a later one.
    fn check_token_key(&self, asked: &Asked, key: Option<&str>) -> Result<(), String> {
        let rotations: Vec<(Position, &str)> = self
            .log
            .iter()
            .filter_map(|record| match &record.event {
                Event::TokenKeyRotated(rotated) => Some((record.position, &*rotated.key_id)),
                _ => None,
            })
            .collect();
        let known = rotations.iter().rposition(|(position, _)| *position <= asked.asked_at);
        match key {
            Some(key) => {
                let mut current = rotations[known.unwrap_or(0)..].iter();
                ensure(current.any(|(_, id)| *id == key), "no durable record makes it the key")
            }
            None => ensure(known.is_none(), "there was a key already"),
        }
    }

    pub(super) fn check_task(
        &mut self,
        asked: &Asked,
        scope: &Scope,
        id: TaskId,
        detail: Option<&TaskDetail>,
    ) -> Result<(), String> {
        let Some(detail) = detail else { return self.must_be_unknown(asked, scope, id) };
        ensure(detail.view.task.id == id && detail.view.queue.scope == *scope, "it is another task")?;
        self.check_view(asked, &detail.view)
    }

    pub(super) fn check_view(&mut self, asked: &Asked, view: &TaskView) -> Result<(), String> {
        let task = &view.task;
        let model = self.tasks.get(&task.id).ok_or("no durable record creates it")?;
        let versions = || model.earlier.iter().chain(&model.versions);
        let since = model.versions.iter().rev().find(|version| version.position <= asked.asked_at);
        let since = since.map_or(Position::ZERO, |version| version.position);
        let fits = |version: &Version| {
            ensure(version.state == task.state(), format!("after that record it was {:?}", version.state))?;
            ensure(
                version.attempt == task.attempt,
                format!("after that record it was at {}", version.attempt),
            )?;
            ensure(version.cancelling == task.cancel.is_some(), "whether it is being cancelled is wrong")
        };
        if self.rules.unnamed_records {
            let mut current = versions().filter(|version| version.position >= since);
            ensure(current.any(|version| fits(version).is_ok()), "it was never so since it was asked for")?;
        } else {
            let version = versions().find(|version| version.position == task.last);
            fits(version.ok_or("it rests on a record that is not durable")?)?;
            ensure(since <= task.last, "it is older than what was known when it was asked")?;
        }
        ensure(model.payload == task.payload && model.queue == view.queue, "it is not what was submitted")?;
        // Of an earlier life only its versions are remembered.
        let is_earlier = model.earlier.iter().any(|version| version.position == task.last);
        if let authority::Phase::Completed { result, .. } = &task.phase
            && !is_earlier
        {
            ensure(model.result.as_ref() == Some(result), "another result was recorded")?;
        }
        Ok(())
    }
}
