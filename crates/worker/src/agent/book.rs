//! What the agent knows and has to say: the leases that it holds, what was sent and not answered, how many more it
//! takes. No network, no clock and no processes of its own: it is told what happened and says what follows.

mod answers;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use prost::Message;
use tokio::sync::watch;
use wire::grpc::{
    LeaseStatus, LeasedTask, RegisterWorkerResponse, UpdateTaskStatusRequest, WorkRequest, WorkResponse,
    WorkerState, WorkerStats,
};

use super::capacity::{Capacity, Fit};
use super::held::{Held, Said};
use super::pool::Share;
use super::resources::Resources;
use super::words::{beat, release, start};
use crate::{Config, Outcome, Place};

/// Most leases at a time; a heartbeat can name as many.
pub const MAX_LEASES: usize = 1_000;
/// Most bytes of reports in one message, of the four mebibytes that it may have. One report is never larger: a result
/// has at most one mebibyte.
const MAX_REPORT_BYTES: usize = 2 * 1024 * 1024;

pub struct Book {
    capacity: Capacity,
    held: BTreeMap<Arc<str>, Held>,
    /// Leases to be given back, and those on their way.
    releases: BTreeMap<Arc<str>, Said>,
    /// What was sent on this connection, in order: so are the answers.
    sent: VecDeque<(Arc<str>, Sent, Duration)>,
    /// When the heartbeats went out whose answers are to come.
    beats: VecDeque<Duration>,
    beaten_at: Option<Duration>,
    /// How many tasks the coordinator may still send.
    credit: usize,
    interval: Duration,
    /// The longest that the operator allows.
    max_interval: Duration,
    is_draining: bool,
    /// Whether the coordinator was told on this connection to send nothing, whatever it may still send.
    none_told: bool,
    completed: i64,
    failed: i64,
}

#[derive(Clone, Copy, Debug)]
enum Sent {
    Start,
    Report,
    Release,
}

impl Book {
    pub fn new(config: &Config, share: Share) -> Book {
        Book {
            capacity: Capacity::new(share),
            held: BTreeMap::new(),
            releases: BTreeMap::new(),
            sent: VecDeque::new(),
            beats: VecDeque::new(),
            beaten_at: None,
            credit: 0,
            interval: config.heartbeat_interval,
            max_interval: config.heartbeat_interval,
            is_draining: false,
            none_told: false,
            completed: 0,
            failed: 0,
        }
    }

    /// A connection begins: whatever was not answered on the last one is said again, and every lease is beaten at once.
    /// Leases that the coordinator thinks are here and are not are given back.
    pub fn connected(&mut self, welcome: &RegisterWorkerResponse, known: Vec<LeaseStatus>) {
        let interval = welcome.heartbeat_interval.and_then(|interval| Duration::try_from(interval).ok());
        let told = interval.filter(|interval| !interval.is_zero());
        self.interval = told.unwrap_or(self.max_interval).min(self.max_interval);
        self.sent.clear();
        self.beats.clear();
        self.beaten_at = None;
        self.credit = 0;
        self.none_told = false;
        for held in self.held.values_mut() {
            held.start.again();
            if let Some((_, said)) = &mut held.report {
                said.again();
            }
        }
        self.releases.values_mut().for_each(Said::again);
        for lease in known.into_iter().filter(|lease| !lease.lost && lease.problem.is_none()) {
            let lease_id = Arc::from(lease.lease_id);
            if !self.held.contains_key(&lease_id) {
                self.releases.insert(lease_id, Said::NOW);
            }
        }
    }

    /// Takes in what the coordinator says. Gives the tasks to be begun.
    pub fn heard(&mut self, message: WorkResponse, now: Duration) -> Vec<(Arc<str>, LeasedTask)> {
        for answer in message.reports {
            if let Some((lease_id, sent, sent_at)) = self.sent.pop_front() {
                self.answered(&lease_id, sent, sent_at, &answer, now);
            }
        }
        if !message.leases.is_empty() {
            let sent_at = self.beats.pop_front();
            for status in message.leases {
                self.told(&status, sent_at);
            }
        }
        let mut begun = Vec::with_capacity(message.tasks.len());
        for task in message.tasks {
            self.credit = self.credit.saturating_sub(1);
            let lease_id: Arc<str> = Arc::from(task.lease_id.as_str());
            if self.is_draining || self.held.len() >= MAX_LEASES {
                self.releases.insert(lease_id, Said::NOW);
            } else if !self.held.contains_key(&lease_id) && self.takes(&lease_id, &task, now) {
                begun.push((lease_id, task));
            }
        }
        begun
    }

    /// The worker has looked at itself.
    pub fn set_fitness(&mut self, fitness: Result<(), String>) {
        self.capacity.set_fitness(fitness);
    }

    /// Hears of room that other agents have left.
    pub fn watch_room(&self) -> watch::Receiver<()> {
        self.capacity.watch()
    }

    /// The place of an attempt, for its work.
    pub fn place_of(&self, lease_id: &str) -> Option<Place> {
        self.held.get(lease_id).map(|held| held.place.clone())
    }

    /// An attempt has ended. What becomes of a lease that was lost meanwhile is nobody's concern.
    pub fn ended(&mut self, lease_id: &str, outcome: Outcome) {
        if let Some(held) = self.held.get_mut(lease_id) {
            held.ended(lease_id, outcome);
        }
    }

    /// Stops work whose lease is over by the worker's own clock.
    pub fn expire(&mut self, now: Duration) {
        let over: Vec<_> = self
            .held
            .iter()
            .filter(|(_, held)| held.report.is_none() && held.clock.is_over(now))
            .map(|(lease_id, _)| lease_id.clone())
            .collect();
        for lease_id in over {
            self.lose(&lease_id, "it ran out without an answered heartbeat");
        }
    }

