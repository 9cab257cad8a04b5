//! One life of the coordinator: it drives the engine by the same rules as the production driver, one step at a time,
//! so that it can die between any two of them.

mod space;
mod stopping;

use std::collections::VecDeque;

use authority::{Position, Time};
use coordinator::engine::{DiskSpace, Engine};
use coordinator::{Reply, Request, Unavailable};
use fake_disk::{Errno, FakeDisk};
use ledger::file::{FileLedger, FileReader, Options, SECTOR_BYTES};
use ledger::{AppendError, Batch, Ledger, Refusal};

use super::driver_delay::DriverDelay;
use super::projection::SimulatedProjection;
use super::snapshots::Snapshots;
use super::{HostEvent, Step, Stop, audit_record, durable_position};
use crate::bug::{self, Bug};
use crate::env::{Env, SimEvent, Ticket, clock};
use auditor::Covered;
use auditor::history::Entry;

/// As in production: a tick stays this far behind the clock.
const TICK_LAG_MS: u64 = 2;
/// As in production: the longest time without a look at the clock.
const MAX_SLEEP_MS: u64 = 5_000;
/// As in production: the time between two attempts to find space.
const RETRY_SPACE_MS: u64 = 1_000;

/// What a record takes in a small world, or seldom more. A batch is full when so many records fill a segment.
const MAX_RECORD_BYTES: u64 = 800;

pub(super) struct Process {
    pub engine: Engine<Ticket>,
    pub serving: bool,
    pub projection: Option<SimulatedProjection>,
    /// An operator has asked for the end.
    pub stopping: bool,
    life: u64,
    ledger: FileLedger,
    disk: FakeDisk,
    options: Options,
    base: Time,
    zero: u64,
    inbox: VecDeque<(Ticket, Request, Time)>,
    decided_up_to: Time,
    in_flight: Option<Batch>,
    /// The batch in flight found no space.
    held: bool,
    /// The records of the batch in flight.
    open: Vec<Vec<u8>>,
    durable: Vec<Vec<u8>>,
    snapshots: Snapshots,
    next_wake: u64,
    /// When the append in flight ends.
    next_append: u64,
    was_full: bool,
    /// The next segment is about to be prepared.
    reserve_asked: bool,
    driver_delay: DriverDelay,
}

impl Process {
    pub(super) fn new(
        engine: Engine<Ticket>,
        ledger: FileLedger,
        disk: FakeDisk,
        options: Options,
        snapshots: Snapshots,
        (life, base, zero): (u64, Time, u64),
    ) -> Process {
        Process {
            engine,
            serving: false,
            projection: None,
            stopping: false,
            life,
            ledger,
            disk,
            options,
            base,
            zero,
            inbox: VecDeque::new(),
            decided_up_to: Time::ZERO,
            in_flight: None,
            held: false,
            open: Vec::new(),
            durable: Vec::new(),
            snapshots,
            next_wake: u64::MAX,
            next_append: 0,
            was_full: false,
            reserve_asked: false,
            driver_delay: DriverDelay::default(),
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        let followed = self.projection.as_ref().is_none_or(SimulatedProjection::is_idle);
        self.in_flight.is_none() && self.inbox.is_empty() && self.waiting_records() == 0 && followed
    }

    /// Records that were decided and are not on their way to the disk.
    fn waiting_records(&self) -> u64 {
        let decided = self.engine.state().position().0 - self.engine.durable().0;
        decided.saturating_sub(self.open.len() as u64)
    }

    pub(super) fn take_durable(&mut self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.durable)
    }

    pub(super) fn into_open(self) -> Vec<Vec<u8>> {
        self.open
    }

    pub(super) fn reader(&self) -> FileReader {
        self.ledger.reader()
    }

    /// Stamps a request and puts it into the inbox.
    pub(super) fn accept(&mut self, ticket: Ticket, request: Request, env: &mut Env) -> Result<(), String> {
        let now = self.now(env);
        env.auditor.read(&Entry::Received { ask: ticket.ask, at: now })?;
        env.note(&[10, ticket.ask], || format!("{} is received at {now}", ticket.ask));
        if self.in_flight.is_some() && env.now + 500 < self.next_append {
            env.coverage.bump(Covered::Stall);
        }
        let request = match request {
            // Actors say how long they wait; the time comes from the coordinator's clock.
            Request::Poll { lease, until } => Request::Poll { lease, until: now.plus_ms(until.0) },
            Request::Wait { scope, task, condition, until } => {
                Request::Wait { scope, task, condition, until: now.plus_ms(until.0) }
            }
            other => other,
        };
        self.inbox.push_back((ticket, request, now));
        let delay = env.rng.between(0, 2);
        self.wake_at(env.now + delay, env);
        Ok(())
    }

