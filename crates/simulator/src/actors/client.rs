//! A client: submits alone and in batches, with and without dedup keys, repeats what was not answered, cancels, kills,
//! does dead letters again, configures queues, reads and waits.

use std::collections::BTreeMap;
use std::sync::Arc;

use authority::command::{CancelTask, ConfigureQueue, KillTask, RedriveTask, SubmitTask};
use authority::{
    Backoff, Category, Command, Dedup, QueueConfig, QueueKey, Scope, TaskId, TaskOptions, TaskState, Time,
};
use coordinator::{BatchItem, Read, Reply, Request, WaitCondition};

use super::{Actor, Out, QUEUES, actor_of, digest, linux};
use crate::features::Features;

const TURN: u64 = 0;
/// Tasks that are probably under way.
const RECENT_TASKS: usize = 5;

pub(crate) struct Client {
    number: u64,
    scope: Scope,
    next: u64,
    tasks: Vec<TaskId>,
    /// The last submit that may be sent again long after.
    old: Option<Request>,
    calls: BTreeMap<u64, (Request, u64)>,
    configured: usize,
    pace_ms: u64,
    /// Whether its tasks require something of their workers now and then.
    requires: bool,
    /// Whether its queues forget what has ended as soon as they may.
    short_retention: bool,
}

impl Client {
    pub(crate) fn new(number: u64, scope: Scope, pace_ms: u64, features: &Features) -> Client {
        let (tasks, calls) = (Vec::new(), BTreeMap::new());
        let (requires, short_retention) = (features.requirements, features.short_memory);
        let (next, old, configured) = (0, None, 0);
        Client { number, scope, next, tasks, old, calls, configured, pace_ms, requires, short_retention }
    }

    fn send(&mut self, request: Request, tries: u64, patience_ms: u64, out: &mut Out) {
        self.next += 1;
        self.calls.insert(self.next, (request.clone(), tries));
        out.calls.push((self.next, request, patience_ms));
    }

    fn id(&mut self) -> TaskId {
        self.next += 1;
        TaskId(u128::from(self.number) << 64 | u128::from(self.next))
    }

    fn queue(&self, out: &mut Out) -> Arc<QueueKey> {
        let name = QUEUES[out.rng.below(QUEUES.len() as u64) as usize];
        Arc::new(QueueKey { scope: self.scope.clone(), name: Arc::from(name) })
    }

    fn task(&mut self, out: &mut Out) -> SubmitTask {
        let id = self.id();
        self.tasks.push(id);
        let mut options = TaskOptions::default();
        if out.rng.chance(250) {
            let content = digest(4, out.rng.below(2));
            options.dedup = Some(Dedup { key: Arc::from(format!("k{}", out.rng.below(6))), content });
        }
        if out.rng.chance(80) {
            options.deadline = Some(Time(out.now + out.rng.between(100, 20_000)));
        }
        if out.rng.chance(80) {
            options.timeout_ms = Some(out.rng.between(100, 4_000));
        }
        if out.rng.chance(100) {
            options.max_attempts = Some(out.rng.between(1, 4) as u32);
        }
        SubmitTask {
            id,
            queue: self.queue(out),
            payload: payload(self.next, out),
            priority: out.rng.below(3) as i32,
            delay_ms: if out.rng.chance(200) { out.rng.between(1, 4_000) } else { 0 },
            properties: if self.requires && out.rng.chance(250) { linux() } else { Default::default() },
            options: (options != TaskOptions::default()).then(|| Arc::new(options)),
            operation: None,
        }
    }

    /// A task of its own, now and then somebody else's.
    fn some_task(&mut self, out: &mut Out) -> TaskId {
        let recent = self.tasks.len().saturating_sub(RECENT_TASKS);
        let from = if out.rng.chance(500) { recent } else { 0 };
        match out.rng.pick(&self.tasks[from..]) {
            Some(task) if out.rng.chance(950) => *task,
            _ => TaskId(u128::from(out.rng.below(4)) << 64 | u128::from(out.rng.between(1, 40))),
        }
    }