    /// No more tasks.
    pub fn drain(&mut self) {
        self.is_draining = true;
    }

    /// Stops all work that has not ended, and gives its leases back.
    pub fn release_all(&mut self) {
        let releases = &mut self.releases;
        self.held.retain(|lease_id, held| {
            let is_reporting = held.report.is_some();
            if !is_reporting {
                held.place.cancel();
                releases.insert(lease_id.clone(), Said::NOW);
            }
            is_reporting
        });
    }

    /// Stops all work; nobody wants it any more.
    pub fn lose_all(&mut self) {
        self.held.values().for_each(|held| held.place.cancel());
        self.held.clear();
        self.releases.clear();
    }

    /// Whether nothing is held and nothing remains to be said.
    pub fn is_empty(&self) -> bool {
        self.held.is_empty() && self.releases.is_empty()
    }

    /// When time alone gives cause to look again, after now. What is due already waits for the connection.
    pub fn next_due(&self, now: Duration) -> Option<Duration> {
        let later = |said: &Said| match said {
            Said::NotYet(at) => Some(*at),
            _ => None,
        };
        let held = self.held.values().flat_map(|held| {
            let report = held.report.as_ref();
            let ends = report.is_none().then(|| held.clock.valid_until());
            [ends, later(&held.start), report.and_then(|(_, said)| later(said))]
        });
        let releases = self.releases.values().map(later);
        let others = [Some(self.beat_due()), self.capacity.next_due(now)];
        held.chain(releases).chain(others).flatten().filter(|due| *due > now).min()
    }

    /// Whether heartbeats that were sent have waited for an answer for so long.
    pub fn is_unheard(&self, now: Duration, patience: Duration) -> bool {
        self.beats.front().is_some_and(|sent_at| *sent_at + patience <= now)
    }

    pub fn has_news(&self, now: Duration) -> bool {
        let is_due = |held: &Held| match &held.report {
            Some((_, said)) => said.is_due(now),
            None => held.start.is_due(now),
        };
        self.more_credit(now) > 0
            || self.beat_due() <= now
            || self.wants_none() != self.none_told
            || self.held.values().any(is_due)
            || self.releases.values().any(|said| said.is_due(now))
    }

    /// Everything that is to be said now. It counts as sent.
    pub fn outgoing(&mut self, now: Duration) -> WorkRequest {
        let credit = self.more_credit(now);
        self.credit += credit;
        self.none_told = self.wants_none();
        let mut heartbeats = Vec::new();
        if self.beat_due() <= now {
            self.beaten_at = Some(now);
            heartbeats.extend(self.held.keys().map(beat));
        }
        if !heartbeats.is_empty() {
            self.beats.push_back(now);
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

    /// Whether a task can be begun. One that cannot is given back, or has failed.
    fn takes(&mut self, lease_id: &Arc<str>, task: &LeasedTask, now: Duration) -> bool {
        let asks = Resources::read(&task.resources_json);
        let fit = match &asks {
            Ok(asks) => self.capacity.judge(asks, now),
            Err(failure) => Fit::Never(failure.clone()),
        };
        let new = |seat| Held::new(task, seat, now, self.interval);
        match fit {
            Fit::Now(seat) => drop(self.held.insert(lease_id.clone(), new(Some(seat)))),
            Fit::Later => {
                self.releases.insert(lease_id.clone(), Said::NOW);
                return false;
            }
            Fit::Never(failure) => {
                tracing::warn!(task = task.task_id, why = failure.message, "a task cannot be done here");
                let mut held = new(None);
                held.ended(lease_id, failure.into());
                self.held.insert(lease_id.clone(), held);
                return false;
            }
        }
        true
    }

    fn wants_none(&self) -> bool {
        self.is_draining || !self.capacity.is_fit()
    }

    fn more_credit(&self, now: Duration) -> usize {
        match self.is_draining {
            true => 0,
            false => self.capacity.room(now).saturating_sub(self.credit),
        }
    }

    fn beat_due(&self) -> Duration {
        let shortest = self.held.values().map(|held| held.heartbeat_interval).min();
        let interval = shortest.map_or(self.interval, |shortest| shortest.min(self.interval));
        self.beaten_at.map_or(Duration::ZERO, |beaten_at| beaten_at + interval)
    }

    fn due_reports(&mut self, now: Duration) -> Vec<UpdateTaskStatusRequest> {
        let mut reports = Vec::new();
        let mut bytes = 0;
        for (lease_id, held) in &mut self.held {
            // There are never more leases than reports in a message.
            if let Some((report, said)) = &mut held.report {
                let size = report.encoded_len();
                if said.is_due(now) && (bytes == 0 || bytes + size <= MAX_REPORT_BYTES) {
                    bytes += size;
                    *said = Said::OnItsWay;
                    self.sent.push_back((lease_id.clone(), Sent::Report, now));
                    reports.push(report.clone());
                }
            } else if held.start.is_due(now) {
                held.start = Said::OnItsWay;
                self.sent.push_back((lease_id.clone(), Sent::Start, now));
                reports.push(start(lease_id, &held.task_id));
            }
        }
        for (lease_id, said) in &mut self.releases {
            if said.is_due(now) && reports.len() < MAX_LEASES {
                *said = Said::OnItsWay;
                self.sent.push_back((lease_id.clone(), Sent::Release, now));
                reports.push(release(lease_id));
            }
        }
        reports
    }

    fn state(&self) -> WorkerState {
        match (self.wants_none(), self.held.is_empty()) {
            (true, _) => WorkerState::Draining,
            (false, true) => WorkerState::Idle,
            (false, false) => WorkerState::Busy,
        }
    }
}

#[cfg(test)]
mod tests;
