//! Judges each record: it follows the ones before it, obeys the invariants of the model, and has a cause.

use authority::event::{ExpiryCause, NextStep, TaskCreated};
use authority::{Contract, DeadReason, Event, Outcome, Position, QueueKey, TaskId, TaskState, Time};

use super::model::{LeaseModel, Over, TaskModel, Version};
use super::other_commands::{MIN_FINAL_MS, MIN_RETENTION_MS, other_record};
use super::{Auditor, Covered, Holder, ensure, policy, timeline};
use crate::history::Recorded;

impl Auditor {
    pub(super) fn recorded(&mut self, record: &Recorded) -> Result<(), String> {
        let (position, at) = (record.position, record.at);
        ensure(position.0 == self.position.0 + 1, format!("it does not follow {}", self.position))?;
        ensure(at >= self.time, format!("time falls from {}", self.time))?;
        let known = record.event.task().and_then(|id| self.tasks.get(&id)).filter(|task| !task.purged);
        let prev = known.map(TaskModel::last);
        ensure(
            record.prev == prev,
            format!("it names {:?} as its task's last record, not {prev:?}", record.prev),
        )?;
        self.causes.actors.check(&record.event)?;
        match &record.event {
            Event::TaskCreated(created) => self.created(created)?,
            Event::QueueConfigured(event) => {
                let asked = (event.queue.clone(), event.config.clone());
                ensure(self.causes.configs.contains(&asked), "nobody asked for this configuration")?;
                self.queues.insert(event.queue.clone(), event.config.clone());
            }
            Event::TasksPurged(event) => self.purged(&event.tasks, position, at)?,
            Event::OwnerTookOver(event) => {
                ensure(event.epoch == self.epoch + 1, format!("the epoch before was {}", self.epoch))?;
                self.epoch = event.epoch;
                self.takeovers.push(position);
            }
            Event::TokenKeyRotated(event) => self.rotated(event)?,
            Event::KeyCreated(event) => self.key_created(event, position)?,
            Event::KeyRevoked(event) => self.key_revoked(event, position)?,
            about_a_task => self.about_a_task(about_a_task, position, at)?,
        }
        self.position = position;
        self.time = at;
        self.log.push(record.clone());
        self.coverage.count_kind(record.event.name());
        if let Some(id) = record.event.task() {
            self.update_waiting_line(id, position);
        }
        if let Some(task) = record.event.task().and_then(|id| self.tasks.get_mut(&id)) {
            let cancelling = task.cancel_grace.is_some();
            task.versions.push(Version { position, state: task.state, attempt: task.attempt, cancelling });
            ensure(!(cancelling && task.state == TaskState::Waiting), "it waits again after a cancel")?;
            ensure(
                task.current.is_some() == (task.state == TaskState::Leased),
                "its lease does not fit its state",
            )?;
        }
        Ok(())
    }

