//! An operator, who makes the calls that ordinary clients do not: joins and leaves executions, changes queues under load, rotates
//! the key, creates and revokes API keys, reads page after page, waits for any change.

use std::collections::BTreeMap;
use std::sync::Arc;

use authority::command::{
    AttachOperation, CancelTask, ConfigureQueue, CreateKey, DetachOperation, KillTask, RevokeKey,
    RotateTokenKey, SubmitTask,
};
use authority::{
    ApiKey, Category, Command, Position, Properties, PushTarget, QueueConfig, QueueKey, Role, Scope,
    SecretHash, TaskId, TaskState, Time,
};
use coordinator::{Read, Reply, Request, WaitCondition};

use super::{Actor, Out, QUEUES, actor_of};
use crate::config::EXECUTION_QUEUE;

/// How many listed tasks the operator remembers.
const MAX_KNOWN: usize = 40;
/// How many API keys the operator uses.
const MAX_API_KEYS: u64 = 4;

pub(crate) struct Operator {
    scope: Scope,
    next: u64,
    /// Tasks of lists, with their newest record.
    known: Vec<(TaskId, Position)>,
    /// Where the next page begins.
    after: Option<(Arc<str>, Position)>,
    calls: BTreeMap<u64, Request>,
    keys: u64,
}

impl Operator {
    pub(crate) fn new(scope: Scope) -> Operator {
        Operator { scope, next: 0, known: Vec::new(), after: None, calls: BTreeMap::new(), keys: 0 }
    }

    fn send(&mut self, request: Request, patience_ms: u64, out: &mut Out) {
        self.next += 1;
        self.calls.insert(self.next, request.clone());
        out.calls.push((self.next, request, patience_ms));
    }

    fn some_task(&self, out: &mut Out) -> (TaskId, Position) {
        let unknown = (TaskId(u128::MAX), Position::ZERO);
        match out.rng.pick(&self.known) {
            Some(known) if out.rng.chance(970) => *known,
            _ => unknown,
        }
    }

    fn queue(&self, out: &mut Out) -> Arc<QueueKey> {
        let name = QUEUES[out.rng.below(QUEUES.len() as u64) as usize];
        Arc::new(QueueKey { scope: self.scope.clone(), name: Arc::from(name) })
    }

    fn execution_queue(&self) -> Arc<QueueKey> {
        Arc::new(QueueKey { scope: self.scope.clone(), name: EXECUTION_QUEUE.into() })
    }

    /// Settings that bite: lower limits than what is there already, and some that are not allowed.
    fn config(&self, out: &mut Out) -> QueueConfig {
        let config = QueueConfig { cancel_grace_ms: Some(out.rng.between(0, 500)), ..QueueConfig::default() };
        match out.rng.below(10) {
            0 => QueueConfig { max_attempts: Some(1), ..config },
            1 => QueueConfig { max_queue_size: Some(out.rng.between(1, 4)), ..config },
            2 => QueueConfig { lease_ms: Some(100), heartbeat_interval_ms: Some(40), ..config },
            3 => QueueConfig { retry_on: Some(vec![Category::Infrastructure]), ..config },
            4 => QueueConfig { retry_on: Some(Vec::new()), retention_ms: Some(0), ..config },
            5 => QueueConfig { retention_ms: Some(0), ..config },
            8 => QueueConfig { push: Some(Arc::new(self.push_target(out))), ..config },
            // Refused: half a lease is not enough for a heartbeat, and no task can have no attempt.
            6 => QueueConfig { lease_ms: Some(200), heartbeat_interval_ms: Some(150), ..config },
            7 => QueueConfig { max_attempts: Some(0), ..config },
            // Refused: a target takes at least one task.
            _ => {
                let target = PushTarget { concurrency: 0, ..self.push_target(out) };
                QueueConfig { push: Some(Arc::new(target)), ..config }
            }
        }
    }

    fn push_target(&self, out: &mut Out) -> PushTarget {
        PushTarget {
            url: Arc::from(format!("https://target-{}.example", out.rng.below(3))),
            concurrency: out.rng.between(1, 1_000) as u32,
            headers: (0..out.rng.below(3))
                .map(|n| (Arc::from(format!("x-{n}")), Arc::from("value")))
                .collect(),
            secret: out.rng.chance(500).then(|| Arc::from("sixteen bytes or more")),
        }
    }

