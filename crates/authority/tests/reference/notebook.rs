//! The notebook: what is known of each task, and what time and ends do to it.

use std::sync::Arc;

use authority::Phase;
use authority::command::Verdict;
use authority::{
    DeadReason, Digest, Position, Properties, QueueConfig, QueueKey, QueueSettings, Scope, State, TaskId,
    TaskOptions, TaskState, Time,
};

#[derive(Default)]
pub(super) struct Model {
    pub tasks: Vec<Note>,
    pub queues: Vec<(Arc<QueueKey>, QueueConfig)>,
    /// Counts everything that makes a task wait, so that waiting tasks have an order.
    pub turns: u64,
}

pub(super) struct Note {
    pub id: TaskId,
    pub queue: Arc<QueueKey>,
    pub priority: i32,
    pub needs: Arc<Properties>,
    pub options: TaskOptions,
    pub state: TaskState,
    pub turn: u64,
    pub not_before: Time,
    pub attempt: u32,
    pub releases: u32,
    pub lease: Option<Held>,
    /// Every lease ever granted, the first attempt first.
    pub granted: Vec<Position>,
    pub reports: Vec<(Position, Digest, Verdict)>,
    /// Until when a stop was asked for, and what the task is called when it stops.
    pub stop: Option<(Time, DeadReason)>,
    pub dead: Option<DeadReason>,
    pub ended: Option<(Time, u64)>,
}

#[derive(Clone)]
pub(super) struct Held {
    pub number: Position,
    pub worker: Arc<str>,
    pub session: Option<Arc<str>>,
    pub request: Option<Digest>,
    pub granted: Time,
    pub extended: Time,
    pub length: u64,
    pub until: Time,
    pub started_by: Option<Arc<str>>,
}

impl Model {
    /// One command may let several tasks wait again; in which order is the authority's choice, and is taken over.
    pub(super) fn adopt_order(&mut self, state: &State, before: u64) {
        let mut new: Vec<usize> = (0..self.tasks.len())
            .filter(|at| self.tasks[*at].state == TaskState::Waiting && self.tasks[*at].turn > before)
            .collect();
        let mut turns: Vec<u64> = new.iter().map(|at| self.tasks[*at].turn).collect();
        turns.sort();
        new.sort_by_key(|at| match state.task(self.tasks[*at].id).map(|task| &task.phase) {
            Some(Phase::Waiting { since, .. }) => Some(*since),
            _ => None,
        });
        new.iter().zip(turns).for_each(|(at, turn)| self.tasks[*at].turn = turn);
    }

    pub(super) fn turns(&self) -> u64 {
        self.turns
    }

    /// Every task of the state is in the notebook, in the same shape, and no other.
    pub(super) fn compare(&self, state: &State) -> Check {
        same(self.tasks.len(), state.len())?;
        for note in &self.tasks {
            let task = state.task(note.id).ok_or_else(|| format!("{} is missing", note.id))?;
            let (until, wait, reason) = match &task.phase {
                Phase::Leased(lease) => (Some((lease.fencing_token, lease.expires_at)), None, None),
                Phase::Waiting { not_before, .. } => (None, *not_before, None),
                Phase::Dead { reason, .. } => (None, None, Some(*reason)),
                _ => (None, None, None),
            };
            let real = (task.state(), task.attempt, task.releases, until, reason);
            let lease = note.lease.as_ref().map(|held| (held.number, held.until));
            let mine = (note.state, note.attempt, note.releases, lease, note.dead);
            same(mine, real).map_err(|what| format!("task {}: {what}", note.id))?;
            same(
                (task.cancel.as_ref().map(|cancel| cancel.grace_until), task.reports.len()),
                (note.stop.map(|(until, _)| until), note.reports.len()),
            )?;
            if note.state == TaskState::Waiting {
                same(note.not_before, wait.unwrap_or_default())?;
            }
        }
        Ok(())
    }