    /// One turn of the driver's loop.
    pub(super) fn wake(&mut self, planned: u64, env: &mut Env) -> Result<(), Stop> {
        if planned != self.next_wake {
            return Ok(());
        }
        self.next_wake = u64::MAX;
        if self.serving {
            let take = self.driver_delay.takes(env);
            for _ in 0..take {
                let most = self.options.segment_bytes / MAX_RECORD_BYTES;
                if !self.engine.takes_requests() || (!self.held && self.waiting_records() > most) {
                    break;
                }
                let Some((ticket, request, received_at)) = self.inbox.pop_front() else { break };
                self.decided_up_to = self.decided_up_to.max(received_at);
                env.note(&[11, ticket.ask], || format!("{} is decided", ticket.ask));
                self.engine.receive(request, received_at, ticket);
            }
            self.strike(Covered::CrashAfterReceive, env)?;
        }
        self.step(env)
    }

    /// What follows: ticks, a batch for the disk, answers, a slice of a snapshot.
    pub(super) fn step(&mut self, env: &mut Env) -> Result<(), Stop> {
        let horizon = self.horizon(env);
        if DriverDelay::ticks(self.engine.next_due(), horizon, env) {
            self.engine.tick(horizon);
        }
        self.deliver(env)?;
        // After the answers: leases that cannot be delivered are given back in this batch.
        if self.in_flight.is_none()
            && let Some(batch) = self.engine.take_batch()
        {
            self.snapshots.note_appended(batch.body_bytes());
            self.open.extend(batch.records().map(|(_, record)| record.to_vec()));
            let first = batch.first();
            env.note(&[12, first.0], || format!("a batch from {first} goes to the disk"));
            self.in_flight = Some(if env.injected(Bug::AnswerBeforeSync) {
                let copy = bug::copy(&batch);
                self.engine.batch_durable(batch);
                copy
            } else {
                batch
            });
            self.strike(Covered::CrashBeforeAppend, env)?;
            let stall = env.strikes(env.config.stalls, 40);
            let latency = if stall { env.rng.between(600, 5_000) } else { env.rng.between(0, 4) };
            self.next_append = env.now + latency;
            env.after(latency, SimEvent::Host(HostEvent::Appended { life: self.life }));
        }
        self.snapshots.step(&mut self.engine, self.life, env);
        let late_ms = TICK_LAG_MS + DriverDelay::tick_ms(env);
        let due = self.engine.next_due().plus_ms(late_ms).since_ms(self.now(env)).min(MAX_SLEEP_MS);
        let pause = if self.inbox.is_empty() || !self.serving { due } else { self.driver_delay.left_ms(env) };
        self.wake_at(env.now + pause.max(1), env);
        Ok(())
    }

    /// The disk has done the append, or not.
    pub(super) fn append(&mut self, env: &mut Env) -> Result<(), Stop> {
        let Some(batch) = self.in_flight.take() else { return Ok(()) };
        // A batch that fills several sectors can be torn.
        let sectors = 1 + batch.body_bytes() / SECTOR_BYTES;
        let weight = (2 + 2 * self.open.len() as u64).min(30) + if sectors > 1 { 40 } else { 0 };
        let crash = env.strikes(true, env.config.crash_permille * weight);
        let fail = env.strikes(env.config.failed_syncs, 20);
        if crash {
            // Mostly between the write and its sync.
            let calls = u64::from(env.rng.chance(300));
            self.disk.halt_after(calls);
        } else if fail {
            // Mostly the sync of a frame; a new segment makes more calls.
            let call = if env.rng.chance(600) { 1 } else { env.rng.below(8) };
            self.disk.fail_at(call, Errno::Io);
        } else if env.strikes(true, 20) {
            self.disk.fail_at(0, Errno::Short);
        }
        let before = self.ledger.free_bytes();
        let result = self.ledger.append(&batch);
        if crash {
            return Err(Stop::Crash(Covered::CrashInAppend));
        }
        self.disk.heal();
        match result {
            Ok(()) => {
                if self.ledger.free_bytes() > before {
                    env.coverage.bump(Covered::Rotated);
                }
                self.held = false;
                self.in_flight = Some(batch);
                self.prepare_reserve(env);
                self.strike(Covered::CrashAfterAppend, env)?;
                self.appended(env)
            }
            Err(AppendError::Refused(Refusal::NoSpace)) => {
                env.coverage.bump(Covered::HeldBatch);
                self.was_full = true;
                self.held = true;
                self.in_flight = Some(batch);
                if !self.serving {
                    // As in production: a start does not wait for space.
                    return Err(Stop::Failed);
                }
                self.engine.set_disk_space(DiskSpace::Nothing);
                env.after(RETRY_SPACE_MS, SimEvent::Host(HostEvent::Reserve { life: self.life }));
                self.step(env)
            }
            Err(AppendError::Unknown(_)) if env.injected(Bug::FailedSyncIgnored) => {
                self.in_flight = Some(batch);
                self.appended(env)
            }
            Err(AppendError::Unknown(_)) => Err(Stop::Failed),
            Err(error) => Err(Stop::Wrong(format!("an append was refused: {error}"))),
        }
    }

