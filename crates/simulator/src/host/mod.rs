//! The coordinator's machine: a disk, a wall clock, and a process that may die at any step and start again.

mod bit_flips;
mod driver_delay;
mod process;
mod projection;
mod read_history;
mod snapshots;
mod start;
mod truncated_ledger;

use std::collections::BTreeSet;
use std::sync::Arc;

use authority::{Position, State, Time};
use coordinator::{Reply, Request, Unavailable};
use fake_disk::{FakeDisk, Fate};
use ledger::ClusterId;
use ledger::file::{FileLedger, Options};
use ledger::{Ledger, record};

use crate::env::{Env, SimEvent, Ticket};
use auditor::Covered;
use auditor::history::{Entry, Recorded};
pub(crate) use coordinator::engine::SnapshotStep as Step;
use process::Process;

/// What happens to the process with this life; one that has died since does not see it.
pub(crate) enum HostEvent {
    /// Planned for this time; an earlier wake-up takes its place.
    Wake {
        life: u64,
        planned: u64,
    },
    Appended {
        life: u64,
    },
    Reserve {
        life: u64,
    },
    Snapshot {
        life: u64,
        step: Step,
    },
    Trim {
        life: u64,
    },
    /// Those who follow the ledger go on.
    Follow {
        life: u64,
    },
    Start,
}

/// Why a step of the process did not end well.
pub(crate) enum Stop {
    /// The process is gone in the middle of it.
    Crash(Covered),
    /// The ledger failed, and the coordinator ends itself.
    Failed,
    /// Something is wrong with the product.
    Wrong(String),
}

impl From<String> for Stop {
    fn from(what: String) -> Stop {
        Stop::Wrong(what)
    }
}

pub(crate) struct Host {
    pub disk: FakeDisk,
    /// The disk with the offset of the projection.
    offsets_disk: FakeDisk,
    pub wall_ahead_ms: i64,
    suspended_until: u64,
    life: u64,
    process: Option<Process>,
    /// Every record that was durable, from position 1.
    known: Vec<Vec<u8>>,
    /// The records of the batch whose outcome a crash left open.
    open: Vec<Vec<u8>>,
    /// The last crash may have left noise.
    noise: bool,
    /// Snapshots that stay damaged, as those of a real disk do.
    bad_snapshots: BTreeSet<String>,
}

impl Host {
    pub(crate) fn new() -> Host {
        Host {
            disk: FakeDisk::new(),
            offsets_disk: FakeDisk::new(),
            wall_ahead_ms: 0,
            suspended_until: 0,
            life: 0,
            process: None,
            known: Vec::new(),
            open: Vec::new(),
            noise: false,
            bad_snapshots: BTreeSet::new(),
        }
    }

    /// Whether nothing is on its way to the disk and nothing waits to be decided.
    pub(crate) fn is_idle(&self) -> bool {
        self.process.as_ref().is_some_and(|process| process.serving && process.is_idle())
    }

    pub(crate) fn suspend(&mut self, env: &mut Env, span_ms: u64) {
        env.coverage.bump(Covered::Suspend);
        env.note(&[3, span_ms], || format!("the machine stands still for {span_ms} ms"));
        // Never shorter than before: what waits for the end of the first must not be overtaken.
        self.suspended_until = self.suspended_until.max(env.now + span_ms);
    }

    pub(crate) fn suspended_until(&self) -> u64 {
        self.suspended_until
    }

    pub(crate) fn arrive(
        &mut self,
        mut ticket: Ticket,
        request: Request,
        env: &mut Env,
    ) -> Result<(), String> {
        if env.now < self.suspended_until {
            env.at(self.suspended_until, SimEvent::Arrive { ticket, request });
            return Ok(());
        }
        let Some(process) = self.process.as_mut().filter(|process| process.serving) else {
            env.note(&[4, ticket.ask], || format!("{} finds nobody", ticket.ask));
            return Ok(());
        };
        if process.stopping {
            return env.send_reply(ticket, Reply::Unavailable(Unavailable::Stopped), None);
        }
        let Some(request) = env.through_the_edge(&mut ticket, request)? else { return Ok(()) };
        process.accept(ticket, request, env)?;
        if env.strikes(env.config.suspends, 12) {
            let span = env.rng.between(1_000, 40_000);
            self.suspend(env, span);
        }
        Ok(())
    }

