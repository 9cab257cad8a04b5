//! The engine of the coordinator as a plain struct, driven from outside: requests go in, a batch of records comes
//! out, "durable" goes in, answers come out. It has no thread, no clock and no disk, so that production and a
//! simulator drive the same code.
//!
//! The state runs at most one batch ahead of the disk while another forms, and no answer leaves before the
//! position that it rests on is durable.

mod answers;
mod decide;
mod drained_workers;
mod journal;
mod lease_holders;
mod lost_workers;
mod polls;
mod registry;
mod snapshot;
mod snapshot_plan;
mod task_watchers;

pub use answers::ReplyTo;
pub(crate) use drained_workers::MAX_DRAINED;
pub use journal::Notes;
pub use lease_holders::{
    ChargeUpload, FindHeld, HeldLeases, LeaseHolder, LeaseHolders, LeaseKey, UploadCharge,
};
pub use ledger::DiskSpace;
pub use registry::{Activity, Liveness, Registered, Registration, Registry, WorkerStatus};
pub use snapshot::{Slice, SliceSize};
pub use snapshot_plan::{SnapshotPlan, SnapshotStep};

use std::collections::HashMap;
use std::sync::Arc;

use authority::command::{Purge, ReleaseLease, Tick};
use authority::event::ReleaseCause;
use authority::{Command, Position, State, TaskId, Time};
use ledger::record::snapshot::Slices;
use ledger::{Batch, WantedChanges};

use crate::log_budget::LogBudget;
use crate::request::{
    Depth, Order, Progress, Read, Reply, Request, Status, TaskDetail, TenantStatus, Unavailable,
};
use answers::Answers;
use journal::Journal;
use lost_workers::LostWorkers;
use polls::Polls;
use task_watchers::TaskWatchers;

/// With this much decided and not on its way to the disk, no more requests are taken.
const FULL_BATCH_BYTES: usize = 2 << 20;
/// Most answers that wait for the disk: reads take no space in a batch, but their answers wait like all others.
const MAX_ANSWERS: usize = 16_384;
/// How long purging may rest: a task is forgotten at most this long after its retention.
const PURGE_PAUSE_MS: u64 = 5_000;
/// The time between two purge steps while there is more to forget: deletion goes on beside the work, not before it.
/// It must keep up with the tasks that end: a step forgets a thousand.
const PURGE_STEP_MS: u64 = 10;

/// Most lines in one second about reports that are refused.
const MAX_REFUSED_REPORT_LINES_PER_SECOND: u32 = 100;

pub struct Engine<T> {
    state: State,
    journal: Journal,
    answers: Answers<T>,
    polls: Polls<T>,
    task_watchers: TaskWatchers<T>,
    registry: Arc<Registry>,
    lost_workers: LostWorkers,
    progress: HashMap<TaskId, Progress>,
    refused_reports: LogBudget,
    disk_space: DiskSpace,
    next_purge: Time,
    /// No task is purged for its age before this time.
    purge_by_age_from: Time,
    snapshot: Option<Slices>,
    slice_size: SliceSize,
}

impl<T: ReplyTo> Engine<T> {
    /// Begins with a state that is wholly durable. `purge_by_age_from` holds back the purge of old tasks after a
    /// jump of the clock that no operator has checked yet.
    pub fn new(state: State, purge_by_age_from: Time) -> Engine<T> {
        let position = state.position();
        Engine {
            state,
            journal: Journal::new(position),
            answers: Answers::new(position),
            polls: Polls::default(),
            task_watchers: TaskWatchers::default(),
            registry: Arc::default(),
            lost_workers: LostWorkers::default(),
            progress: HashMap::new(),
            refused_reports: LogBudget::new(MAX_REFUSED_REPORT_LINES_PER_SECOND),
            disk_space: DiskSpace::Plenty,
            next_purge: Time::ZERO,
            purge_by_age_from,
            snapshot: None,
            slice_size: SliceSize::default(),
        }
    }