    fn appended(&mut self, env: &mut Env) -> Result<(), Stop> {
        let Some(batch) = self.in_flight.take() else { return Ok(()) };
        let first = batch.first();
        for (index, record) in std::mem::take(&mut self.open).into_iter().enumerate() {
            audit_record(Position(first.0 + index as u64), &record, env)?;
            self.durable.push(record);
        }
        self.engine.set_disk_space(self.ledger.space());
        if !env.injected(Bug::AnswerBeforeSync) {
            self.engine.batch_durable(batch);
        }
        self.snapshots.durable(self.engine.durable(), self.life, env);
        if let Some(projection) = &mut self.projection {
            projection.notify(env);
        }
        self.serving = true;
        self.step(env)
    }

    /// The thread that follows the ledger takes its turn.
    pub(super) fn follow(&mut self, env: &mut Env) -> Result<(), Stop> {
        let durable = self.engine.durable();
        self.projection.as_mut().map_or(Ok(()), |projection| projection.follow(durable, env))
    }

    pub(super) fn snapshot(&mut self, step: Step, env: &mut Env) -> Result<(), Stop> {
        let records = self.engine.state().position();
        self.snapshots.perform(
            step,
            &mut self.engine,
            &self.ledger,
            &self.disk,
            (self.life, records),
            env,
        )?;
        self.step(env)
    }

    fn deliver(&mut self, env: &mut Env) -> Result<(), Stop> {
        let mut answers: Vec<_> = self.engine.take_answers().collect();
        if env.injected(Bug::AnswersSwapped) && answers.len() > 1 {
            let first = answers[0].1.clone();
            answers[0].1 = std::mem::replace(&mut answers[1].1, first);
        }
        if answers.is_empty() {
            return Ok(());
        }
        let durable =
            if env.rng.chance(40) { Some(durable_position(&self.disk, &self.options)?) } else { None };
        for (ticket, reply) in answers {
            self.strike(Covered::CrashBetweenAnswers, env)?;
            if let Reply::Unavailable(Unavailable::NoSpace) = &reply {
                env.coverage.bump(Covered::FullDisk);
            }
            if ticket.gone.get() {
                if matches!(&reply, Reply::Leased(grants) if !grants.is_empty()) {
                    env.coverage.bump(Covered::Undelivered);
                }
                let clock = env.injected(Bug::UndeliveredAtClockTime);
                let now = if clock { self.now(env) } else { self.horizon(env) };
                self.engine.undelivered(&reply, now);
                continue;
            }
            if env.injected(Bug::DeliveredTakenBack) && env.rng.chance(100) {
                self.engine.undelivered(&reply, self.horizon(env));
            }
            env.send_reply(ticket, reply, durable)?;
        }
        Ok(())
    }

    fn strike(&mut self, point: Covered, env: &mut Env) -> Result<(), Stop> {
        if env.strikes(true, env.config.crash_permille) { Err(Stop::Crash(point)) } else { Ok(()) }
    }

    pub(super) fn now(&self, env: &Env) -> Time {
        clock(self.base, self.zero, env.now)
    }

    /// The time up to which every request received is known to have been decided.
    fn horizon(&self, env: &Env) -> Time {
        if self.inbox.is_empty() || env.injected(Bug::TickOvertakesRequests) {
            Time(self.now(env).0.saturating_sub(TICK_LAG_MS))
        } else {
            self.decided_up_to
        }
    }

    fn wake_at(&mut self, time: u64, env: &mut Env) {
        if time < self.next_wake {
            self.next_wake = time;
            env.at(time, SimEvent::Host(HostEvent::Wake { life: self.life, planned: time }));
        }
    }
}
