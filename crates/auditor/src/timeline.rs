//! Checks the timeline that `explain` derives for a task: every attempt with its worker and its end, and the reason for
//! each further attempt, in order, with nothing missing and nothing invented.
//!
//! The expected timeline comes from the auditor's own tables of tasks and leases. Records before the first retained
//! record count as unknown: a timeline must not state what only they could prove.

use std::collections::BTreeSet;
use std::sync::Arc;

use authority::event::{ExpiryCause, NextStep, TaskCreated};
use authority::{CancelCause, Event, Position, TaskId, TaskState, Time};
use history::explain::{DiscardReason, FinalReason, Step, StepKind, Timeline};

use super::model::{LeaseModel, Over, TaskModel, Version};
use super::policy::DEFAULT_MAX_ATTEMPTS;
use super::{Auditor, Covered, ensure};
use crate::history::Recorded;

impl Auditor {
    /// Every task that was ever created.
    pub fn tasks(&self) -> impl Iterator<Item = TaskId> {
        self.tasks.keys().copied()
    }

    /// Checks the timeline of a task that was derived from the records at or after `first`.
    pub fn check_timeline(&mut self, timeline: &Timeline, first: Position) -> Result<(), String> {
        let id = timeline.task;
        let wrong = |what: String| format!("the timeline of task {id}: {what}");
        let model = self.tasks.get(&id).ok_or_else(|| wrong("nobody created the task".into()))?;
        let records = TaskRecords { auditor: self, id, task: model, first };
        records.compare(timeline).map_err(wrong)?;
        check_rendered_text(timeline).map_err(wrong)?;
        if timeline.attempts > 1 {
            self.mark_covered(Covered::ExplainedRepeat);
        }
        if timeline.is_purged {
            self.mark_covered(Covered::ExplainedPurged);
        }
        if timeline.is_truncated {
            self.mark_covered(Covered::ExplainedTruncated);
        }
        if timeline.steps.iter().any(|step| matches!(step.kind, StepKind::Restarted { .. })) {
            self.mark_covered(Covered::ExplainedRestart);
        }
        Ok(())
    }
}

/// The expected timeline of one task, as far as the retained records prove it.
struct TaskRecords<'a> {
    auditor: &'a Auditor,
    id: TaskId,
    task: &'a TaskModel,
    first: Position,
}

impl<'a> TaskRecords<'a> {
    fn compare(&self, timeline: &Timeline) -> Result<(), String> {
        let expected = self.steps();
        for (step, expected) in timeline.steps.iter().zip(&expected) {
            ensure(step == expected, format!("it contains {step:?}, but what happened is {expected:?}"))?;
        }
        if let Some(missing) = expected.get(timeline.steps.len()) {
            return Err(format!("it leaves out {missing:?}"));
        }
        if let Some(invented) = timeline.steps.get(expected.len()) {
            return Err(format!("it makes up {invented:?}"));
        }
        let records: Vec<&Recorded> = self.own().collect();
        let created = records.iter().rev().find_map(|record| creation(record));
        let queue = created.map(|event| &event.queue);
        ensure(timeline.queue.as_ref() == queue, format!("its queue is {queue:?}"))?;
        let state = records.iter().any(|record| !leaves_state(&record.event)).then_some(self.task.state);
        ensure(
            timeline.state == state,
            format!("its state is {:?} in the timeline, but is {state:?}", timeline.state),
        )?;
        let purged = self.task.purged_at.is_some_and(|position| position >= self.first);
        ensure(timeline.is_purged == purged, "whether it was purged is wrong")?;
        let begins = self.positions().first().and_then(|position| self.record(*position));
        let truncated = begins.is_some_and(|record| creation(record).is_none());
        ensure(timeline.is_truncated == truncated, "whether its beginning is retained is wrong")?;

        let life = self.task.created().max(self.first);
        let grants = || self.task.leases.range(life..);
        let attempts = grants().map(|(_, lease)| lease.attempt).max().unwrap_or(0);
        ensure(timeline.attempts == attempts, format!("it was granted {attempts} times"))?;
        let in_life = || records.iter().filter(|record| record.position >= life);
        let releases = in_life().filter(|record| matches!(record.event, Event::LeaseReleased(_))).count();
        ensure(timeline.releases as usize == releases, format!("it was given back {releases} times"))?;
        let for_a_lease = grants().filter_map(|(at, lease)| self.waited_ms(*at, lease.granted_at));
        let in_vain = in_life()
            .filter(|record| {
                matches!(record.event, Event::TaskDead(_)) && self.held(record.position).is_none()
            })
            .filter_map(|record| self.waited_ms(record.position, record.at));
        let waited: u64 = for_a_lease.chain(in_vain).sum();
        ensure(timeline.waited_ms == waited, format!("it waited {waited} ms"))?;
        let ran: u64 =
            grants().filter_map(|(_, lease)| Some(self.end(lease)?.since_ms(lease.granted_at))).sum();
        ensure(timeline.ran_ms == ran, format!("it ran {ran} ms"))
    }

