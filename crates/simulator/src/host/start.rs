//! Starts the coordinator as production does: open, load a snapshot, replay, take over, expire, and only then serve.
//! The recovered records are checked against those that were durable.

use std::ops::ControlFlow;

use authority::command::TakeOver;
use authority::{Command, Position, State, Time};
use coordinator::Request;
use coordinator::engine::{Engine, SliceSize};
use fake_disk::Errno;
use ledger::digest::state_digest;
use ledger::file::{DropReason, Error, FileLedger, OpenReport, Options};
use ledger::{Ledger, Reader, Recovery, record};

use super::process::Process;
use super::projection::SimulatedProjection;
use super::snapshots::Snapshots;
use super::truncated_ledger::TruncatedLedger;
use super::{Host, HostEvent, audit_record, ledger_options};
use crate::bug::{self, Bug};
use crate::config::queue_defaults;
use crate::env::{Env, NOBODY, SimEvent, Ticket};
use auditor::Covered;
use auditor::history::Entry;

/// As in production: a larger gap between the clock and the newest record holds back the purge by age.
const PLAUSIBLE_GAP_MS: u64 = 24 * 60 * 60 * 1_000;
const PURGE_HOLD_MS: u64 = 60 * 60 * 1_000;

impl Host {
    pub(super) fn start(&mut self, env: &mut Env) -> Result<(), String> {
        if self.process.is_some() {
            return Ok(());
        }
        let options = ledger_options(env);
        self.flip_bits(&options, env)?;
        let trouble = env.strikes(true, env.config.crash_permille * 10);
        if trouble {
            let call = env.rng.below(30);
            if env.rng.chance(500) {
                self.disk.halt_after(call);
            } else {
                self.disk.fail_at(call, Errno::Io);
            }
        }
        let opened = self.open_ledger(&options, env);
        if trouble {
            drop(opened);
            return self.fail_at_start(env);
        }
        let (ledger, report) = match opened? {
            Some(opened) => opened,
            None => return self.fail_at_start(env),
        };
        self.judge_snapshots(&ledger, &report, env)?;
        self.compare(&ledger, env)?;
        let (mut state, replayed_bytes) = self.recover(&ledger, &report, env)?;
        state.set_max_bytes(env.config.features.max_state_bytes);
        state.set_max_final_bytes(env.config.features.max_final_bytes);
        state.set_queue_defaults(queue_defaults());
        let wall = self.wall(env.now);
        if wall < state.time() {
            env.coverage.bump(Covered::WallBack);
        }
        let gap = wall.since_ms(state.time());
        let hold = if state.is_empty() || gap <= PLAUSIBLE_GAP_MS {
            Time::ZERO
        } else {
            env.coverage.bump(Covered::WallFar);
            wall.plus_ms(PURGE_HOLD_MS)
        };
        self.life += 1;
        let base = coordinator::first_time(state.time(), wall);
        let snapshots = Snapshots::new(env.config.snapshot_after_bytes, replayed_bytes);
        let life = (self.life, base, env.now);
        let mut engine = Engine::new(state, hold);
        engine.registry().set_heartbeat_timeout_ms(env.config.heartbeat_timeout_ms);
        engine.set_slice_size(SliceSize { slots: env.config.features.slice_slots, ..SliceSize::default() });
        let mut process = Process::new(engine, ledger, self.disk.clone(), options, snapshots, life);
        if env.config.features.projection {
            let projection = SimulatedProjection::open(&self.offsets_disk, process.reader(), self.life)?;
            process.projection = Some(projection);
        }
        env.auditor.read(&Entry::Started)?;
        env.note(&[20, self.life, base.0], || format!("started, at {base} on its own clock"));
        let take_over =
            Request::decide(Command::TakeOver(TakeOver { node: "simulated".into(), audit_head: None }));
        let nobody =
            Ticket { ask: 0, actor: NOBODY, call: 0, gone: Default::default(), settled: Default::default() };
        process.engine.receive(take_over, base, nobody);
        process.engine.tick(base);
        let result = process.step(env);
        self.process = Some(process);
        env.after(0, SimEvent::Host(HostEvent::Reserve { life: self.life }));
        self.settle(Vec::new(), result, env)
    }