    /// From now on no answer leaves before an append or a confirmation has returned that was begun after its request
    /// came: other nodes may write too, and this one may not be the owner any more.
    pub fn confirm_answers(&mut self) {
        self.answers.need_confirmation();
    }

    /// Collects what each batch changes, for a ledger that wants to know.
    pub fn collect_changes(&mut self, wanted: WantedChanges) {
        self.journal.collect_changes(wanted);
    }

    pub(crate) fn into_state(self) -> State {
        self.state
    }

    pub fn state(&self) -> &State {
        &self.state
    }

    /// The workers that were seen.
    pub fn registry(&self) -> &Arc<Registry> {
        &self.registry
    }

    /// The newest durable record.
    pub fn durable(&self) -> Position {
        self.answers.durable_up_to()
    }

    /// What was decided and is not on its way to the disk yet.
    pub fn batch_bytes(&self) -> usize {
        self.journal.bytes()
    }

    /// Whether more may be decided before what was decided is on its way to the disk. A full disk takes nothing, but
    /// then nothing is decided either, and every request is refused.
    pub fn takes_requests(&self) -> bool {
        (!self.is_full() || self.disk_space == DiskSpace::Nothing) && self.answers.len() < MAX_ANSWERS
    }

    /// Whether the open batch should be written before more is added to it.
    pub fn is_full(&self) -> bool {
        self.journal.bytes() >= FULL_BATCH_BYTES
    }

    /// Sets the space on the disk. Polls that got nothing for lack of space are served again with the next step.
    pub fn set_disk_space(&mut self, disk_space: DiskSpace) {
        if disk_space == DiskSpace::Plenty && self.disk_space != DiskSpace::Plenty {
            self.polls.touch_all();
            self.next_purge = Time::ZERO;
        }
        self.disk_space = disk_space;
    }

    /// Handles one request that was received at `received_at`.
    pub fn receive(&mut self, request: Request, received_at: Time, reply_to: T) {
        let now = self.arrive_at(received_at);
        match request {
            Request::Decide(batch) => {
                let reply = self.decide(batch, now);
                self.reply(reply_to, reply);
            }
            Request::Poll { lease, until } => self.poll(lease, until, now, reply_to),
            Request::Wait { scope, task, condition, until } => {
                let current = self.detail(&scope, task);
                let met =
                    current.as_ref().is_none_or(|detail| task_watchers::is_met(condition, &detail.view.task));
                if !self.task_watchers.has_capacity(&scope, condition, now) {
                    self.reply(reply_to, Reply::Unavailable(Unavailable::Overloaded));
                } else if met || until <= now {
                    self.reply(reply_to, Reply::Task(current.map(Box::new)));
                } else {
                    self.task_watchers.park(scope, task, condition, until, reply_to);
                }
            }
            Request::Read(read) => {
                let reply = self.read(read, now);
                self.reply(reply_to, reply);
            }
            Request::Order(order) => {
                let ordered = self.registry.order(&order);
                if order.order == Order::Resume {
                    self.polls.resume();
                }
                self.reply(reply_to, Reply::Ordered(ordered));
            }
        }
        self.serve_polls(now);
    }

    /// Does what time alone asks for. `now` must not be later than the receipt of any request that is still to come.
    pub fn tick(&mut self, now: Time) {
        let now = self.arrive_at(now);
        if self.disk_space != DiskSpace::Nothing {
            while self.state.next_due().is_some_and(|due| due <= now) && !self.is_full() {
                if !self.run_quietly(Command::Tick(Tick), now) {
                    break;
                }
            }
            self.end_lost_workers(now);
            self.purge(now);
        } else {
            self.next_purge = now.plus_ms(PURGE_PAUSE_MS);
        }
        self.registry.lease_holders.prune(&self.state, now);
        self.serve_polls(now);
        for reply_to in self.polls.take_overdue(now) {
            self.reply(reply_to, Reply::Leased(Vec::new()));
        }
        for (scope, task, reply_to) in self.task_watchers.take_overdue(now) {
            let detail = self.detail(&scope, task).map(Box::new);
            self.reply(reply_to, Reply::Task(detail));
        }
    }

