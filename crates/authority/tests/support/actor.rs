//! Draws random histories: submitters, workers good and bad, operators and the clock, all from one seed.

use std::sync::Arc;

use authority::command::*;
use authority::event::ReleaseCause;
use authority::{
    Answer, Backoff, Category, Command, Dedup, Event, LeaseRef, Position, QueueConfig, QueueKey, Scope,
    State, TaskId, TaskOptions, Time,
};

use super::{Prng, World, commands};

const TENANTS: [&str; 2] = ["acme", "beta"];
const QUEUES: [&str; 2] = ["q", "r"];
const WORKERS: [&str; 3] = ["w1", "w2", "w3"];
const NEEDS: [&[(&str, &str)]; 3] = [&[], &[("os", "linux")], &[("os", "linux"), ("gpu", "1")]];
const OFFERS: [&[(&str, &str)]; 3] = [&[], &[("os", "linux")], &[("gpu", "1"), ("os", "linux")]];

/// Old leases are kept, so that some reports come from the past, but not without end.
const MAX_LEASES: usize = 40;

pub(crate) struct Actor {
    prng: Prng,
    next_id: u128,
    now: Time,
    tasks: Vec<TaskId>,
    leases: Vec<LeaseRef>,
}

impl Actor {
    pub(crate) fn new(seed: u64) -> Actor {
        Actor {
            prng: Prng::new(seed),
            next_id: 1,
            now: Time::ZERO,
            tasks: vec![TaskId(999_999)],
            leases: Vec::new(),
        }
    }

    /// Lets time pass and does one thing.
    pub(crate) fn step(&mut self, world: &mut World) -> (Command, Vec<Event>, Answer) {
        let when = self.when(&world.state, world.now);
        world.at(when.0);
        let command = self.command();
        let (events, answer) = world.trace(command.clone());
        self.see(&command, &answer);
        (command, events, answer)
    }

    /// When the next thing happens: often at once, often around the next moment that matters.
    pub(crate) fn when(&mut self, state: &State, now: Time) -> Time {
        let due = state.next_due().unwrap_or(now).max(now);
        let next = match self.prng.below(8) {
            0 => Time(due.0.saturating_sub(1)),
            1 => due,
            2 => due.plus_ms(1),
            3 => now.plus_ms(self.prng.below(60)),
            _ => now,
        };
        self.now = next.max(now);
        self.now
    }

    pub(crate) fn command(&mut self) -> Command {
        match self.prng.below(100) {
            0..20 => self.submit(),
            20..45 => self.lease_tasks(),
            45..55 => commands::heartbeat(&self.lease()),
            55..66 => self.complete(),
            66..76 => self.fail(),
            76..80 => {
                Command::ReleaseLease(ReleaseLease { lease: self.lease(), cause: ReleaseCause::Worker })
            }
            80..84 => self.cancel(),
            84..85 => {
                Command::KillTask(KillTask { scope: self.scope(), task: self.task(), detail: None, by: None })
            }
            85..87 => {
                let by = self.prng.pick(&WORKERS);
                commands::start(&self.lease(), by)
            }
            87..89 => self.redrive(),
            89..91 => self.configure(),
            91..93 => self.session(),
            93..94 => commands::purge(),
            _ => commands::tick(),
        }
    }

    /// Remembers the leases that were handed out.
    pub(crate) fn see(&mut self, command: &Command, answer: &Answer) {
        let (Command::LeaseTasks(asked), Answer::Leased(grants)) = (command, answer) else { return };
        self.leases.extend(grants.iter().map(|grant| commands::reference(&asked.worker, grant)));
        let surplus = self.leases.len().saturating_sub(MAX_LEASES);
        self.leases.drain(..surplus);
    }

    fn submit(&mut self) -> Command {
        let dedup = self.prng.one_in(3).then(|| Dedup {
            key: Arc::from(self.prng.pick(&["a", "b"])),
            content: commands::digest(self.prng.pick(&["x", "y"])),
        });
        let options = TaskOptions {
            dedup,
            deadline: self.prng.one_in(4).then(|| self.now.plus_ms(self.prng.below(600))),
            timeout_ms: self.prng.one_in(4).then(|| 50 + self.prng.below(300)),
            lease_ms: self.prng.one_in(4).then(|| 100 + self.prng.below(100)),
            max_attempts: self.prng.one_in(2).then(|| 1 + self.prng.below(3) as u32),
            backoff: None,
            ..TaskOptions::default()
        };
        let id = self.new_id();
        let name = Arc::from(self.prng.pick(&QUEUES));
        Command::SubmitTask(Box::new(SubmitTask {
            id,
            queue: Arc::new(QueueKey { scope: self.scope(), name }),
            payload: Arc::from(*b"{}"),
            priority: self.prng.below(3) as i32 - 1,
            delay_ms: if self.prng.one_in(3) { self.prng.below(200) } else { 0 },
            properties: commands::properties(self.prng.pick(&NEEDS)),
            options: (!self.prng.one_in(3)).then(|| Arc::new(options)),
            operation: None,
        }))
    }

