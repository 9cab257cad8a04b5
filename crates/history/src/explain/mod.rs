//! Explains what happened to one task, and why, from its records alone.
//!
//! `explain` is a pure function from records to steps: it reads no clock, no policy, nothing but what was recorded. The
//! text is rendered from the steps, so both say the same.

mod render;
mod step;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use authority::event::{ExpiryCause, NextStep, TaskCreated, TaskDead, TaskFailed};
use authority::{
    CancelCause, Event, Position, QueueConfig, QueueDefaults, QueueKey, TaskId, TaskState, Time,
};

use ledger::HistoryRecord;

pub use step::{DiscardReason, FinalReason, Step, StepKind};

/// The timeline of a task, as far as its records are known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timeline {
    pub task: TaskId,
    /// Unknown when the record of its creation is no longer retained.
    pub queue: Option<Arc<QueueKey>>,
    /// Where it stands now, or stood before it was purged; `None` when no retained record says it.
    pub state: Option<TaskState>,
    pub is_purged: bool,
    /// Whether the beginning is missing.
    pub is_truncated: bool,
    /// How often it was given to a worker, as far as is known. This and the following speak of its last life: a call
    /// that is repeated long after its task was purged creates it again.
    pub attempts: u32,
    /// How often it was given back at no cost.
    pub releases: u32,
    /// Time between being made ready and being leased, over all attempts. Delays that were asked for do not count.
    pub waited_ms: u64,
    /// Time under a lease, over all attempts that are over.
    pub ran_ms: u64,
    pub steps: Vec<Step>,
}

/// Whether a record belongs into the list that [`explain`] is given for this task.
pub fn concerns(task: TaskId, event: &Event) -> bool {
    match event {
        Event::TasksPurged(purged) => purged.tasks.contains(&task),
        Event::QueueConfigured(_) | Event::OwnerTookOver(_) => true,
        other => other.task() == Some(task),
    }
}

/// Derives the timeline of a task from its records, oldest first. Records that do not concern the task are skipped.
/// `defaults` are those of the server that made the decisions.
pub fn explain(task: TaskId, records: &[HistoryRecord], defaults: &QueueDefaults) -> Timeline {
    let mut explainer = Explainer {
        timeline: Timeline {
            task,
            queue: None,
            state: None,
            is_purged: false,
            is_truncated: false,
            attempts: 0,
            releases: 0,
            waited_ms: 0,
            ran_ms: 0,
            steps: Vec::new(),
        },
        is_whole: records.first().is_some_and(|record| record.position == Position(1)),
        configs: Vec::new(),
        defaults,
        own_max_attempts: None,
        ready_at: None,
        lease: None,
        past: Vec::new(),
        cancel: None,
        owner: None,
    };
    for record in records.iter().filter(|record| concerns(task, &record.event)) {
        let known = explainer.timeline.steps.len();
        explainer.add_record(record);
        // A record makes at most one step.
        if let Some(step) = explainer.timeline.steps.get_mut(known) {
            step.by = record.event.by().cloned();
            step.owner = explainer.owner.clone();
        }
    }
    explainer.timeline
}

/// The lease that the task is under.
#[derive(Clone)]
struct Held {
    fencing_token: Position,
    attempt: u32,
    worker: Arc<str>,
    granted_at: Time,
    /// When the worker was last seen, as far as the records show.
    heard_at: Time,
    extensions: u32,
}

/// How an earlier attempt ended, so that a late report can be matched to it.
#[derive(Clone)]
struct Over {
    fencing_token: Position,
    worker: Arc<str>,
    why: DiscardReason,
}

struct Explainer<'a> {
    timeline: Timeline,
    /// Whether the records reach back to the first of all, so that no setting of a queue is missing.
    is_whole: bool,
    configs: Vec<(Arc<QueueKey>, QueueConfig)>,
    defaults: &'a QueueDefaults,
    own_max_attempts: Option<u32>,
    /// Since when the task could have been leased.
    ready_at: Option<Time>,
    lease: Option<Held>,
    past: Vec<Over>,
    cancel: Option<(CancelCause, Arc<str>)>,
    /// The node that decides, since its last takeover.
    owner: Option<Arc<str>>,
}