    pub(crate) fn event(&mut self, event: HostEvent, env: &mut Env) -> Result<(), String> {
        if env.now < self.suspended_until {
            env.at(self.suspended_until, SimEvent::Host(event));
            return Ok(());
        }
        if let HostEvent::Start = event {
            return self.start(env);
        }
        let Some(process) = self.process.as_mut() else { return Ok(()) };
        let result = match event {
            HostEvent::Wake { life, planned } if life == self.life => process.wake(planned, env),
            HostEvent::Appended { life } if life == self.life => process.append(env),
            HostEvent::Reserve { life } if life == self.life => process.reserve(env),
            HostEvent::Snapshot { life, step } if life == self.life => process.snapshot(step, env),
            HostEvent::Trim { life } if life == self.life => process.trim(env),
            HostEvent::Follow { life } if life == self.life => process.follow(env),
            _ => Ok(()),
        };
        let durable = process.take_durable();
        let stopped = process.is_stopped();
        self.settle(durable, result, env)?;
        if stopped { self.end_in_order(env) } else { Ok(()) }
    }

    /// Asks the process to end, as an operator would.
    pub(crate) fn begin_stop(&mut self, env: &mut Env) {
        if let Some(process) = self.process.as_mut().filter(|process| process.serving) {
            env.note(&[9], || "an operator stops the coordinator".into());
            process.begin_stop(env);
        }
    }

    /// The process has nothing more to do: all callers get an answer, and another will be started.
    fn end_in_order(&mut self, env: &mut Env) -> Result<(), String> {
        let Some(mut process) = self.process.take() else { return Ok(()) };
        for (ticket, reply) in process.last_answers() {
            env.send_reply(ticket, reply, None)?;
        }
        if let Some(mut projection) = process.projection.take() {
            projection.finish(process.engine.durable(), env)?;
        }
        self.process = Some(process);
        self.stop(env)?;
        self.plan_start(env);
        Ok(())
    }

    /// Kills the process, and the machine with it where the seed says so.
    pub(crate) fn crash(&mut self, env: &mut Env) {
        let Some(process) = self.process.take() else { return };
        self.open = process.into_open();
        self.disk.heal();
        self.offsets_disk.heal();
        let power = env.strikes(env.config.power_cuts, 700);
        self.noise = false;
        if power {
            self.offsets_disk = self.offsets_disk.crash(&fates(&self.offsets_disk, env));
            let fates = fates(&self.disk, env);
            self.noise = fates.contains(&Fate::Garbage);
            self.disk = self.disk.crash(&fates);
        }
        env.note(&[5, u64::from(power)], || format!("crash{}", if power { " with a power cut" } else { "" }));
        self.plan_start(env);
    }

    /// Records everything that became durable, then lets the answers of the step stand or the process fall.
    fn settle(
        &mut self,
        durable: Vec<Vec<u8>>,
        result: Result<(), Stop>,
        env: &mut Env,
    ) -> Result<(), String> {
        self.known.extend(durable);
        match result {
            Ok(()) => Ok(()),
            Err(Stop::Wrong(what)) => Err(what),
            Err(Stop::Crash(point)) => {
                env.coverage.bump(point);
                self.crash(env);
                Ok(())
            }
            Err(Stop::Failed) => {
                env.coverage.bump(Covered::FailedSync);
                let Some(mut process) = self.process.take() else { return Ok(()) };
                for (ticket, reply) in process.last_answers() {
                    env.send_reply(ticket, reply, None)?;
                }
                env.note(&[6], || "the ledger failed; the coordinator ends".into());
                self.open = process.into_open();
                self.disk.heal();
                self.noise = false;
                self.plan_start(env);
                Ok(())
            }
        }
    }

