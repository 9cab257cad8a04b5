//! A random little history: commands of every kind against a few queues and workers, with its records as bytes.

use std::collections::BTreeMap;
use std::sync::Arc;

use authority::command::*;
use authority::event::ReleaseCause;
use authority::*;
use ledger::record::{decode, encode};

pub(crate) struct History {
    pub state: State,
    /// The record at position n is at n - 1.
    records: Vec<Vec<u8>>,
    /// The newest record about each task.
    last: BTreeMap<TaskId, Position>,
    now: Time,
    random: u64,
    tasks: Vec<TaskId>,
    leases: Vec<LeaseRef>,
}

impl History {
    pub(crate) fn new(seed: u64) -> History {
        History {
            state: State::new(),
            records: Vec::new(),
            last: BTreeMap::new(),
            now: Time(1_790_000_000_000),
            random: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15),
            tasks: Vec::new(),
            leases: Vec::new(),
        }
    }

    /// Splitmix64: the same numbers for the same seed on every machine.
    pub(crate) fn draw(&mut self, below: u64) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % below
    }

    pub(crate) fn step(&mut self) {
        self.now = self.now.plus_ms(self.draw(40));
        self.state.advance(self.now);
        let command = self.command();
        let decision = self.state.decide(&command, self.now);
        for event in &decision.events {
            self.record(event);
        }
        if let (Command::LeaseTasks(asked), Answer::Leased(grants)) = (&command, &decision.answer) {
            self.leases.extend(grants.iter().map(|grant| LeaseRef {
                scope: asked.scope.clone(),
                worker: asked.worker.clone(),
                task: grant.task,
                attempt: grant.attempt,
                fencing_token: grant.fencing_token,
            }));
        }
    }

    pub(crate) fn steps(&mut self, count: u64) {
        (0..count).for_each(|_| self.step());
    }

    /// Applies the records after the state's position, as they would be read from the ledger.
    pub(crate) fn replay_into(&self, state: &mut State, until: Position) {
        while state.position() < until {
            let record = decode(&self.records[state.position().0 as usize]).expect("it was encoded here");
            state.apply(record.at, &record.event).expect("it was applied once before");
        }
    }

    pub(crate) fn kinds_between(&self, begin: Position, end: Position) -> impl Iterator<Item = &'static str> {
        let window = &self.records[begin.0 as usize..end.0 as usize];
        window.iter().map(|bytes| decode(bytes).expect("it was encoded here").event.name())
    }

    fn record(&mut self, event: &Event) {
        let prev = event.task().and_then(|id| self.last.get(&id).copied());
        let mut bytes = Vec::new();
        encode(self.now, prev, event, &mut bytes);
        let position = self.state.apply(self.now, event).expect("a decision fits the state it was made on");
        self.records.push(bytes);
        if let Some(id) = event.task() {
            self.last.insert(id, position);
        }
    }

    fn command(&mut self) -> Command {
        match self.draw(40) {
            0..10 => self.submit(),
            10..17 => self.lease(),
            17..20 => Command::ExtendLease(ExtendLease { lease: self.a_lease() }),
            20..25 => self.complete(),
            25..28 => self.fail(),
            28 => Command::ReleaseLease(ReleaseLease { lease: self.a_lease(), cause: ReleaseCause::Worker }),
            29 => {
                Command::StartAttempt(StartAttempt { lease: self.a_lease(), started_by: self.name("w", 3) })
            }
            30 => Command::CancelTask(CancelTask {
                scope: scope(),
                task: self.a_task(),
                reason: "enough".into(),
                by: None,
            }),
            31 => Command::KillTask(KillTask { scope: scope(), task: self.a_task(), detail: None, by: None }),
            32 => self.redrive(),
            33 => self.configure(),
            34 => {
                let (worker, session) = (self.name("w", 3), self.name("s", 3));
                Command::StartSession(StartSession { tenant: scope().tenant, worker, session })
            }
            35 => {
                let (task, operation) = (self.a_task(), self.name("o", 3));
                Command::AttachOperation(AttachOperation { scope: scope(), task, operation })
            }
            36 => {
                let (task, operation) = (self.a_task(), self.name("o", 3));
                Command::DetachOperation(DetachOperation { scope: scope(), task, operation, by: None })
            }
            37 if self.draw(2) == 0 => {
                Command::TakeOver(TakeOver { node: self.name("n", 2), audit_head: None })
            }
            37 => Command::RotateTokenKey(RotateTokenKey { key_id: self.name("k", 3), by: None }),
            38 if self.draw(2) == 0 => self.key(),
            38 => Command::Tick(Tick),
            _ => Command::Purge(Purge { by_age: true }),
        }
    }

    fn key(&mut self) -> Command {
        let id = self.name("key", 4);
        if self.draw(3) == 0 {
            return Command::RevokeKey(RevokeKey { key_id: id, revoked_by: "root".into(), by: None });
        }
        Command::CreateKey(CreateKey {
            key: Arc::new(ApiKey {
                name: id.clone(),
                id,
                tenants: vec![scope().tenant],
                roles: vec![Role::Worker],
                queues: Vec::new(),
                worker_prefix: None,
                expires_at: None,
                secret_hash: SecretHash([3; 32]),
                created_by: "root".into(),
                properties: Vec::new(),
            }),
            by: None,
        })
    }

    fn submit(&mut self) -> Command {
        let id = self.new_id();
        let options = (self.draw(2) == 0).then(|| {
            let key = self.name("d", 8);
            Arc::new(TaskOptions {
                dedup: (self.draw(2) == 0).then_some(Dedup { key, content: Digest([1; 16]) }),
                deadline: (self.draw(4) == 0).then(|| self.now.plus_ms(300)),
                timeout_ms: (self.draw(4) == 0).then_some(150),
                max_attempts: (self.draw(3) == 0).then_some(1),
                ..TaskOptions::default()
            })
        });
        let os = (self.draw(3) == 0).then(|| ("os".into(), "linux".into()));
        Command::SubmitTask(Box::new(SubmitTask {
            id,
            queue: self.queue(),
            payload: Arc::from(&b"{}"[..]),
            priority: self.draw(3) as i32 - 1,
            delay_ms: self.draw(3) * 30,
            properties: Arc::new(Properties::new(os)),
            options,
            operation: (self.draw(4) == 0).then(|| "o0".into()),
        }))
    }

    fn lease(&mut self) -> Command {
        Command::LeaseTasks(LeaseTasks {
            scope: scope(),
            worker: self.name("w", 3),
            session: Some(self.name("s", 3)),
            queues: vec!["q0".into(), "q1".into(), "q2".into()],
            properties: Arc::new(Properties::new([("os".into(), "linux".into())])),
            max_tasks: 1 + self.draw(3) as usize,
            request: None,
            contract: authority::Contract::Leases,
        })
    }

    fn complete(&mut self) -> Command {
        let digest = Digest([self.draw(2) as u8; 16]);
        let result = Arc::from(&b"true"[..]);
        Command::ReportCompletion(ReportCompletion { lease: self.a_lease(), digest, result, details: None })
    }

    fn fail(&mut self) -> Command {
        let category = Category::ALL[self.draw(6) as usize];
        Command::ReportFailure(ReportFailure {
            lease: self.a_lease(),
            digest: Digest([9; 16]),
            error: TaskError { category, code: None, message: "it broke".into() },
            retryable: None,
            draw: self.draw(1 << 32) as u32,
            details: None,
        })
    }

    fn redrive(&mut self) -> Command {
        let task = self.a_task();
        Command::RedriveTask(RedriveTask { scope: scope(), task, id: self.new_id(), by: None })
    }

    /// Short times, so that leases expire and final tasks are purged within the history.
    fn configure(&mut self) -> Command {
        let config = QueueConfig {
            lease_ms: Some(100 + self.draw(100)),
            retention_ms: Some(self.draw(300)),
            cancel_grace_ms: Some(100),
            ..QueueConfig::default()
        };
        Command::ConfigureQueue(ConfigureQueue { queue: self.queue(), config, by: None })
    }

    fn new_id(&mut self) -> TaskId {
        let id = TaskId(u128::from(self.draw(u64::MAX)) << 64 | self.tasks.len() as u128);
        self.tasks.push(id);
        id
    }

    /// One of the newer tasks, so that most still exist.
    fn a_task(&mut self) -> TaskId {
        let back = self.draw(30) as usize;
        self.tasks.iter().rev().nth(back).or(self.tasks.first()).copied().unwrap_or(TaskId(0))
    }

    fn a_lease(&mut self) -> LeaseRef {
        let back = self.draw(6) as usize;
        let nothing = LeaseRef {
            scope: scope(),
            worker: "w0".into(),
            task: TaskId(0),
            attempt: 1,
            fencing_token: Position(1),
        };
        self.leases.iter().rev().nth(back).or(self.leases.first()).cloned().unwrap_or(nothing)
    }

    fn queue(&mut self) -> Arc<QueueKey> {
        Arc::new(QueueKey { scope: scope(), name: self.name("q", 3) })
    }

    fn name(&mut self, kind: &str, below: u64) -> Arc<str> {
        format!("{kind}{}", self.draw(below)).into()
    }
}

fn scope() -> Scope {
    Scope { tenant: "acme".into(), workspace: "build".into() }
}