    fn created(&mut self, event: &TaskCreated) -> Result<(), String> {
        // A call that is repeated long after its task was purged creates it again.
        let (earlier, leases) = match self.tasks.remove(&event.task) {
            Some(task) if task.purged => {
                self.created_again = self.position.next();
                self.coverage.bump(Covered::CreatedAgain);
                (task.earlier.into_iter().chain(task.versions).collect(), task.leases)
            }
            Some(_) => return Err("the task exists already".into()),
            None => Default::default(),
        };
        let options = event.options.as_deref().cloned().unwrap_or_default();
        match options.redrive_of {
            Some(old) => {
                ensure(self.causes.redrives.get(&event.task) == Some(&old), "nobody asked for this redrive")?;
                let dead = self
                    .tasks
                    .get(&old)
                    .filter(|task| matches!(task.state, TaskState::Failed | TaskState::Dead) && !task.purged);
                let dead = dead.ok_or("the task that it does again is no dead letter")?;
                ensure(
                    dead.payload == event.payload && dead.queue == event.queue,
                    "it does something else again",
                )?;
                let before = self.redrives.insert(old, event.task).and_then(|id| self.tasks.get(&id));
                ensure(before.is_none_or(|task| task.purged), "that task was done again already")?;
                self.mark_covered(Covered::Redriven);
            }
            None => {
                let asked = self.causes.submits.get(&event.task).ok_or("nobody submitted it")?;
                let same = asked.payload == event.payload
                    && asked.queue == event.queue
                    && asked.priority == event.priority
                    && asked.properties == event.properties
                    && asked.operation == event.operation;
                ensure(same && asked.options == event.options, "something else was submitted")?;
                ensure(
                    (asked.delay_ms > 0) == event.not_before.is_some(),
                    "its delay is not what was asked",
                )?;
            }
        }
        if let Some(dedup) = &options.dedup {
            let key = (event.queue.clone(), dedup.key.clone());
            let taken =
                self.dedup.get(&key).and_then(|id| self.tasks.get(id)).is_some_and(|task| !task.purged);
            ensure(!taken, "its dedup key belongs to another task")?;
            self.dedup.insert(key, event.task);
        }
        let task = TaskModel {
            queue: event.queue.clone(),
            payload: event.payload.clone(),
            priority: event.priority,
            properties: event.properties.clone(),
            state: TaskState::Waiting,
            attempt: 0,
            releases: 0,
            not_before: event.not_before,
            waits_since: None,
            returns_to: None,
            was_delayed: event.not_before.is_some(),
            exhausted: false,
            cancel_grace: None,
            deadline: options.deadline,
            timeout_ms: options.timeout_ms,
            lease_ms: options.lease_ms,
            max_attempts: options.max_attempts,
            backoff: options.backoff,
            dedup: options.dedup,
            redrive_of: options.redrive_of,
            result: None,
            ended_at: None,
            purged: false,
            purged_at: None,
            current: None,
            leases,
            versions: Vec::new(),
            earlier,
            reports: 0,
            waiters: event.operation.iter().cloned().collect(),
            ever_waited: event.operation.iter().cloned().collect(),
        };
        self.tasks.insert(event.task, task);
        Ok(())
    }

    fn purged(&mut self, ids: &[TaskId], position: Position, at: Time) -> Result<(), String> {
        let mut newest_early = None;
        for id in ids {
            newest_early = newest_early.max(self.purged_one(*id, position, at)?);
        }
        // Early, the oldest go first.
        let mut rest = self.tasks.values().filter(|task| task.is_final() && !task.purged);
        let in_order = rest.all(|task| task.ended_at >= newest_early);
        ensure(newest_early.is_none() || in_order, "an older task was kept")
    }

    /// Gives the end of a task that was purged before its retention was over.
    fn purged_one(&mut self, id: TaskId, position: Position, at: Time) -> Result<Option<Time>, String> {
        let retention_ms = self.tasks.get(&id).map(|task| self.retention_ms(&task.queue)).unwrap_or_default();
        let task = self.tasks.get_mut(&id).ok_or(format!("there is no task {id}"))?;
        ensure(task.is_final() && !task.purged, format!("task {id} has not ended, or is purged already"))?;
        let ended_at = task.ended_at.unwrap_or_default();
        let due = ended_at.plus_ms(retention_ms);
        let kept_for = |ms| at >= ended_at.plus_ms(ms);
        let early = self.rules.memory_bound && kept_for(MIN_RETENTION_MS)
            || self.rules.final_bound && kept_for(MIN_FINAL_MS);
        ensure(at >= due || early, format!("task {id} is to be kept until {due}"))?;
        if at < due {
            self.coverage.bump(Covered::PurgedEarly);
        }
        task.purged = true;
        task.purged_at = Some(position);
        self.mark_covered(Covered::Purged);
        Ok((at < due).then_some(ended_at))
    }

