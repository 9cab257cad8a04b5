//! The state of the agent: the leases that it holds, the messages without an answer, and the credit for more tasks.
//!
//! The table does no I/O and reads no clock: it takes events and returns the messages that follow from them.

mod on_answer;

pub(super) use on_answer::{MAX_UPLOADS_AGAIN, OUTPUTS_MISSING, outputs_stay_missing};

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use prost::Message;
use wire::grpc::{
    LeaseHeartbeat, LeaseStatus, LeasedTask, RegisterWorkerResponse, TaskStatus, UpdateTaskStatusRequest,
    WorkRequest, WorkResponse, WorkerState, WorkerStats,
};

use super::held_lease::{HeldLease, MIN_HEARTBEAT_INTERVAL, SendState};
use super::pool::{Fit, PoolHandle};
use super::resources::Resources;
use crate::{Config, Outcome, Permit};

/// Most leases at a time. One heartbeat message can name as many.
pub(super) const MAX_LEASES: usize = 1_000;
/// Most bytes of reports in one message, of the 4 MiB that a message may have. A single report is smaller: a result has
/// at most 1 MiB.
const MAX_REPORT_BYTES: usize = 2 * 1024 * 1024;

pub(super) struct LeaseTable {
    pub(super) pool: PoolHandle,
    held: BTreeMap<Arc<str>, HeldLease>,
    releases: BTreeMap<Arc<str>, SendState>,
    /// Leases whose outputs have to be uploaded again.
    lacking_outputs: Vec<Arc<str>>,
    /// Messages that were sent on this connection; the answers come in the same order.
    sent: VecDeque<(Arc<str>, SentKind, Duration)>,
    unanswered_heartbeats: VecDeque<Duration>,
    last_heartbeat_at: Option<Duration>,
    /// How many tasks the coordinator may still send.
    credit: usize,
    interval: Duration,
    /// The operator's limit.
    max_interval: Duration,
    is_draining: bool,
    /// Whether this connection has announced that the worker takes no tasks.
    is_draining_announced: bool,
    completed: i64,
    failed: i64,
}

#[derive(Clone, Copy, Debug)]
enum SentKind {
    Start,
    Report,
    Release,
}

impl LeaseTable {
    pub(super) fn new(config: &Config, pool: PoolHandle) -> LeaseTable {
        LeaseTable {
            pool,
            held: BTreeMap::new(),
            releases: BTreeMap::new(),
            lacking_outputs: Vec::new(),
            sent: VecDeque::new(),
            unanswered_heartbeats: VecDeque::new(),
            last_heartbeat_at: None,
            credit: 0,
            interval: config.heartbeat_interval,
            max_interval: config.heartbeat_interval,
            is_draining: false,
            is_draining_announced: false,
            completed: 0,
            failed: 0,
        }
    }

    /// Resends every message that the last connection left unanswered, and sends a heartbeat for every lease at once.
    /// Releases the leases that the coordinator knows of and the worker does not.
    pub(super) fn on_connected(&mut self, welcome: &RegisterWorkerResponse, known: Vec<LeaseStatus>) {
        let interval = welcome.heartbeat_interval.and_then(|interval| Duration::try_from(interval).ok());
        let interval = interval.filter(|interval| !interval.is_zero());
        self.interval =
            interval.unwrap_or(self.max_interval).max(MIN_HEARTBEAT_INTERVAL).min(self.max_interval);
        self.sent.clear();
        self.unanswered_heartbeats.clear();
        self.last_heartbeat_at = None;
        self.credit = 0;
        self.is_draining_announced = false;
        for held in self.held.values_mut() {
            held.start.resend();
            if let Some((_, state)) = &mut held.report {
                state.resend();
            }
        }
        self.releases.values_mut().for_each(SendState::resend);
        for lease in known.into_iter().filter(|lease| !lease.lost && lease.problem.is_none()) {
            let lease_id = Arc::from(lease.lease_id);
            if !self.held.contains_key(&lease_id) {
                self.releases.insert(lease_id, SendState::NOW);
            }
        }
    }