    fn steps(&self) -> Vec<Step> {
        let positions = self.positions().into_iter().chain(self.restarts()).collect::<BTreeSet<_>>();
        positions.into_iter().filter_map(|position| self.step(self.record(position)?)).collect()
    }

    fn step(&self, record: &Recorded) -> Option<Step> {
        let (position, at) = (record.position, record.at);
        let held = self.held(position);
        let silent_ms = held.map(|(number, _)| at.since_ms(self.last_seen_at(number, position)));
        let what = match &record.event {
            Event::TaskCreated(event) => StepKind::Submitted {
                queue: event.queue.name.clone(),
                priority: event.priority,
                delay_ms: event.not_before.map(|time| time.since_ms(at)).filter(|ms| *ms > 0),
                redrive_of: event.options.as_ref().and_then(|options| options.redrive_of),
            },
            Event::LeaseGranted(event) => {
                StepKind::Leased { waited_ms: self.waited_ms(position, at), lease_ms: event.length_ms }
            }
            Event::LeaseExtended(_) => return None,
            Event::AttemptStarted(event) => StepKind::Started { by: event.worker.clone() },
            Event::LeaseExpired(event) => {
                let lease = self.task.leases.get(&event.fencing_token)?;
                StepKind::Lost {
                    cause: self.expiry_cause(event.fencing_token, lease),
                    silent_ms,
                    is_last: event.exhausted,
                }
            }
            Event::LeaseReleased(event) => StepKind::Released { cause: event.cause },
            Event::TaskFailed(event) => match event.next {
                NextStep::RetryAt(time) => {
                    StepKind::Failed { error: event.error.clone(), retry_ms: time.since_ms(at) }
                }
                NextStep::Final => {
                    StepKind::FailedForGood { error: event.error.clone(), why: self.final_reason(position) }
                }
            },
            Event::TaskCompleted(event) => StepKind::Completed { result_bytes: event.result.len() },
            Event::TaskDead(event) => StepKind::Dead {
                reason: event.reason,
                detail: event.detail.clone(),
                error: event.report.as_ref().map(|report| report.error.clone()),
                silent_ms: silent_ms.filter(|_| event.report.is_none()),
                cancel: self.cancel_before(position),
            },
            Event::TaskCancelled(event) => {
                let lease = self.known_lease(event.fencing_token);
                let step =
                    self.bare(record, StepKind::Discarded { why: self.discard_reason(event.fencing_token) });
                let worker = lease.map(|lease| lease.worker.clone());
                return Some(Step { attempt: Some(event.attempt), worker, ..step });
            }
            Event::CancelRequested(event) => StepKind::AskedToStop {
                cause: event.cause,
                reason: event.reason.clone(),
                grace_ms: event.grace_until.since_ms(at),
            },
            Event::TasksPurged(_) => StepKind::Purged,
            Event::OwnerTookOver(event) => {
                let before = self.owner(Position(position.0 - 1));
                let taken_from = before.filter(|before| *before != event.node);
                StepKind::Restarted { epoch: event.epoch, taken_from }
            }
            Event::OperationAttached(attached) => note(
                "WAITER_JOINED",
                format!("{} joined to wait for the outcome", attached.operation),
                record,
            ),
            Event::OperationDetached(detached) => {
                note("WAITER_LEFT", format!("{} no longer waits for the outcome", detached.operation), record)
            }
            Event::QueueConfigured(_)
            | Event::TokenKeyRotated(_)
            | Event::KeyCreated(_)
            | Event::KeyRevoked(_) => return None,
        };
        let mut step = self.bare(record, what);
        if let Some((number, lease)) = held {
            step.attempt = Some(lease.attempt);
            step.worker = Some(lease.worker.clone());
            if lease.over.is_some_and(|(over, _)| over == position) {
                step.ran_ms = Some(at.since_ms(lease.granted_at));
                let extended = |record: &&Recorded| matches!(&record.event, Event::LeaseExtended(event) if event.fencing_token == number);
                step.extensions = Some(self.own().filter(extended).count() as u32);
            }
        }
        Some(step)
    }

    fn bare(&self, record: &Recorded, kind: StepKind) -> Step {
        let (position, at) = (record.position, record.at);
        let by = record.event.by().cloned();
        let owner = self.owner(position);
        Step { position, at, attempt: None, worker: None, ran_ms: None, extensions: None, by, owner, kind }
    }