    fn plan_start(&mut self, env: &mut Env) {
        if env.strikes(env.config.wall_jumps, 500) {
            let far = env.rng.chance(150);
            let span = if far { 80 * 3_600_000 } else { env.rng.between(1_000, 3 * 3_600_000) } as i64;
            self.wall_ahead_ms += if env.rng.chance(500) { span } else { -span };
        }
        let delay = env.rng.between(5, 2_500);
        env.after(delay, SimEvent::Host(HostEvent::Start));
    }

    fn wall(&self, now: u64) -> Time {
        Time(now.saturating_add_signed(self.wall_ahead_ms))
    }

    /// The state that all known records give.
    pub(crate) fn replayed(&self) -> Result<State, String> {
        let mut state = State::new();
        for (index, bytes) in self.known.iter().enumerate() {
            let record = record::decode(bytes).map_err(|error| format!("record {}: {error}", index + 1))?;
            state.apply(record.at, &record.event).map_err(|illegal| illegal.to_string())?;
        }
        Ok(state)
    }

    /// Stops as an operator would, and judges that what is on disk is what was in memory.
    pub(crate) fn stop(&mut self, env: &mut Env) -> Result<(), String> {
        let Some(process) = self.process.take() else { return Ok(()) };
        let live = ledger::digest::state_digest(process.engine.state());
        let at = process.engine.state().position();
        process.engine.state().check_invariants()?;
        let held = process.is_held();
        self.open = process.into_open();
        if !held && at.0 != self.known.len() as u64 {
            return Err(format!(
                "it was stopped at {at}, but records up to {} are durable",
                self.known.len()
            ));
        }
        if !held && ledger::digest::state_digest(&self.replayed()?) != live {
            return Err(format!("the live state at {at} is not what a replay of its records gives"));
        }
        self.noise = false;
        env.note(&[7], || "stopped by an operator".into());
        Ok(())
    }
}

/// What a power cut does to everything that was not synced.
fn fates(disk: &FakeDisk, env: &mut Env) -> Vec<Fate> {
    let garbage = env.config.garbage;
    let fate = |_| match env.rng.below(if garbage { 5 } else { 4 }) {
        0 => Fate::Kept,
        1 => Fate::Lost,
        2 | 3 => Fate::Torn(env.rng.next()),
        _ => Fate::Garbage,
    };
    disk.unsynced().into_iter().map(fate).collect()
}

/// The last record that a power cut at this moment would leave.
fn durable_position(disk: &FakeDisk, options: &Options) -> Result<Position, String> {
    let disk = disk.crash(&[]);
    disk.set_capacity(None);
    let options = Options { drop_unverified_tail: true, ..options.clone() };
    let (ledger, _) = FileLedger::open(Arc::new(disk), options)
        .map_err(|error| format!("what a power cut would leave now is refused: {error}"))?;
    Ok(Position(ledger.next().0 - 1))
}

fn ledger_options(env: &Env) -> Options {
    Options {
        segment_bytes: env.config.segment_bytes,
        create: Some(ClusterId([7; 16])),
        history_max_bytes: env.config.history_max_bytes,
        min_free_bytes: env.config.room_bytes,
        ..Options::default()
    }
}

/// Adds a durable record to the history that the auditor checks.
fn audit_record(position: Position, bytes: &[u8], env: &mut Env) -> Result<(), String> {
    let record =
        record::decode(bytes).map_err(|error| format!("record {position} cannot be read: {error}"))?;
    env.note(&[8, position.0, record.at.0], || {
        format!("durable {position} at {}: {:?}", record.at, record.event)
    });
    let recorded = Recorded { position, at: record.at, prev: record.prev, event: record.event };
    env.auditor.read(&Entry::Recorded(recorded))
}