    /// When a tick is next needed.
    pub fn next_due(&self) -> Time {
        let task = self.state.next_due().filter(|_| self.disk_space != DiskSpace::Nothing);
        let lost = self
            .lost_workers
            .next_due(&self.state, &self.registry)
            .filter(|_| self.disk_space != DiskSpace::Nothing);
        let parked = [self.polls.next_due(), self.task_watchers.next_due()].into_iter().flatten().min();
        [task, lost, parked]
            .into_iter()
            .flatten()
            .min()
            .map_or(self.next_purge, |due| due.min(self.next_purge))
    }

    /// The next batch for the disk, unless there is none or another is on its way.
    pub fn take_batch(&mut self) -> Option<Batch> {
        let batch = self.journal.take(&self.state)?;
        self.answers.begin_round();
        // Polls that found the batch full are served from the next one.
        self.serve_polls(self.state.time());
        Some(batch)
    }

    /// The batch taken last is durable: its answers may go. Returns what there is to say about it.
    pub fn batch_durable(&mut self, batch: Batch) -> Notes {
        self.answers.durable(Position(batch.next().0 - 1));
        self.answers.round_returned();
        self.journal.durable(batch)
    }

    /// Begins a confirmation if an answer waits for one and no batch would do. Asked for while nothing is under way.
    pub fn begin_confirmation(&mut self) -> bool {
        let is_wanted = self.journal.bytes() == 0 && self.answers.wants_round();
        if is_wanted {
            self.answers.begin_round();
        }
        is_wanted
    }

    /// The confirmation that was begun last has returned: this node still owned the ledger when it began.
    pub fn confirmed(&mut self) {
        self.answers.round_returned();
    }

    /// Answers that rest on nothing but durable records.
    pub fn take_answers(&mut self) -> impl Iterator<Item = (T, Reply)> {
        self.answers.take()
    }

    /// Everyone who still waits, when the coordinator ends. Polls end empty; what is not durable is unknown.
    pub fn take_all_waiting(&mut self) -> Vec<(T, Reply)> {
        let mut out: Vec<_> = self.answers.take().collect();
        let unknown = self.answers.take_unsettled();
        out.extend(unknown.map(|reply_to| (reply_to, Reply::Unavailable(Unavailable::OutcomeUnknown))));
        let stopped = Reply::Unavailable(Unavailable::Stopped);
        out.extend(self.polls.take_all().map(|reply_to| (reply_to, Reply::Leased(Vec::new()))));
        out.extend(self.task_watchers.take_all().map(|reply_to| (reply_to, stopped.clone())));
        out
    }

    /// Ends every long poll with what there is, so that a shutdown need not wait for them.
    pub fn end_polls(&mut self) {
        for reply_to in self.polls.take_all().collect::<Vec<_>>() {
            self.reply(reply_to, Reply::Leased(Vec::new()));
        }
    }

    /// An answer could not be delivered: leases in it that cannot be asked for again are given back.
    pub fn undelivered(&mut self, reply: &Reply, now: Time) {
        let Reply::Leased(grants) = reply else { return };
        let now = self.arrive_at(now);
        for grant in grants {
            let Some(lease) = self.state.task(grant.task).and_then(|task| task.lease()) else { continue };
            if lease.fencing_token != grant.fencing_token || lease.request.is_some() {
                continue;
            }
            let release = ReleaseLease { lease: grant.lease_ref(), cause: ReleaseCause::Undelivered };
            // With no space on the disk the lease runs out by itself.
            let _ = self.run(Command::ReleaseLease(release), now);
        }
        self.serve_polls(now);
    }

    /// Time never goes back, and delayed tasks whose time has come are ready.
    fn arrive_at(&mut self, time: Time) -> Time {
        let now = time.max(self.state.time());
        for queue in self.state.advance(now) {
            self.polls.touch(&queue);
        }
        now
    }

