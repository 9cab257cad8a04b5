//! Checks a history against a model of its own. The auditor knows the public types of the product (events, requests,
//! answers) and none of its code.
//!
//! A record must follow from the records before it and from something that was asked or from time. An answer must be
//! justified by records that were durable when the answer was sent. A record never changes, so a justified answer stays
//! true.

mod actors;
pub mod answer_kinds;
mod answers;
mod cluster;
mod coverage;
pub mod history;
mod holdings;
mod keys;
mod model;
mod order;
mod other_commands;
mod policy;
mod projections;
mod reads;
mod records;
mod timeline;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use authority::{
    Command, Contract, Digest, LeaseRef, Position, Properties, QueueConfig, QueueDefaults, QueueKey, Scope,
    TaskId, Time,
};
use coordinator::{BatchItem, Reply, Request};

use actors::Actors;

use cluster::ClusterModel;
pub use coverage::{Coverage, Covered};
use history::{AskId, Entry, Recorded, StoredBatch};
use keys::KeyModels;
use model::TaskModel;
use order::WaitingLines;
use policy::Claim;

/// What the auditor may rely on.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    /// References to leases that were never granted reach the coordinator.
    pub edge_broken: bool,
    /// The defaults of queues that the coordinator was started with.
    pub queue_defaults: QueueDefaults,
    /// There is a limit of memory that may be reached.
    pub memory_bound: bool,
    /// The memory of final tasks is bounded: the oldest may be purged early.
    pub final_bound: bool,
    /// The silence after which a worker may be lost.
    pub heartbeat_timeout_ms: u64,
    /// Answers do not name the record that they rest on, because their contract has no field for it. Then any version
    /// of a task fits that was not outdated when it was asked for.
    pub unnamed_records: bool,
    /// No answer leaves before a standby holds what it rests on.
    pub answers_wait_for_standby: bool,
}

pub struct Auditor {
    rules: Rules,
    position: Position,
    time: Time,
    /// The newest time in the ledger when the coordinator last started.
    started: Time,
    epoch: u64,
    tasks: BTreeMap<TaskId, TaskModel>,
    lines: WaitingLines,
    queues: BTreeMap<Arc<QueueKey>, QueueConfig>,
    dedup: BTreeMap<(Arc<QueueKey>, Arc<str>), TaskId>,
    redrives: BTreeMap<TaskId, TaskId>,
    asks: BTreeMap<AskId, Ask>,
    causes: Causes,
    /// The request whose answer delivered a lease.
    delivered_leases: BTreeMap<Position, AskId>,
    /// Every key that ever signed, the last one newest.
    token_keys: Vec<Arc<str>>,
    keys: KeyModels,
    /// The records by which owners took over.
    takeovers: Vec<Position>,
    /// The newest record that created a purged task again.
    created_again: Position,
    /// The record that the projection applied last.
    applied: Position,
    /// Every record, from position 1.
    log: Vec<Recorded>,
    cluster: ClusterModel,
    /// What was asked and not answered when records were lost.
    undone_asks: BTreeSet<AskId>,
    /// Every entry that was checked, if the caller wants to keep them.
    pub entries: Option<Vec<Entry>>,
    /// What the history has seen, for the counters.
    pub coverage: Coverage,
}

struct Ask {
    request: Request,
    /// What was durable when it was asked.
    asked_at: Position,
    /// The last time it was received.
    received: Option<Time>,
}

/// A queue that a worker asked for, and what it offered there.
type Offer = (Arc<str>, Arc<Properties>, Contract);

/// What was asked and may explain a record.
#[derive(Default)]
struct Causes {
    submits: BTreeMap<TaskId, authority::command::SubmitTask>,
    redrives: BTreeMap<TaskId, TaskId>,
    /// What each worker offered, by queue.
    offers: BTreeMap<(Scope, Arc<str>), BTreeSet<Offer>>,
    /// When requests of each worker, by its tenant, were received.
    heard: BTreeMap<(Arc<str>, Arc<str>), BTreeSet<Time>>,
    starts: BTreeSet<(Position, Arc<str>)>,
    /// Commands that a record must match as they are.
    others: Vec<Command>,
    rotations: BTreeSet<Arc<str>>,
    completions: BTreeMap<(Holder, Digest), Arc<[u8]>>,
    failures: BTreeMap<(Holder, Digest), Vec<Claim>>,
    /// Everything that was reported under a lease, whoever did it.
    reports: BTreeSet<(Position, Digest)>,
    heartbeats: BTreeSet<Holder>,
    releases: BTreeSet<Holder>,
    cancels: BTreeSet<TaskId>,
    kills: BTreeSet<TaskId>,
    sessions: BTreeSet<(Arc<str>, Arc<str>)>,
    configs: Vec<(Arc<QueueKey>, QueueConfig)>,
    actors: Actors,
}