    fn about_a_task(&mut self, event: &Event, position: Position, at: Time) -> Result<(), String> {
        let id = event.task().ok_or("it is about nothing")?;
        if let Event::LeaseGranted(_) = event {
            self.check_lease_order(id, at)?;
        }
        let (causes, coverage) = (&self.causes, &mut self.coverage);
        let task = self.tasks.get_mut(&id).filter(|task| !task.purged).ok_or("there is no such task")?;
        ensure(
            timeline::leaves_state(event) || !task.is_final(),
            "the task has ended, and nothing reopens it",
        )?;
        let config = &policy::config(self.queues.get(&task.queue), &self.rules.queue_defaults, &task.queue);
        let max_attempts = policy::max_attempts(task, config);
        let holder = task.lease().map(|lease| Holder {
            lease: task.current.unwrap_or_default(),
            task: id,
            attempt: lease.attempt,
            worker: lease.worker.clone(),
            scope: task.queue.scope.clone(),
        });
        // Identifies a report of the current lease's holder.
        let report_key = |digest| holder.clone().map(|holder| (holder, digest));
        let waits_again = match event {
            Event::LeaseReleased(_) | Event::LeaseExpired(_) => true,
            Event::TaskFailed(event) => event.next != NextStep::Final,
            _ => false,
        };
        ensure(!waits_again || task.cancel_grace.is_none(), "it waits again after a cancel")?;
        // A lease is dead the moment its time has passed.
        let in_time = |task: &TaskModel, number: Position| {
            ensure(task.current == Some(number), format!("lease {number} is not the task's current one"))?;
            ensure(
                task.lease().is_some_and(|lease| at <= lease.expires_at()),
                "the lease had passed its time",
            )?;
            ensure(task.cancel_grace.is_none_or(|grace| at < grace), "the grace of its cancel was over")
        };
        match event {
            Event::LeaseGranted(event) => {
                ensure(task.state == TaskState::Waiting, "the task does not wait")?;
                ensure(!task.exhausted, "the task has no attempt left")?;
                ensure(
                    event.attempt == task.attempt + 1,
                    format!("the attempt before was {}", task.attempt),
                )?;
                ensure(task.not_before.is_none_or(|time| at >= time), "the task may not be leased yet")?;
                ensure(task.deadline.is_none_or(|deadline| at < deadline), "the deadline has passed")?;
                let asked = causes.offered(&task.queue.scope, &event.worker, task, event.contract);
                ensure(asked, "this worker did not ask for such a task")?;
                ensure(event.expires_at >= at, "the lease is over when it begins")?;
                let length_ms = policy::lease_ms(task, config);
                ensure(event.length_ms == length_ms, format!("a lease of this task lasts {length_ms} ms"))?;
                if !task.properties.is_empty() {
                    coverage.bump(Covered::Requirements);
                }
                if std::mem::take(&mut task.was_delayed) {
                    coverage.bump(Covered::DelayedWake);
                }
                task.attempt += 1;
                task.state = TaskState::Leased;
                task.current = Some(position);
                let lease = LeaseModel {
                    attempt: event.attempt,
                    worker: event.worker.clone(),
                    session: event.session.clone(),
                    request: event.request,
                    granted_at: at,
                    started_by: None,
                    expiries: vec![event.expires_at],
                    over: None,
                    report: None,
                    contract: event.contract,
                    since: task.waits_since,
                };
                task.leases.insert(position, lease);
            }
            Event::LeaseExtended(event) => {
                in_time(task, event.fencing_token)?;
                let asked = holder.is_some_and(|holder| causes.heartbeats.contains(&holder));
                ensure(asked, "its holder sent no heartbeat")?;
                let limit = task.timeout_ms;
                let lease = task.leases.get_mut(&event.fencing_token).ok_or("there is no such lease")?;
                ensure(event.expires_at > lease.expires_at(), "it does not extend the lease")?;
                let limit = limit.map(|ms| lease.granted_at.plus_ms(ms));
                ensure(
                    limit.is_none_or(|limit| event.expires_at <= limit),
                    "it passes the attempt's time limit",
                )?;
                lease.expiries.push(event.expires_at);
                coverage.bump(Covered::Extended);
            }
            Event::LeaseExpired(event) => {
                ensure(task.current == Some(event.fencing_token), "the lease is not the current one")?;
                let lease = task.lease().ok_or("there is no such lease")?;
                let since = if event.cause == ExpiryCause::WorkerLost {
                    ensure(at <= lease.expires_at(), "the lease had passed its time")?;
                    let ends = matches!(lease.contract, Some(Contract::Scheduler | Contract::Stream));
                    ensure(ends, "its contract does not end with its worker")?;
                    let worker = (task.queue.scope.tenant.clone(), lease.worker.clone());
                    let heard = causes.last_heard(&worker, at).max(self.started);
                    let silent = at.since_ms(heard) > self.rules.heartbeat_timeout_ms;
                    ensure(silent, format!("its worker was heard at {heard}"))?;
                    coverage.bump(Covered::WorkerLost);
                    lease.since
                } else {
                    ensure(at > lease.expires_at(), "the lease has time left")?;
                    None
                };
                ensure(event.since == since, format!("it takes its place from {since:?}"))?;
                let exhausted = task.used_attempts() >= max_attempts;
                ensure(event.exhausted == exhausted, "it counts the attempts in another way")?;
                let over =
                    if event.cause == ExpiryCause::WorkerLost { Over::WorkerLost } else { Over::Expired };
                task.exhausted = exhausted;
                task.returns_to = since;
                task.end_lease(position, over);
                task.wait(None);
            }
            Event::LeaseReleased(event) => {
                in_time(task, event.fencing_token)?;
                match event.cause {
                    authority::event::ReleaseCause::Worker => ensure(
                        holder.is_some_and(|holder| causes.releases.contains(&holder)),
                        "its holder did not give it back",
                    )?,
                    authority::event::ReleaseCause::Session => {
                        coverage.bump(Covered::Session);
                        let worker = task.lease().map(|lease| lease.worker.clone()).unwrap_or_default();
                        let began = causes.sessions.iter().any(|(name, _)| *name == worker);
                        ensure(began, "its worker began no session")?;
                    }
                    authority::event::ReleaseCause::Undelivered => {
                        ensure(
                            !self.delivered_leases.contains_key(&event.fencing_token),
                            "it was delivered to its worker",
                        )?;
                    }
                }
                coverage.bump(Covered::Released);
                task.releases += 1;
                task.end_lease(position, Over::Released);
                task.wait(None);
            }
            Event::AttemptStarted(started) => {
                in_time(task, started.fencing_token)?;
                other_record(task, event, causes)?;
            }
            Event::TaskCompleted(event) => {
                in_time(task, event.fencing_token)?;
                let result = report_key(event.digest).and_then(|key| causes.completions.get(&key));
                ensure(result == Some(&event.result), "its holder reported no such result")?;
                if task.cancel_grace.is_some() {
                    coverage.bump(Covered::CancelRacesCompletion);
                }
                if task.attempt >= 3 {
                    coverage.bump(Covered::ThirdAttempt);
                }
                report(task, event.fencing_token, (event.digest, Outcome::Completed))?;
                task.result = Some(event.result.clone());
                task.end_lease(position, Over::Reported);
                task.end(TaskState::Completed, at);
            }
            Event::TaskFailed(event) => {
                in_time(task, event.fencing_token)?;
                let claims = report_key(event.digest).and_then(|key| causes.failures.get(&key));
                let claims = claims.ok_or("its holder reported no such failure")?;
                let mut retries = claims.iter().map(|claim| claim.may_retry(config));
                let left = task.used_attempts() < max_attempts;
                let fits = retries.any(|retry| (retry && left) == (event.next != NextStep::Final));
                ensure(
                    fits,
                    if left {
                        "the policy asks for another end"
                    } else {
                        "the policy allows no further attempt"
                    },
                )?;
                let outcome = match event.next {
                    NextStep::RetryAt(time) => Outcome::RetryAt(time),
                    NextStep::Final => Outcome::Failed,
                };
                report(task, event.fencing_token, (event.digest, outcome))?;
                task.end_lease(position, Over::Reported);
                match event.next {
                    NextStep::RetryAt(time) => {
                        let fits = policy::retry_fits(task, config, at, time);
                        ensure(fits, "its next attempt is not when the backoff says")?;
                        coverage.bump(Covered::Retried);
                        task.wait(Some(time));
                    }
                    NextStep::Final => {
                        coverage.bump(Covered::FailedForGood);
                        task.end(TaskState::Failed, at);
                    }
                }
            }
            Event::TaskDead(event) => {
                if let Some(dead) = &event.report {
                    in_time(task, dead.fencing_token)?;
                    ensure(task.cancel_grace.is_some(), "the task was not being cancelled")?;
                    let claimed =
                        report_key(dead.digest).is_some_and(|key| causes.failures.contains_key(&key));
                    ensure(claimed, "its holder reported no such failure")?;
                    report(task, dead.fencing_token, (dead.digest, Outcome::Dead(event.reason)))?;
                }
                ensure(dead_for(task, event.reason, id, at, causes), "there is no reason for this end")?;
                coverage.bump(match event.reason {
                    DeadReason::Cancelled if task.state == TaskState::Waiting => Covered::CancelWaiting,
                    DeadReason::HeartbeatTimeout => Covered::DeadByAttempts,
                    DeadReason::Deadline => Covered::DeadByDeadline,
                    DeadReason::Killed => Covered::Killed,
                    DeadReason::Cancelled | DeadReason::CancelTimeout => Covered::CancelTimeout,
                });
                let how = if event.report.is_some() { Over::Reported } else { Over::Ended };
                task.end_lease(position, how);
                task.end(TaskState::Dead, at);
            }
            Event::TaskCancelled(event) => {
                ensure(task.current != Some(event.fencing_token), "the lease is the current one")?;
                ensure(
                    causes.reports.contains(&(event.fencing_token, event.digest)),
                    "nobody reported anything",
                )?;
                task.reports += 1;
                match task.leases.get_mut(&event.fencing_token) {
                    Some(lease) => {
                        let same = lease.attempt == event.attempt;
                        ensure(same || self.rules.edge_broken, "the lease was another attempt's")?;
                        ensure(lease.report.is_none(), "the lease was reported on already")?;
                        lease.report = Some((event.digest, Outcome::Discarded));
                    }
                    None => ensure(self.rules.edge_broken, "the lease was never granted")?,
                }
                coverage.bump(Covered::LateReport);
            }
            Event::CancelRequested(event) => {
                ensure(
                    task.state == TaskState::Leased && task.cancel_grace.is_none(),
                    "it cannot be asked to stop",
                )?;
                let explained = match event.cause {
                    authority::CancelCause::User => causes.cancels.contains(&id),
                    authority::CancelCause::Deadline => task.deadline.is_some_and(|deadline| at >= deadline),
                };
                ensure(explained, "nobody asked for it")?;
                task.cancel_grace = Some(event.grace_until);
            }
            further => other_record(task, further, causes)?,
        }
        Ok(())
    }