    fn purge(&mut self, now: Time) {
        if now < self.next_purge {
            return;
        }
        let more = self.run_quietly(Command::Purge(Purge { by_age: now >= self.purge_by_age_from }), now);
        let rest = if more {
            PURGE_STEP_MS
        } else {
            self.state
                .next_purge()
                .map_or(PURGE_PAUSE_MS, |due| due.since_ms(now).clamp(1_000, PURGE_PAUSE_MS))
        };
        self.next_purge = now.plus_ms(rest);
    }

    fn reply(&mut self, reply_to: T, reply: Reply) {
        self.answers.push(self.state.position(), reply_to, reply);
    }

    fn read(&self, read: Read, now: Time) -> Reply {
        match read {
            Read::Task { scope, task } => Reply::Task(self.detail(&scope, task).map(Box::new)),
            Read::List { scope, queue, state, after, limit } => {
                Reply::List(self.state.list(&scope, queue.as_ref(), state, after, limit))
            }
            Read::Queue(key) => Reply::Queue(self.state.queue_view(&key).map(Box::new)),
            Read::Queues(scope) => Reply::Queues(self.state.queue_views(&scope)),
            Read::Workers(scope) => Reply::Workers(self.registry.view(&scope, &self.state, now)),
            Read::Leases { scope, worker } => Reply::Leases(self.state.leases_held(&scope, &worker)),
            Read::TenantLeases { tenant, worker } => {
                Reply::Leases(self.state.leases_in_tenant(&tenant, &worker))
            }
            Read::Worker { tenant, worker } => {
                Reply::Worker(self.registry.worker(&tenant, &worker, &self.state, now).map(Box::new))
            }
            Read::Held(asked) => {
                Reply::Held(Box::new(self.registry.lease_holders.find(&self.state, &asked, now)))
            }
            Read::ChargeUpload(asked) => {
                Reply::UploadCharged(self.registry.lease_holders.charge(&self.state, &asked, now))
            }
            Read::ScopesWith(queue) => Reply::ScopesWith(self.state.scopes_with(&queue)),
            Read::PushTargets => Reply::PushTargets(self.state.push_targets()),
            Read::TokenKey => Reply::TokenKey(self.state.token_key().cloned()),
            Read::Keys => Reply::Keys(self.state.keys().cloned().collect()),
            Read::Depths(names) => Reply::Depths(self.depths(&names, None)),
            Read::Tenant { tenant, names } => Reply::Tenant(Box::new(TenantStatus {
                usage: self.state.tenant_usage(&tenant).unwrap_or_default(),
                depths: self.depths(&names, Some(&tenant)),
            })),
            Read::Status => Reply::Status(Status {
                position: self.state.position(),
                tasks: self.state.len(),
                state_bytes: self.state.bytes(),
                max_state_bytes: self.state.max_bytes(),
                final_bytes: self.state.final_bytes(),
                max_final_bytes: self.state.max_final_bytes(),
                queues: self.state.queue_count(),
                tenants: self.state.tenant_count(),
                largest_tenant_bytes: self.state.tenants().map(|(_, usage)| usage.bytes).max().unwrap_or(0),
                polls: self.polls.len(),
                disk_space: self.disk_space,
            }),
        }
    }

    /// One for each name, and one for all other queues; of one tenant or of all.
    fn depths(&self, names: &[String], tenant: Option<&str>) -> Vec<Depth> {
        let mut depths = vec![Depth::default(); names.len() + 1];
        for queue in self.state.all_queue_views() {
            if tenant.is_some_and(|tenant| *queue.key.scope.tenant != *tenant) {
                continue;
            }
            let at = names.iter().position(|name| **name == *queue.key.name).unwrap_or(names.len());
            let depth = &mut depths[at];
            depth.waiting += queue.waiting;
            depth.leased += queue.leased;
            let oldest = depth.oldest_waiting.into_iter().chain(queue.oldest_waiting);
            depth.oldest_waiting = oldest.min();
        }
        depths
    }

    fn detail(&self, scope: &authority::Scope, task: TaskId) -> Option<TaskDetail> {
        let view = self.state.view_in(scope, task)?;
        Some(TaskDetail { view, progress: self.progress.get(&task).cloned() })
    }
}