    /// `None` when the ledger may be refused for now.
    fn open_ledger(
        &self,
        options: &Options,
        env: &mut Env,
    ) -> Result<Option<(FileLedger, OpenReport)>, String> {
        match FileLedger::open(bug::disk(env.bug, &self.disk), options.clone()) {
            Ok(opened) => Ok(Some(opened)),
            Err(Error::UnverifiedTail(_)) if self.noise => {
                env.coverage.bump(Covered::RefusedTail);
                let options = Options { drop_unverified_tail: true, ..options.clone() };
                FileLedger::open(bug::disk(env.bug, &self.disk), options)
                    .map(Some)
                    .map_err(|error| format!("noise at the tail is not dropped on request: {error}"))
            }
            Err(Error::Io(_)) => Ok(None),
            Err(error) => Err(format!("the ledger does not open: {error}")),
        }
    }

    fn fail_at_start(&mut self, env: &mut Env) -> Result<(), String> {
        env.coverage.bump(Covered::CrashAtStart);
        self.disk.heal();
        if !env.faults {
            self.disk.set_capacity(None);
        }
        env.after(500, SimEvent::Host(HostEvent::Start));
        Ok(())
    }

    /// Every record that was durable is there, unchanged. What is there beyond them was on its way.
    fn compare(&mut self, ledger: &FileLedger, env: &mut Env) -> Result<(), String> {
        let next = ledger.next().0;
        let known = self.known.len() as u64;
        if next <= known {
            return Err(format!("records up to {known} were durable, but the ledger ends before {next}"));
        }
        let reader = ledger.reader();
        let first = reader.first().map_err(|error| error.to_string())?;
        let mut found = Vec::new();
        let read = reader.read(first, Position(next - 1), &mut |position, bytes| {
            found.push((position, bytes.to_vec()));
            ControlFlow::Continue(())
        });
        read.map_err(|error| format!("a record cannot be read: {error}"))?;
        let mut open = std::mem::take(&mut self.open).into_iter();
        let mut unacknowledged = 0;
        let mut expected = first;
        for (position, bytes) in found {
            if position != expected {
                return Err(format!("the ledger has record {position} where {expected} should follow"));
            }
            expected = position.next();
            if position.0 <= known {
                if self.known[position.0 as usize - 1] != bytes {
                    return Err(format!("record {position} is not what was durable there"));
                }
                continue;
            }
            if open.next().as_ref() != Some(&bytes) {
                return Err(format!("record {position} was never on its way to the disk"));
            }
            unacknowledged += 1;
            audit_record(position, &bytes, env)?;
            self.known.push(bytes);
        }
        if self.known.len() as u64 != next - 1 {
            return Err(format!("the ledger ends before {next}, but has records up to {}", self.known.len()));
        }
        if unacknowledged > 0 {
            env.coverage.bump(Covered::UnacknowledgedKept);
        }
        if open.len() > 0 {
            env.coverage.bump(Covered::UnacknowledgedLost);
        }
        Ok(())
    }

    /// Loads and replays as production does, and compares with a replay of everything. Gives the state and how many
    /// bytes were replayed.
    fn recover(
        &self,
        ledger: &FileLedger,
        report: &OpenReport,
        env: &mut Env,
    ) -> Result<(State, u64), String> {
        if report.dropped.as_ref().is_some_and(|dropped| dropped.why == DropReason::Torn) {
            env.coverage.bump(Covered::TornTail);
        }
        if ledger.reader().snapshots().is_ok_and(|snapshots| !snapshots.is_empty()) {
            env.coverage.bump(Covered::SnapshotUsed);
        }
        let rebuild = if env.injected(Bug::ReplayOneShort) {
            Recovery::newest(&TruncatedLedger(ledger))
        } else {
            Recovery::newest(ledger)
        };
        let rebuild = rebuild.map_err(|error| format!("the tail does not replay: {error}"))?;
        let bytes = rebuild.bytes();
        let state = rebuild.into_state();
        state.check_invariants().map_err(|what| format!("after a start: {what}"))?;
        let whole = self.replayed()?;
        if state_digest(&state) != state_digest(&whole) {
            return Err("what a start recovered is not what all records give".into());
        }
        Ok((state, bytes))
    }

    /// Walks a task's records back from the newest, as far as history is retained.
    pub(crate) fn walk_back(&self, newest: Position) -> Result<(Vec<Position>, bool), String> {
        let Some(process) = &self.process else { return Ok((Vec::new(), true)) };
        let reader = process.reader();
        let (mut positions, mut next) = (Vec::new(), Some(newest));
        while let Some(position) = next {
            let Some(bytes) = reader.record(position).map_err(|error| error.to_string())? else {
                return Ok((positions, true));
            };
            positions.push(position);
            next = record::decode(&bytes).map_err(|error| error.to_string())?.prev;
        }
        Ok((positions, false))
    }
}