    pub(super) fn let_time_pass(&mut self, at: usize, now: Time) {
        self.expire_if_over(at, now);
        let grace = self.settings(at).cancel_grace_ms;
        let late = self.past_deadline(at, now);
        let note = &mut self.tasks[at];
        match (note.state, note.stop) {
            (TaskState::Waiting, _) if late => self.kill(at, DeadReason::Deadline, now),
            (TaskState::Leased, Some((until, _))) if now >= until => {
                self.kill(at, DeadReason::CancelTimeout, now)
            }
            (TaskState::Leased, None) if late => note.stop = Some((now.plus_ms(grace), DeadReason::Deadline)),
            _ => {}
        }
    }

    pub(super) fn expire_if_over(&mut self, at: usize, now: Time) {
        let Some(held) = self.tasks[at].lease.clone() else { return };
        if now <= held.until {
            return;
        }
        let settings = self.settings(at);
        let note = &self.tasks[at];
        let used = note.attempt - note.releases;
        match note.stop {
            Some((until, _)) if held.until >= until => self.kill(at, DeadReason::CancelTimeout, now),
            Some((_, reason)) => self.kill(at, reason, now),
            None if used >= note.options.max_attempts.unwrap_or(settings.max_attempts) => {
                self.kill(at, DeadReason::HeartbeatTimeout, now);
            }
            None if self.past_deadline(at, now) => self.kill(at, DeadReason::Deadline, now),
            None => self.wait_again(at, Time::ZERO),
        }
    }

    pub(super) fn give_back(&mut self, at: usize, now: Time) {
        match (self.tasks[at].state, self.tasks[at].stop) {
            (TaskState::Leased, Some((_, reason))) => self.kill(at, reason, now),
            (TaskState::Leased, None) => {
                self.tasks[at].releases += 1;
                self.wait_again(at, Time::ZERO);
            }
            _ => {}
        }
    }

    pub(super) fn wait_again(&mut self, at: usize, not_before: Time) {
        self.turns += 1;
        let note = &mut self.tasks[at];
        (note.state, note.lease, note.not_before, note.turn) =
            (TaskState::Waiting, None, not_before, self.turns);
    }

    pub(super) fn kill(&mut self, at: usize, reason: DeadReason, now: Time) {
        self.tasks[at].dead = Some(reason);
        self.end(at, TaskState::Dead, now);
    }

    pub(super) fn end(&mut self, at: usize, state: TaskState, now: Time) {
        self.turns += 1;
        let note = &mut self.tasks[at];
        (note.state, note.lease, note.ended) = (state, None, Some((now, self.turns)));
    }

    pub(super) fn past_deadline(&self, at: usize, now: Time) -> bool {
        self.tasks[at].options.deadline.is_some_and(|deadline| now >= deadline)
    }

    pub(super) fn in_scope(&self, scope: &Scope, id: TaskId) -> Option<usize> {
        self.tasks.iter().position(|note| note.id == id && note.queue.scope == *scope)
    }

    pub(super) fn settings(&self, at: usize) -> QueueSettings {
        self.settings_of(&self.tasks[at].queue)
    }

    pub(super) fn settings_of(&self, queue: &QueueKey) -> QueueSettings {
        let config = self.queues.iter().find(|(key, _)| **key == *queue).map(|(_, config)| config.clone());
        config.unwrap_or_default().settings(&QueueConfig::default())
    }

    /// The bound of a queue that is full.
    pub(super) fn full(&self, queue: &QueueKey) -> Option<u64> {
        let open =
            self.tasks.iter().filter(|note| *note.queue == *queue && note.ended.is_none()).count() as u64;
        self.settings_of(queue).max_queue_size.filter(|max| open >= *max)
    }
}

/// No lease passes the time limit of its attempt.
pub(super) fn bounded(note: &Note, granted: Time, until: Time) -> Time {
    note.options.timeout_ms.map_or(until, |timeout_ms| until.min(granted.plus_ms(timeout_ms)))
}

pub(super) type Check = Result<(), String>;

pub(super) fn same<T: PartialEq + std::fmt::Debug>(mine: T, real: T) -> Check {
    if mine == real { Ok(()) } else { Err(format!("the model says {mine:?}, not {real:?}")) }
}