    /// The node of the last takeover up to a position that is retained.
    fn owner(&self, position: Position) -> Option<Arc<str>> {
        let takeovers = self.auditor.takeovers.iter().filter(|at| (self.first..=position).contains(*at));
        match &self.record(*takeovers.max()?)?.event {
            Event::OwnerTookOver(event) => Some(event.node.clone()),
            _ => None,
        }
    }

    fn record(&self, position: Position) -> Option<&'a Recorded> {
        self.auditor.log.get(position.0.checked_sub(1)? as usize)
    }

    /// The task's own records that are retained.
    fn own(&self) -> impl DoubleEndedIterator<Item = &'a Recorded> {
        let versions: Vec<&Version> = self.task.earlier.iter().chain(&self.task.versions).collect();
        let retained = versions.into_iter().map(|version| version.position).filter(|at| *at >= self.first);
        retained.filter_map(|position| self.record(position)).collect::<Vec<_>>().into_iter()
    }

    /// The positions of the task's own records and of its purge.
    fn positions(&self) -> BTreeSet<Position> {
        let purged = self.general().filter(
            |record| matches!(&record.event, Event::TasksPurged(event) if event.tasks.contains(&self.id)),
        );
        self.own().chain(purged).map(|record| record.position).collect()
    }

    /// Retained records about more than one task.
    fn general(&self) -> impl Iterator<Item = &'a Recorded> {
        self.auditor.log[self.first.0 as usize - 1..].iter().filter(|record| record.event.task().is_none())
    }

    /// Takeovers during a lease of the task, if the records prove the lease.
    fn restarts(&self) -> Vec<Position> {
        let state_records: Vec<Position> =
            self.own().filter(|record| !leaves_state(&record.event)).map(|record| record.position).collect();
        let takeovers = self.auditor.takeovers.iter().filter(|position| **position >= self.first);
        let leased = |at: Position| {
            self.task
                .leases
                .iter()
                .any(|(granted, lease)| *granted < at && lease.over.is_none_or(|(over, _)| over > at))
        };
        takeovers.copied().filter(|at| leased(*at) && state_records.iter().any(|known| known < at)).collect()
    }

    /// The lease under which the task was when this record was made, or which the record ended.
    fn held(&self, position: Position) -> Option<(Position, &'a LeaseModel)> {
        let mut known = self.task.leases.range(self.first..=position);
        let held = known.rfind(|(_, lease)| lease.over.is_none_or(|(over, _)| over >= position));
        held.map(|(number, lease)| (*number, lease))
    }

    fn known_lease(&self, number: Position) -> Option<&'a LeaseModel> {
        self.task.leases.get(&number).filter(|_| number >= self.first)
    }

    /// The last recorded sign of life of the worker before a record.
    fn last_seen_at(&self, lease: Position, before: Position) -> Time {
        let last_seen = self.own().rfind(|record| {
            record.position < before
                && match &record.event {
                    Event::LeaseGranted(_) => record.position == lease,
                    Event::LeaseExtended(event) => event.fencing_token == lease,
                    Event::AttemptStarted(event) => event.fencing_token == lease,
                    _ => false,
                }
        });
        last_seen.map_or(Time::ZERO, |record| record.at)
    }

    /// How long the task had been ready when it was leased.
    fn waited_ms(&self, granted: Position, at: Time) -> Option<u64> {
        let ready = self.own().filter(|record| record.position < granted).rev().find_map(|record| {
            match &record.event {
                Event::TaskCreated(event) => Some(event.not_before.unwrap_or_default().max(record.at)),
                Event::LeaseExpired(_) | Event::LeaseReleased(_) => Some(record.at),
                Event::TaskFailed(event) => match event.next {
                    NextStep::RetryAt(time) => Some(time),
                    NextStep::Final => None,
                },
                _ => None,
            }
        });
        ready.map(|ready| at.since_ms(ready))
    }

    fn end(&self, lease: &LeaseModel) -> Option<Time> {
        self.record(lease.over?.0).map(|record| record.at)
    }

    /// The creation of the life that this position lies in, also when it is no longer retained.
    fn created_before(&self, position: Position) -> Option<&'a Recorded> {
        let versions = self.task.earlier.iter().chain(&self.task.versions);
        let mut records = versions.filter_map(|version| self.record(version.position));
        records.rfind(|record| record.position <= position && creation(record).is_some())
    }

    fn expiry_cause(&self, number: Position, lease: &LeaseModel) -> ExpiryCause {
        if matches!(lease.over, Some((_, Over::WorkerLost))) {
            return ExpiryCause::WorkerLost;
        }
        let created = self.created_before(number).and_then(creation);
        let timeout_ms = created.and_then(|event| event.options.as_ref()?.timeout_ms);
        let limit = timeout_ms.map(|ms| lease.granted_at.plus_ms(ms));
        if limit.is_some_and(|limit| lease.expires_at() >= limit) {
            ExpiryCause::Timeout
        } else {
            ExpiryCause::Silence
        }
    }

    fn discard_reason(&self, number: Position) -> DiscardReason {
        let Some(lease) = self.known_lease(number) else { return DiscardReason::Unknown };
        let retried = |at: Position| {
            let record = self.record(at);
            matches!(record.map(|record| &record.event), Some(Event::TaskFailed(event)) if event.next != NextStep::Final)
        };
        match lease.over {
            None => DiscardReason::Unknown,
            Some((_, Over::WorkerLost)) => DiscardReason::WorkerLost,
            Some((_, Over::Expired)) => match self.expiry_cause(number, lease) {
                ExpiryCause::Timeout => DiscardReason::TimedOut,
                _ => DiscardReason::Lost,
            },
            Some((_, Over::Released)) => DiscardReason::Released,
            Some((at, Over::Reported)) if retried(at) => DiscardReason::Reported,
            Some((_, Over::Reported | Over::Ended)) => DiscardReason::Ended,
        }
    }

    /// The cause of a cancel request before this position.
    fn cancel_before(&self, position: Position) -> Option<CancelCause> {
        let life = self.created_before(position)?.position;
        self.own().rev().find_map(|record| match &record.event {
            Event::CancelRequested(event) if record.position > life && record.position < position => {
                Some(event.cause)
            }
            _ => None,
        })
    }

    fn final_reason(&self, position: Position) -> FinalReason {
        let created = self.created_before(position).filter(|record| record.position >= self.first);
        let Some((life, created)) = created.and_then(|record| Some((record.position, creation(record)?)))
        else {
            return FinalReason::Unknown;
        };
        let own = created.options.as_ref().and_then(|options| options.max_attempts);
        let configured = self.general().filter(|record| record.position < position).filter_map(|record| {
            match &record.event {
                Event::QueueConfigured(event) if event.queue == created.queue => {
                    Some(event.config.max_attempts)
                }
                _ => None,
            }
        });
        let allowed = match (own, configured.last()) {
            (Some(allowed), _) => allowed,
            (None, None) if self.first != Position(1) => return FinalReason::Unknown,
            (None, configured) => {
                let defaults = self.auditor.rules.queue_defaults.of(&created.queue.name);
                configured.flatten().or(defaults.max_attempts).unwrap_or(DEFAULT_MAX_ATTEMPTS)
            }
        };
        let grants = self.task.leases.range(life..position).count();
        let released = |lease: &LeaseModel| matches!(lease.over, Some((_, Over::Released)));
        let released = self.task.leases.range(life..position).filter(|(_, lease)| released(lease)).count();
        if grants - released >= allowed as usize {
            FinalReason::LastAttempt { allowed, released: released as u32 }
        } else {
            FinalReason::NotRetryable
        }
    }
}