impl Explainer<'_> {
    fn add_record(&mut self, record: &HistoryRecord) {
        let (position, at) = (record.position, record.at);
        match &record.event {
            Event::QueueConfigured(event) => {
                self.configs.retain(|(key, _)| *key != event.queue);
                self.configs.push((event.queue.clone(), event.config.clone()));
                return;
            }
            Event::OwnerTookOver(event) => {
                let before = self.owner.replace(event.node.clone());
                // Only of interest while a worker had the task.
                if self.timeline.state == Some(TaskState::Leased) {
                    let taken_from = before.filter(|before| *before != event.node);
                    self.step(position, at, StepKind::Restarted { epoch: event.epoch, taken_from });
                }
                return;
            }
            Event::TaskCreated(event) => return self.created(position, at, event),
            _ => {}
        }
        if self.timeline.state.is_none() {
            self.timeline.is_truncated = true;
        }
        if let Event::LeaseExtended(_) | Event::AttemptStarted(_) | Event::CancelRequested(_) = &record.event
        {
            // True of any such record, also when the one that granted the lease is no longer retained.
            self.timeline.state = Some(TaskState::Leased);
        }
        match &record.event {
            Event::LeaseGranted(event) => {
                let waited_ms = self.ready_at.take().map(|ready| at.since_ms(ready));
                self.timeline.waited_ms += waited_ms.unwrap_or(0);
                self.timeline.attempts = self.timeline.attempts.max(event.attempt);
                self.timeline.state = Some(TaskState::Leased);
                self.lease = Some(Held {
                    fencing_token: position,
                    attempt: event.attempt,
                    worker: event.worker.clone(),
                    granted_at: at,
                    heard_at: at,
                    extensions: 0,
                });
                self.step(position, at, StepKind::Leased { waited_ms, lease_ms: event.length_ms });
            }
            Event::LeaseExtended(event) => {
                if let Some(lease) =
                    self.lease.as_mut().filter(|lease| lease.fencing_token == event.fencing_token)
                {
                    lease.heard_at = at;
                    lease.extensions += 1;
                }
            }
            Event::AttemptStarted(event) => {
                if let Some(lease) =
                    self.lease.as_mut().filter(|lease| lease.fencing_token == event.fencing_token)
                {
                    lease.heard_at = at;
                }
                self.step(position, at, StepKind::Started { by: event.worker.clone() });
            }
            Event::LeaseExpired(event) => {
                let silent_ms = self.lease.as_ref().map(|lease| at.since_ms(lease.heard_at));
                let (cause, is_last) = (event.cause, event.exhausted);
                let kind = StepKind::Lost { cause, silent_ms, is_last };
                let why = match event.cause {
                    ExpiryCause::Silence => DiscardReason::Lost,
                    ExpiryCause::Timeout => DiscardReason::TimedOut,
                    ExpiryCause::WorkerLost => DiscardReason::WorkerLost,
                };
                self.wait_again(position, at, kind, why, at);
            }
            Event::LeaseReleased(event) => {
                self.timeline.releases += 1;
                let kind = StepKind::Released { cause: event.cause };
                self.wait_again(position, at, kind, DiscardReason::Released, at);
            }
            Event::TaskFailed(event) => self.failed(position, at, event),
            Event::TaskCompleted(event) => {
                let result_bytes = event.result.len();
                self.end(position, at, TaskState::Completed, StepKind::Completed { result_bytes });
            }
            Event::TaskDead(event) => self.dead(position, at, event),
            Event::TaskCancelled(event) => {
                let over = self.past.iter().find(|over| over.fencing_token == event.fencing_token).cloned();
                let why = over.as_ref().map_or(DiscardReason::Unknown, |over| over.why);
                let mut step = Step::new(position, at, StepKind::Discarded { why });
                step.attempt = Some(event.attempt);
                step.worker = over.map(|over| over.worker);
                self.push(step);
            }
            Event::CancelRequested(event) => {
                self.cancel = Some((event.cause, event.reason.clone()));
                self.step(
                    position,
                    at,
                    StepKind::AskedToStop {
                        cause: event.cause,
                        reason: event.reason.clone(),
                        grace_ms: event.grace_until.since_ms(at),
                    },
                );
            }
            Event::TasksPurged(_) => {
                self.timeline.is_purged = true;
                self.step(position, at, StepKind::Purged);
            }
            other => {
                if let Some(kind) = StepKind::note(other) {
                    self.step(position, at, kind);
                }
            }
        }
    }

    fn created(&mut self, position: Position, at: Time, event: &TaskCreated) {
        self.timeline.queue = Some(event.queue.clone());
        self.timeline.state = Some(TaskState::Waiting);
        self.timeline.is_purged = false;
        (self.timeline.attempts, self.timeline.releases) = (0, 0);
        (self.timeline.waited_ms, self.timeline.ran_ms) = (0, 0);
        (self.lease, self.cancel) = (None, None);
        let options = event.options.as_deref();
        self.own_max_attempts = options.and_then(|options| options.max_attempts);
        self.ready_at = Some(event.not_before.map_or(at, |time| time.max(at)));
        let delay_ms = event.not_before.map(|time| time.since_ms(at)).filter(|ms| *ms > 0);
        let kind = StepKind::Submitted {
            queue: event.queue.name.clone(),
            priority: event.priority,
            delay_ms,
            redrive_of: options.and_then(|options| options.redrive_of),
        };
        self.step(position, at, kind);
    }

    fn failed(&mut self, position: Position, at: Time, event: &TaskFailed) {
        match event.next {
            NextStep::RetryAt(retry_at) => {
                let kind = StepKind::Failed { error: event.error.clone(), retry_ms: retry_at.since_ms(at) };
                self.wait_again(position, at, kind, DiscardReason::Reported, retry_at);
            }
            NextStep::Final => {
                let why = self.final_reason();
                let kind = StepKind::FailedForGood { error: event.error.clone(), why };
                self.end(position, at, TaskState::Failed, kind);
            }
        }
    }

    fn dead(&mut self, position: Position, at: Time, event: &TaskDead) {
        let silent_ms = self.lease.as_ref().map(|lease| at.since_ms(lease.heard_at));
        let kind = StepKind::Dead {
            reason: event.reason,
            detail: event.detail.clone(),
            error: event.report.as_ref().map(|report| report.error.clone()),
            silent_ms: silent_ms.filter(|_| event.report.is_none()),
            cancel: self.cancel.as_ref().map(|(cause, _)| *cause),
        };
        self.end(position, at, TaskState::Dead, kind);
    }

    /// Why a failure was not tried again: no attempt was left, or it was not worth one.
    fn final_reason(&self) -> FinalReason {
        let Some(queue) = &self.timeline.queue else { return FinalReason::Unknown };
        let config = self.configs.iter().find(|(key, _)| key == queue).map(|(_, config)| config.clone());
        if config.is_none() && self.own_max_attempts.is_none() && !self.is_whole {
            return FinalReason::Unknown;
        }
        let settings = config.unwrap_or_default().settings(&self.defaults.of(&queue.name));
        let allowed = self.own_max_attempts.unwrap_or(settings.max_attempts);
        let released = self.timeline.releases;
        let used = self.timeline.attempts.saturating_sub(released);
        if used >= allowed {
            FinalReason::LastAttempt { allowed, released }
        } else {
            FinalReason::NotRetryable
        }
    }

    fn wait_again(
        &mut self,
        position: Position,
        at: Time,
        kind: StepKind,
        why: DiscardReason,
        ready_at: Time,
    ) {
        self.step(position, at, kind);
        self.leave_lease(at, why);
        self.timeline.state = Some(TaskState::Waiting);
        self.ready_at = Some(ready_at);
    }

    fn end(&mut self, position: Position, at: Time, state: TaskState, kind: StepKind) {
        self.step(position, at, kind);
        self.leave_lease(at, DiscardReason::Ended);
        self.timeline.state = Some(state);
        self.timeline.waited_ms += self.ready_at.take().map_or(0, |ready| at.since_ms(ready));
    }

    fn leave_lease(&mut self, at: Time, why: DiscardReason) {
        if let Some(lease) = self.lease.take() {
            self.timeline.ran_ms += at.since_ms(lease.granted_at);
            self.past.push(Over { fencing_token: lease.fencing_token, worker: lease.worker, why });
        }
    }

    /// Adds a step about the attempt that is under way, if one is.
    fn step(&mut self, position: Position, at: Time, kind: StepKind) {
        let mut step = Step::new(position, at, kind);
        if let Some(lease) = &self.lease {
            step.attempt = Some(lease.attempt);
            step.worker = Some(lease.worker.clone());
            if step.kind.ends_an_attempt() {
                step.ran_ms = Some(at.since_ms(lease.granted_at));
                step.extensions = Some(lease.extensions);
            }
        }
        self.push(step);
    }

    fn push(&mut self, step: Step) {
        self.timeline.steps.push(step);
    }
}
