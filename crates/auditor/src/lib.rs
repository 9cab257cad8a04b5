//! The auditor: judges a history with a model of its own. It knows the public words of the product (events, requests,
//! answers) and none of its code.
//!
//! A record must follow from the records before it and from something that was asked or from time. An answer must be
//! justified by records that were durable when it was told; since a record never changes, it then stays true.

mod answers;
pub mod history;
mod reach;
mod reads;
mod records;
mod truth;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use authority::{Command, Digest, Position, QueueConfig, QueueKey, TaskId, Time};
use coordinator::{Reply, Request, Step};

use history::{AskId, Entry};
pub use reach::{Reach, Reached};
use truth::TaskTruth;

/// What the auditor may rely on.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rules {
    /// References to leases that were never granted reach the coordinator.
    pub edge_broken: bool,
}

pub struct Auditor {
    rules: Rules,
    position: Position,
    time: Time,
    epoch: u64,
    tasks: BTreeMap<TaskId, TaskTruth>,
    queues: BTreeMap<Arc<QueueKey>, QueueConfig>,
    dedup: BTreeMap<(Arc<QueueKey>, Arc<str>), TaskId>,
    redrives: BTreeMap<TaskId, TaskId>,
    asks: BTreeMap<AskId, Ask>,
    causes: Causes,
    /// Who was told a lease.
    told_leases: BTreeMap<Position, AskId>,
    /// The records by which owners took over.
    takeovers: Vec<Position>,
    /// Everything that was read, where somebody wants to have it.
    pub notebook: Option<Vec<Entry>>,
    /// What the history has seen, for the counters.
    pub reach: Reach,
}

struct Ask {
    request: Request,
    /// What was durable when it was asked.
    asked_at: Position,
    /// The last time it was received.
    received: Option<Time>,
}

/// What was asked and may explain a record.
#[derive(Default)]
struct Causes {
    submits: BTreeMap<TaskId, authority::command::SubmitTask>,
    redrives: BTreeMap<TaskId, TaskId>,
    polls: BTreeSet<(authority::Scope, Arc<str>)>,
    completions: BTreeMap<(Position, Digest), Arc<[u8]>>,
    failures: BTreeSet<(Position, Digest)>,
    heartbeats: BTreeSet<Position>,
    releases: BTreeSet<Position>,
    cancels: BTreeSet<TaskId>,
    kills: BTreeSet<TaskId>,
    sessions: BTreeSet<(Arc<str>, Arc<str>)>,
    configs: Vec<(Arc<QueueKey>, QueueConfig)>,
}

impl Auditor {
    pub fn new(rules: Rules) -> Auditor {
        Auditor {
            rules,
            position: Position::ZERO,
            time: Time::ZERO,
            epoch: 0,
            tasks: BTreeMap::new(),
            queues: BTreeMap::new(),
            dedup: BTreeMap::new(),
            redrives: BTreeMap::new(),
            asks: BTreeMap::new(),
            causes: Causes::default(),
            told_leases: BTreeMap::new(),
            takeovers: Vec::new(),
            notebook: None,
            reach: Reach::default(),
        }
    }

    /// Judges a whole history.
    pub fn audit(rules: Rules, history: &[Entry]) -> Result<Auditor, String> {
        let mut auditor = Auditor::new(rules);
        history.iter().try_for_each(|entry| auditor.read(entry))?;
        Ok(auditor)
    }

    /// Judges the next entry.
    pub fn read(&mut self, entry: &Entry) -> Result<(), String> {
        if let Some(notebook) = &mut self.notebook {
            notebook.push(entry.clone());
        }
        match entry {
            Entry::Asked { ask, request } => {
                self.causes.note(request);
                let asked = Ask { request: request.clone(), asked_at: self.position, received: None };
                self.asks.insert(*ask, asked);
                Ok(())
            }
            Entry::Received { ask, at } => {
                if let Some(ask) = self.asks.get_mut(ask) {
                    ask.received = Some(*at);
                }
                Ok(())
            }
            Entry::Recorded(recorded) => self.recorded(recorded).map_err(|what| {
                format!("record {} at {} ({:?}): {what}", recorded.position, recorded.at, recorded.event)
            }),
            Entry::Told { ask, reply, kept } => self.told(*ask, reply, *kept).map_err(|what| {
                let request = self.asks.get(ask).map(|ask| &ask.request);
                format!("answer {reply:?} to ask {ask} ({request:?}): {what}")
            }),
            Entry::Started => Ok(()),
        }
    }