/// Who speaks about a lease, as a request names it. Only the one to whom it was granted may.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Holder {
    lease: Position,
    task: TaskId,
    attempt: u32,
    worker: Arc<str>,
    scope: Scope,
}

impl From<&LeaseRef> for Holder {
    fn from(named: &LeaseRef) -> Holder {
        let LeaseRef { scope, worker, task, attempt, fencing_token: lease } = named.clone();
        Holder { lease, task, attempt, worker, scope }
    }
}

impl Auditor {
    pub fn new(rules: Rules) -> Auditor {
        Auditor {
            rules,
            position: Position::ZERO,
            time: Time::ZERO,
            started: Time::ZERO,
            epoch: 0,
            tasks: BTreeMap::new(),
            lines: WaitingLines::default(),
            queues: BTreeMap::new(),
            dedup: BTreeMap::new(),
            redrives: BTreeMap::new(),
            asks: BTreeMap::new(),
            causes: Causes::default(),
            delivered_leases: BTreeMap::new(),
            token_keys: Vec::new(),
            keys: KeyModels::default(),
            takeovers: Vec::new(),
            created_again: Position::ZERO,
            applied: Position::ZERO,
            log: Vec::new(),
            cluster: ClusterModel::default(),
            undone_asks: BTreeSet::new(),
            entries: None,
            coverage: Coverage::default(),
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
        if let Some(entries) = &mut self.entries {
            entries.push(entry.clone());
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
                    self.causes.hear(&ask.request, *at);
                }
                ensure(
                    *at >= self.started,
                    format!(
                        "ask {ask} is received at {at}, before {}, which the ledger had seen",
                        self.started
                    ),
                )
            }
            Entry::Recorded(recorded) => self.recorded(recorded).map_err(|what| {
                format!("record {} at {} ({:?}): {what}", recorded.position, recorded.at, recorded.event)
            }),
            Entry::Answered { ask, .. } if self.undone_asks.remove(ask) => {
                self.entries.iter_mut().for_each(|entries| drop(entries.pop()));
                Ok(())
            }
            Entry::Answered { ask, reply, durable } => self.answered(*ask, reply, *durable).map_err(|what| {
                let request = self.asks.get(ask).map(|ask| &ask.request);
                format!("answer {reply:?} to ask {ask} ({request:?}): {what}")
            }),
            Entry::Applied { position, at, event } => self
                .applied(*position, *at, event)
                .map_err(|what| format!("the projection of record {position} ({event:?}): {what}")),
            Entry::Started => {
                self.started = self.time;
                // The clock may have been behind what the coordinator heard before.
                self.causes.heard.clear();
                Ok(())
            }
            shared => self.read_shared(shared),
        }
    }

    /// Judges what only the nodes of a cluster do.
    fn read_shared(&mut self, entry: &Entry) -> Result<(), String> {
        match entry {
            Entry::AnsweredBy { ask, epoch } => {
                self.answered_by(*ask, *epoch).map_err(|what| format!("ask {ask}, by epoch {epoch}: {what}"))
            }
            Entry::Stored(batch) => self.stored(batch).map_err(|what| {
                let StoredBatch { node, epoch, first, .. } = batch;
                format!("the batch at {first} of node {node} at epoch {epoch}: {what}")
            }),
            Entry::Undone { next, link, names_owner } => {
                self.undone(*next, *link, *names_owner);
                Ok(())
            }
            Entry::Lost { place, since, excused } => self.lost(*place, *since, excused),
            Entry::Appended { node, next, is_first } => self.appended(*node, *next, *is_first),
            Entry::Followed { node, next } => {
                self.followed(*node, *next).map_err(|what| format!("node {node}: {what}"))
            }
            Entry::Refused { node, at } => self
                .refused_history(*node, *at)
                .map_err(|what| format!("node {node} refuses history from {at} on: {what}")),
            Entry::GaveUp { node, epoch } => {
                self.gave_up(*node, *epoch).map_err(|what| format!("epoch {epoch}: {what}"))
            }
            Entry::StoredInVain { epoch } => {
                self.stored_in_vain(*epoch);
                Ok(())
            }
            Entry::Announced { epoch } => {
                self.announced(*epoch);
                Ok(())
            }
            Entry::Clock { epoch, now, time } => {
                self.clock(*epoch, *now, *time).map_err(|what| format!("the clock of epoch {epoch}: {what}"))
            }
            holding => {
                self.holds(holding);
                Ok(())
            }
        }
    }

    /// The newest record that created a purged task again.
    pub fn created_again(&self) -> Position {
        self.created_again
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

    fn answered(&mut self, ask: AskId, reply: &Reply, durable: Option<Position>) -> Result<(), String> {
        let Some(asked) = self.asks.get(&ask) else { return Err("nobody asked".into()) };
        if durable.is_some_and(|durable| durable < self.position) {
            return Err(format!(
                "it was sent while a power cut would have kept records up to {} of {} only",
                durable.unwrap_or_default(),
                self.position
            ));
        }
        let request = asked.request.clone();
        let asked = Asked { ask, asked_at: asked.asked_at, received: asked.received };
        self.answer(&asked, &request, reply)?;
        answer_kinds::kinds_of_reply(reply).into_iter().for_each(|word| self.coverage.count_kind(word));
        Ok(())
    }

    fn mark_covered(&mut self, what: Covered) {
        self.coverage.bump(what);
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
            Request::Poll { lease, .. } => {
                let offers = self.offers.entry((lease.scope.clone(), lease.worker.clone())).or_default();
                offers.extend(
                    lease
                        .queues
                        .iter()
                        .map(|queue| (queue.clone(), lease.properties.clone(), lease.contract)),
                );
            }
            Request::Decide(batch) => batch.iter().for_each(|item| match item {
                BatchItem::Command(command) => self.note_command(command),
                BatchItem::Heartbeat { extend, .. } => {
                    self.heartbeats.insert(Holder::from(&extend.lease));
                }
            }),
            Request::Read(_) | Request::Wait { .. } | Request::Order(_) => {}
        }
    }

    /// Notes when the workers of a request were heard.
    fn hear(&mut self, request: &Request, at: Time) {
        let named = |lease: &LeaseRef| (lease.scope.tenant.clone(), lease.worker.clone());
        let workers: Vec<_> = match request {
            // The stream polls by itself.
            Request::Poll { lease, .. } if lease.contract == Contract::Stream => Vec::new(),
            Request::Poll { lease, .. } => vec![(lease.scope.tenant.clone(), lease.worker.clone())],
            Request::Decide(batch) => {
                let item = |item: &BatchItem| match item {
                    BatchItem::Heartbeat { extend, .. } => Some(named(&extend.lease)),
                    BatchItem::Command(command) => match command {
                        Command::ExtendLease(command) => Some(named(&command.lease)),
                        Command::StartAttempt(command) => Some(named(&command.lease)),
                        Command::ReportCompletion(command) => Some(named(&command.lease)),
                        Command::ReportFailure(command) => Some(named(&command.lease)),
                        _ => None,
                    },
                };
                batch.iter().filter_map(item).collect()
            }
            Request::Read(_) | Request::Wait { .. } | Request::Order(_) => Vec::new(),
        };
        for worker in workers {
            self.heard.entry(worker).or_default().insert(at);
        }
    }

    /// When a worker was last heard before a time.
    fn last_heard(&self, worker: &(Arc<str>, Arc<str>), before: Time) -> Time {
        let heard = self.heard.get(worker).and_then(|times| times.range(..before).next_back());
        heard.copied().unwrap_or_default()
    }

    fn note_command(&mut self, command: &Command) {
        self.actors.note(command);
        match command {
            Command::SubmitTask(task) => {
                self.submits.insert(task.id, (**task).clone());
            }
            Command::RedriveTask(redrive) => {
                self.redrives.insert(redrive.id, redrive.task);
            }
            Command::ReportCompletion(report) => {
                self.reports.insert((report.lease.fencing_token, report.digest));
                self.completions.insert(((&report.lease).into(), report.digest), report.result.clone());
            }
            Command::ReportFailure(report) => {
                self.reports.insert((report.lease.fencing_token, report.digest));
                let claims = self.failures.entry(((&report.lease).into(), report.digest)).or_default();
                claims.push(Claim { category: report.error.category, retryable: report.retryable });
            }
            Command::ReleaseLease(release) => {
                self.releases.insert(Holder::from(&release.lease));
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
            other => self.note_other_command(other),
        }
    }
}

/// Says what is wrong unless it holds.
fn ensure(holds: bool, what: impl Into<String>) -> Result<(), String> {
    if holds { Ok(()) } else { Err(what.into()) }
}