    pub(super) fn retention_ms(&self, queue: &QueueKey) -> u64 {
        let config = policy::config(self.queues.get(queue), &self.rules.queue_defaults, queue);
        config.retention_ms.unwrap_or(policy::DEFAULT_RETENTION_MS)
    }
}

/// Notes a report that was accepted: the first of its lease.
fn report(task: &mut TaskModel, lease: Position, report: (authority::Digest, Outcome)) -> Result<(), String> {
    task.reports += 1;
    let lease = task.leases.get_mut(&lease).ok_or("there is no such lease")?;
    ensure(lease.report.is_none(), "the lease was reported on already")?;
    lease.report = Some(report);
    Ok(())
}

fn dead_for(task: &TaskModel, reason: DeadReason, id: TaskId, at: Time, causes: &super::Causes) -> bool {
    let deadline = task.deadline.is_some_and(|deadline| at >= deadline);
    match reason {
        DeadReason::Cancelled => causes.cancels.contains(&id),
        DeadReason::CancelTimeout => task.cancel_grace.is_some_and(|grace| at >= grace),
        DeadReason::HeartbeatTimeout => task.exhausted && task.state == TaskState::Waiting,
        DeadReason::Deadline => deadline,
        DeadReason::Killed => causes.kills.contains(&id),
    }
}