    /// Applies a message of the coordinator. Returns the tasks to begin.
    pub(super) fn on_message(&mut self, message: WorkResponse, now: Duration) -> Vec<(Arc<str>, LeasedTask)> {
        for answer in message.reports {
            if let Some((lease_id, sent, sent_at)) = self.sent.pop_front() {
                self.on_report_answer(&lease_id, sent, sent_at, &answer, now);
            }
        }
        if !message.leases.is_empty() {
            let sent_at = self.unanswered_heartbeats.pop_front();
            for status in message.leases {
                self.on_lease_status(&status, sent_at);
            }
        }
        let mut begun = Vec::with_capacity(message.tasks.len());
        for task in message.tasks {
            self.credit = self.credit.saturating_sub(1);
            let lease_id: Arc<str> = Arc::from(task.lease_id.as_str());
            if self.is_draining || self.held.len() >= MAX_LEASES {
                self.releases.insert(lease_id, SendState::NOW);
            } else if !self.held.contains_key(&lease_id) && self.accept_task(&lease_id, &task, now) {
                begun.push((lease_id, task));
            }
        }
        begun
    }

    pub(super) fn permit_of(&self, lease_id: &str) -> Option<Permit> {
        self.held.get(lease_id).map(|held| held.permit.clone())
    }

    /// Ignores attempts whose lease was lost meanwhile.
    pub(super) fn on_attempt_end(&mut self, lease_id: &str, outcome: Outcome) {
        if let Some(held) = self.held.get_mut(lease_id) {
            held.on_attempt_end(lease_id, outcome);
        }
    }

    /// Cancels attempts whose lease is over by the worker's own clock.
    pub(super) fn expire(&mut self, now: Duration) {
        let over: Vec<_> = self
            .held
            .iter()
            .filter(|(_, held)| held.report.is_none() && held.clock.valid_until() <= now)
            .map(|(lease_id, _)| lease_id.clone())
            .collect();
        for lease_id in over {
            self.lose(&lease_id, "the lease ran out without an answered heartbeat");
        }
    }

    pub(super) fn drain(&mut self) {
        self.is_draining = true;
    }

    /// Cancels all attempts that have not ended and releases their leases.
    pub(super) fn release_all(&mut self) {
        let releases = &mut self.releases;
        self.held.retain(|lease_id, held| {
            let is_reporting = held.report.is_some();
            if !is_reporting {
                held.permit.lose();
                releases.insert(lease_id.clone(), SendState::NOW);
            }
            is_reporting
        });
    }

    pub(super) fn lose_all(&mut self) {
        self.held.values().for_each(|held| held.permit.lose());
        self.held.clear();
        self.releases.clear();
    }

    /// Whether there is no lease and nothing to send.
    pub(super) fn is_empty(&self) -> bool {
        self.held.is_empty() && self.releases.is_empty()
    }

    /// The next time after `now` when something becomes due. What is due already waits for the connection.
    pub(super) fn next_due(&self, now: Duration) -> Option<Duration> {
        let due_at = |state: &SendState| match state {
            SendState::DueAt(at) => Some(*at),
            _ => None,
        };
        let held = self.held.values().flat_map(|held| {
            let report = held.report.as_ref();
            let ends = report.is_none().then(|| held.clock.valid_until());
            [ends, due_at(&held.start), report.and_then(|(_, state)| due_at(state))]
        });
        let releases = self.releases.values().map(due_at);
        let others = [Some(self.heartbeat_due()), self.pool.next_due(now)];
        held.chain(releases).chain(others).flatten().filter(|due| *due > now).min()
    }

    /// Whether a heartbeat has been unanswered for `patience`.
    pub(super) fn is_heartbeat_overdue(&self, now: Duration, patience: Duration) -> bool {
        self.unanswered_heartbeats.front().is_some_and(|sent_at| *sent_at + patience <= now)
    }

    pub(super) fn has_message_due(&self, now: Duration) -> bool {
        let is_due = |held: &HeldLease| match &held.report {
            Some((_, state)) => state.is_due(now),
            None => held.start.is_due(now),
        };
        self.new_credit(now) > 0
            || self.heartbeat_due() <= now
            || self.wants_no_tasks() != self.is_draining_announced
            || self.held.values().any(is_due)
            || self.releases.values().any(|state| state.is_due(now))
    }