    fn configure(&mut self, queue: Arc<QueueKey>, out: &mut Out) -> Request {
        let config = QueueConfig {
            max_attempts: Some(out.rng.between(1, 3) as u32),
            lease_ms: Some(out.rng.between(300, 2_500)),
            cancel_grace_ms: Some(out.rng.between(50, 2_500)),
            backoff: Some(Backoff {
                initial_ms: out.rng.between(10, 400),
                max_ms: 1_000,
                ..Backoff::default()
            }),
            retention_ms: Some(if self.short_retention { 0 } else { out.rng.between(0, 9_000) }),
            retry_on: out.rng.chance(100).then(|| vec![Category::Infrastructure, Category::Timeout]),
            max_queue_size: out.rng.chance(200).then(|| out.rng.between(5, 30)),
            ..QueueConfig::default()
        };
        Request::decide(Command::ConfigureQueue(ConfigureQueue { queue, config, by: None }))
    }

    fn turn(&mut self, out: &mut Out) -> Request {
        if self.configured < QUEUES.len() && out.rng.chance(900) {
            let name = Arc::from(QUEUES[self.configured]);
            self.configured += 1;
            return self.configure(Arc::new(QueueKey { scope: self.scope.clone(), name }), out);
        }
        let (scope, task) = (self.scope.clone(), self.some_task(out));
        let by = actor_of(task);
        match if out.calm { out.rng.between(900, 999) } else { out.rng.below(1_000) } {
            // A call from long ago arrives once more, perhaps after its task was purged.
            0..120 if self.old.is_some() => self.old.clone().unwrap_or(Request::Read(Read::Status)),
            0..500 => {
                let request = Request::decide(Command::SubmitTask(Box::new(self.task(out))));
                if self.old.is_none() || out.rng.chance(80) {
                    self.old = Some(request.clone());
                }
                request
            }
            500..580 => {
                let count = out.rng.between(2, 5);
                let submit = |task| BatchItem::Command(Command::SubmitTask(Box::new(task)));
                Request::Decide((0..count).map(|_| submit(self.task(out))).collect())
            }
            580..680 => {
                Request::decide(Command::CancelTask(CancelTask { scope, task, reason: "enough".into(), by }))
            }
            680..720 => Request::decide(Command::KillTask(KillTask { scope, task, detail: None, by })),
            720..830 => {
                let id = self.id();
                self.tasks.push(id);
                Request::decide(Command::RedriveTask(RedriveTask { scope, task, id, by }))
            }
            830..850 => {
                let queue = self.queue(out);
                self.configure(queue, out)
            }
            850..920 => {
                let until = Time(out.rng.between(0, 4_000));
                Request::Wait { scope, task, condition: WaitCondition::Final, until }
            }
            920..970 => Request::Read(Read::Task { scope, task }),
            970..980 => Request::Read(Read::Queue((*self.queue(out)).clone())),
            980..990 => {
                let state = out.rng.chance(500).then_some(TaskState::Waiting);
                Request::Read(Read::List { scope, queue: None, state, after: None, limit: 20 })
            }
            990..995 => Request::Read(Read::Depths(Arc::from([QUEUES[0].to_owned()]))),
            _ => Request::Read(Read::Status),
        }
    }
}

/// Mostly small; some fill several sectors.
fn payload(number: u64, out: &mut Out) -> Arc<[u8]> {
    let copies = if out.rng.chance(300) { out.rng.between(1, 80) } else { 1 };
    Arc::from(number.to_be_bytes().repeat(copies as usize))
}

impl Actor for Client {
    fn wake(&mut self, timer: u64, out: &mut Out) {
        let pace = if out.calm { 2_000 } else { self.pace_ms };
        out.timers.push((out.rng.between(1, 2 * pace), timer));
        let request = self.turn(out);
        let patience = match &request {
            Request::Wait { until, .. } => until.0 + 500,
            _ => out.rng.between(100, 1_500),
        };
        self.send(request, 0, patience, out);
    }

    fn answered(&mut self, call: u64, _reply: Reply, _out: &mut Out) {
        self.calls.remove(&call);
    }

    fn unanswered(&mut self, call: u64, out: &mut Out) {
        let Some((request, tries)) = self.calls.remove(&call) else { return };
        if tries >= 4 || out.calm || out.rng.chance(300) {
            return;
        }
        // As a server that makes a new id for each call, or as one whose client repeats the very same call.
        let request = match request.command() {
            Some(Command::SubmitTask(task)) if out.rng.chance(500) => {
                let id = self.id();
                self.tasks.push(id);
                Request::decide(Command::SubmitTask(Box::new(SubmitTask { id, ..(**task).clone() })))
            }
            _ => request,
        };
        self.send(request, tries + 1, 900, out);
    }
}

impl Client {
    /// The timer by which a client takes its turn.
    pub(crate) const TURN: u64 = TURN;
}