    /// The worker that asked for leases.
    pub fn poller(&self, ask: AskId) -> Option<Arc<str>> {
        match &self.asks.get(&ask)?.request {
            Request::Poll { lease, .. } => Some(lease.worker.clone()),
            _ => None,
        }
    }

    /// An accepted task that has not ended.
    pub fn unfinished(&self) -> Option<TaskId> {
        self.tasks.iter().find(|(_, task)| !task.is_over()).map(|(id, _)| *id)
    }

    /// The records of each task that is not purged, newest first.
    pub fn histories(&self) -> impl Iterator<Item = (TaskId, Vec<Position>)> {
        self.tasks
            .iter()
            .filter(|(_, task)| !task.purged)
            .map(|(id, task)| (*id, task.versions.iter().rev().map(|version| version.position).collect()))
    }

    fn told(&mut self, ask: AskId, reply: &Reply, kept: Option<Position>) -> Result<(), String> {
        let Some(asked) = self.asks.get(&ask) else { return Err("nobody asked".into()) };
        if kept.is_some_and(|kept| kept < self.position) {
            return Err(format!(
                "it was told while a power cut would have kept records up to {} of {} only",
                kept.unwrap_or_default(),
                self.position
            ));
        }
        let request = asked.request.clone();
        let asked = Asked { ask, asked_at: asked.asked_at, received: asked.received };
        self.answer(&asked, &request, reply)
    }

    fn see(&mut self, what: Reached) {
        self.reach.bump(what);
    }
}

/// The circumstances of an answer.
struct Asked {
    ask: AskId,
    asked_at: Position,
    received: Option<Time>,
}

impl Causes {
    fn note(&mut self, request: &Request) {
        match request {
            Request::SubmitBatch(tasks) => {
                self.submits.extend(tasks.iter().map(|task| (task.id, task.clone())));
            }
            Request::Poll { lease, .. } => {
                self.polls.insert((lease.scope.clone(), lease.worker.clone()));
            }
            Request::Heartbeat { extend, .. } => {
                self.heartbeats.insert(extend.lease.lease);
            }
            Request::Decide(command) => self.note_command(command),
            Request::Together(steps) => steps.iter().for_each(|step| match step {
                Step::Decide(command) => self.note_command(command),
                Step::Heartbeat { extend, .. } => {
                    self.heartbeats.insert(extend.lease.lease);
                }
            }),
            Request::Read(_) | Request::WaitTask { .. } => {}
        }
    }

    fn note_command(&mut self, command: &Command) {
        match command {
            Command::SubmitTask(task) => {
                self.submits.insert(task.id, (**task).clone());
            }
            Command::RedriveTask(redrive) => {
                self.redrives.insert(redrive.id, redrive.task);
            }
            Command::ReportCompletion(report) => {
                self.completions.insert((report.lease.lease, report.digest), report.result.clone());
            }
            Command::ReportFailure(report) => {
                self.failures.insert((report.lease.lease, report.digest));
            }
            Command::ReleaseLease(release) => {
                self.releases.insert(release.lease.lease);
            }
            Command::CancelTask(cancel) => {
                self.cancels.insert(cancel.task);
            }
            Command::KillTask(kill) => {
                self.kills.insert(kill.task);
            }
            Command::StartSession(session) => {
                self.sessions.insert((session.worker.clone(), session.session.clone()));
            }
            Command::ConfigureQueue(configure) => {
                self.configs.push((configure.queue.clone(), configure.config.clone()));
            }
            _ => {}
        }
    }
}

/// Says what is wrong unless it holds.
fn ensure(holds: bool, what: impl Into<String>) -> Result<(), String> {
    if holds { Ok(()) } else { Err(what.into()) }
}