    /// Takes everything that is due now, as one message.
    pub(super) fn next_message(&mut self, now: Duration) -> WorkRequest {
        let credit = self.new_credit(now);
        self.credit += credit;
        self.is_draining_announced = self.wants_no_tasks();
        let mut heartbeats = Vec::new();
        if self.heartbeat_due() <= now {
            self.last_heartbeat_at = Some(now);
            let heartbeat =
                |lease_id: &Arc<str>| LeaseHeartbeat { lease_id: lease_id.to_string(), ..Default::default() };
            heartbeats.extend(self.held.keys().map(heartbeat));
        }
        if !heartbeats.is_empty() {
            self.unanswered_heartbeats.push_back(now);
        }
        WorkRequest {
            hello: None,
            credit: u32::try_from(credit).unwrap_or(u32::MAX),
            reports: self.due_reports(now),
            heartbeats,
            state: self.state().into(),
            stats: Some(WorkerStats {
                active_tasks: i32::try_from(self.held.len()).unwrap_or(i32::MAX),
                total_completed: self.completed,
                total_failed: self.failed,
            }),
        }
    }

    /// Whether a task can begin. One that does not fit now is released; one that never fits has failed.
    fn accept_task(&mut self, lease_id: &Arc<str>, task: &LeasedTask, now: Duration) -> bool {
        let asks = Resources::parse(&task.resources_json);
        let fit = match &asks {
            Ok(asks) => self.pool.fit(asks, now),
            Err(failure) => Fit::Never(failure.clone()),
        };
        let new = |slot| HeldLease::new(task, slot, now, self.interval);
        match fit {
            Fit::Now(slot) => drop(self.held.insert(lease_id.clone(), new(Some(slot)))),
            Fit::Later => {
                self.releases.insert(lease_id.clone(), SendState::NOW);
                return false;
            }
            Fit::Never(failure) => {
                tracing::warn!(task = task.task_id, why = failure.message, "the worker cannot run a task");
                let mut held = new(None);
                held.on_attempt_end(lease_id, failure.into());
                self.held.insert(lease_id.clone(), held);
                return false;
            }
        }
        true
    }

    fn wants_no_tasks(&self) -> bool {
        self.is_draining || !self.pool.is_fit()
    }

    fn new_credit(&self, now: Duration) -> usize {
        if self.is_draining { 0 } else { self.pool.free_slots(now).saturating_sub(self.credit) }
    }

    fn heartbeat_due(&self) -> Duration {
        let shortest = self.held.values().map(|held| held.heartbeat_interval).min();
        let interval = shortest.map_or(self.interval, |shortest| shortest.min(self.interval));
        self.last_heartbeat_at.map_or(Duration::ZERO, |last| last + interval)
    }

    fn due_reports(&mut self, now: Duration) -> Vec<UpdateTaskStatusRequest> {
        let mut reports = Vec::new();
        let mut bytes = 0;
        for (lease_id, held) in &mut self.held {
            if let Some((report, state)) = &mut held.report {
                let size = report.encoded_len();
                if state.is_due(now) && (bytes == 0 || bytes + size <= MAX_REPORT_BYTES) {
                    bytes += size;
                    *state = SendState::InFlight;
                    self.sent.push_back((lease_id.clone(), SentKind::Report, now));
                    reports.push(report.clone());
                }
            } else if held.start.is_due(now) {
                held.start = SendState::InFlight;
                self.sent.push_back((lease_id.clone(), SentKind::Start, now));
                reports.push(UpdateTaskStatusRequest {
                    lease_id: lease_id.to_string(),
                    task_id: held.task_id.clone(),
                    status: TaskStatus::Executing.into(),
                    ..UpdateTaskStatusRequest::default()
                });
            }
        }
        for (lease_id, state) in &mut self.releases {
            if state.is_due(now) && reports.len() < MAX_LEASES {
                *state = SendState::InFlight;
                self.sent.push_back((lease_id.clone(), SentKind::Release, now));
                let lease_id = lease_id.to_string();
                reports.push(UpdateTaskStatusRequest { lease_id, release: true, ..Default::default() });
            }
        }
        reports
    }

    fn state(&self) -> WorkerState {
        match (self.wants_no_tasks(), self.held.is_empty()) {
            (true, _) => WorkerState::Draining,
            (false, true) => WorkerState::Idle,
            (false, false) => WorkerState::Busy,
        }
    }
}

#[cfg(test)]
mod tests;