    fn turn(&mut self, out: &mut Out) -> Request {
        let (scope, (task, last)) = (self.scope.clone(), self.some_task(out));
        let by = actor_of(task);
        let operation: Arc<str> = Arc::from(format!("operation-{}", out.rng.below(3)));
        match if out.calm { out.rng.between(550, 999) } else { out.rng.below(1_000) } {
            0..140 => Request::decide(Command::AttachOperation(AttachOperation { scope, task, operation })),
            140..230 => {
                Request::decide(Command::DetachOperation(DetachOperation { scope, task, operation, by }))
            }
            230..330 => {
                let queue = if out.rng.chance(150) { self.execution_queue() } else { self.queue(out) };
                let config = self.config(out);
                Request::decide(Command::ConfigureQueue(ConfigureQueue { queue, config, by }))
            }
            330..355 => self.create_key(by, out),
            355..375 => {
                let key_id = Arc::from(format!("api-{}", out.rng.below(MAX_API_KEYS)));
                Request::decide(Command::RevokeKey(RevokeKey { key_id, revoked_by: "operator".into(), by }))
            }
            375..400 => {
                // Sometimes the one that is in use.
                self.keys += out.rng.below(2);
                let key_id = Arc::from(format!("key-{}", self.keys));
                Request::decide(Command::RotateTokenKey(RotateTokenKey { key_id, by }))
            }
            400..440 => {
                let detail = Some(Arc::from("runaway"));
                Request::decide(Command::KillTask(KillTask { scope, task, detail, by }))
            }
            440..480 => {
                Request::decide(Command::CancelTask(CancelTask { scope, task, reason: "budget".into(), by }))
            }
            480..550 => self.execution(out),
            550..780 => {
                let state = out.rng.chance(300).then_some(TaskState::Leased);
                let queue = out.rng.chance(300).then(|| Arc::from(QUEUES[0]));
                Request::Read(Read::List { scope, queue, state, after: self.after.take(), limit: 5 })
            }
            780..860 => {
                let (condition, until) = (WaitCondition::ChangeAfter(last), Time(out.rng.between(0, 3_000)));
                Request::Wait { scope, task, condition, until }
            }
            860..900 => Request::Read(Read::Queues(scope)),
            900..910 => Request::Read(Read::Keys),
            910..930 => Request::Read(Read::PushTargets),
            930..950 => Request::Read(Read::TokenKey),
            950..970 => {
                // Of somebody who was given something lately.
                let lately = out.issued.values().rev().find(|lease| lease.scope == scope);
                let worker = lately.map_or("worker-0".into(), |lease| lease.worker.clone());
                Request::Read(Read::Leases { scope, worker })
            }
            _ => Request::Read(Read::Workers(scope)),
        }
    }

    /// A key, sometimes with the name of another one, sometimes without a role.
    fn create_key(&self, by: Option<Arc<authority::Actor>>, out: &mut Out) -> Request {
        let number = out.rng.below(MAX_API_KEYS);
        let key = ApiKey {
            id: Arc::from(format!("api-{number}")),
            name: Arc::from(format!("name-{}", number / 2)),
            tenants: vec![self.scope.tenant.clone()],
            roles: if out.rng.chance(100) { Vec::new() } else { vec![Role::Submitter, Role::Worker] },
            queues: Vec::new(),
            worker_prefix: None,
            expires_at: None,
            secret_hash: SecretHash([number as u8; 32]),
            created_by: "operator".into(),
            properties: Vec::new(),
        };
        Request::decide(Command::CreateKey(CreateKey { key: Arc::new(key), by }))
    }

    /// A task that somebody waits for from the beginning.
    fn execution(&mut self, out: &mut Out) -> Request {
        self.next += 1;
        let queue = if out.rng.chance(700) { self.execution_queue() } else { self.queue(out) };
        Request::decide(Command::SubmitTask(Box::new(SubmitTask {
            id: TaskId(9 << 96 | u128::from(self.next)),
            queue,
            payload: Arc::from(self.next.to_be_bytes()),
            priority: -1,
            delay_ms: 0,
            properties: Arc::new(Properties::default()),
            options: None,
            operation: Some(Arc::from("operation-0")),
        })))
    }
}

impl Actor for Operator {
    fn wake(&mut self, timer: u64, out: &mut Out) {
        out.timers.push((out.rng.between(20, if out.calm { 5_000 } else { 500 }), timer));
        let request = self.turn(out);
        let patience_ms = match &request {
            Request::Wait { until, .. } => until.0 + 300,
            _ => out.rng.between(100, 1_500),
        };
        self.send(request, patience_ms, out);
    }

    fn answered(&mut self, call: u64, reply: Reply, _out: &mut Out) {
        self.calls.remove(&call);
        if let Reply::List(page) = reply {
            self.after = page.next;
            self.known.extend(page.tasks.iter().map(|view| (view.task.id, view.task.last)));
            let surplus = self.known.len().saturating_sub(MAX_KNOWN);
            self.known.drain(..surplus);
        }
    }

    fn unanswered(&mut self, call: u64, out: &mut Out) {
        let Some(request) = self.calls.remove(&call) else { return };
        if !out.calm && out.rng.chance(400) {
            self.send(request, 900, out);
        }
    }
}