fn creation(record: &Recorded) -> Option<&TaskCreated> {
    match &record.event {
        Event::TaskCreated(event) => Some(event),
        _ => None,
    }
}

/// The step of an event that changes nothing in the task's life.
fn note(name: &'static str, text: String, record: &Recorded) -> StepKind {
    StepKind::Note { name, text, event: record.event.clone() }
}

/// Whether an event leaves the state of its task as it is, so that it may follow the task's end.
pub(crate) fn leaves_state(event: &Event) -> bool {
    matches!(event, Event::TaskCancelled(_) | Event::OperationAttached(_) | Event::OperationDetached(_))
}

/// The text names the attempt and the worker of every step of an attempt, and the summary says why the task ran again.
fn check_rendered_text(timeline: &Timeline) -> Result<(), String> {
    for step in &timeline.steps {
        let text = step.render();
        ensure(!text.is_empty(), format!("there is no text for {step:?}"))?;
        let about_an_attempt = match &step.kind {
            StepKind::Leased { .. } | StepKind::Discarded { .. } | StepKind::Restarted { .. } => true,
            what => what.ends_an_attempt() && step.attempt.is_some(),
        };
        if let Some(attempt) = step.attempt.filter(|_| about_an_attempt) {
            ensure(
                text.contains(&format!("attempt {attempt}")),
                format!("\"{text}\" is about another attempt"),
            )?;
        }
        if let Some(worker) = step.worker.as_ref().filter(|_| about_an_attempt) {
            ensure(text.contains(&**worker), format!("\"{text}\" does not name {worker}"))?;
        }
    }
    let summary = timeline.summary();
    ensure(!summary.is_empty(), "there is no summary")?;
    if timeline.attempts > 1 {
        let times = format!("{} times", timeline.attempts);
        ensure(summary.contains(&times), format!("\"{summary}\" does not say {times}"))?;
    }
    let finished = matches!(timeline.state, Some(TaskState::Completed | TaskState::Failed | TaskState::Dead));
    ensure(!finished || !summary.contains("it waits"), format!("\"{summary}\" says that it goes on"))
}