    fn lease_tasks(&mut self) -> Command {
        let mut queues: Vec<Arc<str>> = QUEUES.map(Arc::from).to_vec();
        match self.prng.below(4) {
            0 => queues.reverse(),
            1 => queues.truncate(1),
            2 => queues.push(Arc::from("q")),
            _ => {}
        }
        Command::LeaseTasks(LeaseTasks {
            scope: self.scope(),
            worker: Arc::from(self.prng.pick(&WORKERS)),
            session: self.prng.one_in(2).then(|| Arc::from(self.prng.pick(&["s1", "s2"]))),
            queues,
            properties: commands::properties(self.prng.pick(&OFFERS)),
            max_tasks: 1 + self.prng.below(3) as usize,
            request: self.prng.one_in(5).then(|| commands::digest(self.prng.pick(&["r1", "r2"]))),
            contract: authority::Contract::Leases,
        })
    }

    fn complete(&mut self) -> Command {
        let result = self.prng.pick(&["1", "1", "1", "2"]);
        commands::complete(&self.lease(), result)
    }

    fn fail(&mut self) -> Command {
        let category = self.prng.pick(&Category::ALL);
        let retryable = self.prng.pick(&[None, None, Some(true), Some(false)]);
        commands::fail_as(&self.lease(), category, "boom", retryable)
    }

    fn cancel(&mut self) -> Command {
        let (scope, task) = (self.scope(), self.task());
        Command::CancelTask(CancelTask { scope, task, reason: Arc::from("stop"), by: None })
    }

    fn redrive(&mut self) -> Command {
        let (scope, task, id) = (self.scope(), self.task(), self.new_id());
        Command::RedriveTask(RedriveTask { scope, task, id, by: None })
    }

    fn configure(&mut self) -> Command {
        let config = QueueConfig {
            max_attempts: Some(1 + self.prng.below(3) as u32),
            lease_ms: Some(100 + 50 * self.prng.below(3)),
            cancel_grace_ms: Some(50 * self.prng.below(5)),
            backoff: Some(Backoff {
                initial_ms: 20 * self.prng.below(4),
                factor_permille: 2_000,
                max_ms: 100,
                jitter_permille: 0,
            }),
            retry_on: self.prng.one_in(4).then(|| vec![Category::UserCode, Category::DataQuality]),
            max_queue_size: self.prng.one_in(4).then(|| 1 + self.prng.below(6)),
            retention_ms: Some(500 * self.prng.below(4)),
            ..QueueConfig::default()
        };
        let name = Arc::from(self.prng.pick(&QUEUES));
        let queue = Arc::new(QueueKey { scope: self.scope(), name });
        Command::ConfigureQueue(ConfigureQueue { queue, config, by: None })
    }

    fn session(&mut self) -> Command {
        Command::StartSession(StartSession {
            tenant: self.scope().tenant,
            worker: Arc::from(self.prng.pick(&WORKERS)),
            session: Arc::from(self.prng.pick(&["s1", "s2"])),
        })
    }

    /// A lease that was handed out, now and then with a lie in it.
    fn lease(&mut self) -> LeaseRef {
        let newest = self.leases.len().saturating_sub(6);
        let known = if self.prng.one_in(4) { &self.leases[..] } else { &self.leases[newest..] };
        if known.is_empty() {
            let (scope, worker) = (self.scope(), Arc::from("w1"));
            return LeaseRef { scope, worker, task: self.task(), attempt: 1, fencing_token: Position(1) };
        }
        let mut lease = known[self.prng.below(known.len() as u64) as usize].clone();
        match self.prng.below(24) {
            0 => lease.worker = Arc::from("thief"),
            1 => lease.scope = commands::scope_of("evil"),
            2 => lease.attempt += 1_000,
            3 => lease.fencing_token = Position(lease.fencing_token.0 + 100_000),
            _ => {}
        }
        lease
    }

    fn task(&mut self) -> TaskId {
        let newest = self.tasks.len().saturating_sub(8);
        self.prng.pick(&self.tasks[newest..])
    }

    fn new_id(&mut self) -> TaskId {
        let id = TaskId(self.next_id);
        self.next_id += 1;
        self.tasks.push(id);
        id
    }

    fn scope(&mut self) -> Scope {
        let tenant = if self.prng.one_in(5) { TENANTS[1] } else { TENANTS[0] };
        commands::scope_of(tenant)
    }
}
