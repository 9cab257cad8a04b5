//! Writes snapshots, with each step as an event. Production's own plan decides when a snapshot is due.

use authority::Position;
use coordinator::engine::{Engine, SnapshotPlan};
use fake_disk::{Errno, FakeDisk};
use ledger::file::FileLedger;
use ledger::{Ledger, SnapshotSink};

use super::{HostEvent, Step, Stop};
use crate::bug::Bug;
use crate::env::{Env, SimEvent, Ticket};
use auditor::Covered;

pub(super) struct Snapshots {
    plan: SnapshotPlan,
    writer: Option<Box<dyn SnapshotSink>>,
    bytes: u64,
    began_at: Position,
    /// How many slices there were, and whether records went on between two of them.
    slices: u64,
    sliced_at: Position,
    moved: bool,
    busy_until: u64,
}

impl Snapshots {
    pub(super) fn new(after_bytes: u64, replayed_bytes: u64) -> Snapshots {
        Snapshots {
            plan: SnapshotPlan::new(after_bytes, replayed_bytes),
            writer: None,
            bytes: 0,
            began_at: Position::ZERO,
            slices: 0,
            sliced_at: Position::ZERO,
            moved: false,
            busy_until: 0,
        }
    }

    pub(super) fn note_appended(&mut self, bytes: usize) {
        self.plan.note_appended(bytes);
    }

    pub(super) fn step(&mut self, engine: &mut Engine<Ticket>, life: u64, env: &mut Env) {
        let Some(step) = self.plan.step(engine) else { return };
        let position = engine.state().position();
        match &step {
            Step::Begin { begin, .. } => {
                self.began_at = *begin;
                (self.slices, self.moved) = (0, false);
            }
            Step::Block(_) => {
                self.moved |= self.slices > 0 && position > self.sliced_at;
                self.slices += 1;
            }
            Step::Finish(_) => {}
        }
        self.sliced_at = position;
        self.send(step, life, env);
    }

    /// Everything up to here is durable.
    pub(super) fn durable(&mut self, position: Position, life: u64, env: &mut Env) {
        if let Some(step) = self.plan.durable(position) {
            self.send(step, life, env);
        }
    }

    /// The writer does one step after another.
    fn send(&mut self, step: Step, life: u64, env: &mut Env) {
        self.busy_until = self.busy_until.max(env.now) + env.rng.between(0, 60);
        env.at(self.busy_until, SimEvent::Host(HostEvent::Snapshot { life, step }));
    }

    /// Does what the writer's thread would do, and what the driver makes of it.
    pub(super) fn perform(
        &mut self,
        step: Step,
        engine: &mut Engine<Ticket>,
        ledger: &FileLedger,
        disk: &FakeDisk,
        (life, newest): (u64, Position),
        env: &mut Env,
    ) -> Result<(), Stop> {
        let finish = matches!(step, Step::Finish(_));
        let crash = env.strikes(true, env.config.crash_permille * 2);
        if crash {
            let calls = env.rng.below(5);
            disk.halt_after(calls);
        } else if env.strikes(env.config.failed_syncs, 60) {
            let call = env.rng.below(4);
            disk.fail_at(call, Errno::Io);
        }
        let step = match step {
            Step::Finish(end) if env.injected(Bug::SnapshotOneShort) => Step::Finish(Position(end.0 - 1)),
            Step::Block(_) if env.injected(Bug::SnapshotLacksABlock) => Step::Block(Vec::new()),
            step => step,
        };
        let result = self.write(step, ledger);
        if crash {
            return Err(Stop::Crash(Covered::CrashInAppend));
        }
        disk.heal();
        match result {
            Err(_) => {
                env.coverage.bump(Covered::SnapshotFailed);
                self.writer = None;
                self.plan.failed(engine);
            }
            Ok(()) if finish => {
                if newest > self.began_at {
                    env.coverage.bump(Covered::SnapshotUnderLoad);
                }
                if env.auditor.created_again() > self.began_at {
                    env.coverage.bump(Covered::CreatedAgainInSnapshot);
                }
                if self.slices > 2 && self.moved {
                    env.coverage.bump(Covered::SnapshotInSlices);
                }
                self.plan.finished(self.bytes);
                let delay = env.rng.between(0, 40);
                env.after(delay, SimEvent::Host(HostEvent::Trim { life }));
            }
            Ok(()) => {
                if let Some(step) = self.plan.written(engine.durable()) {
                    self.send(step, life, env);
                }
            }
        }
        Ok(())
    }

    fn write(&mut self, step: Step, ledger: &FileLedger) -> Result<(), String> {
        let block = match step {
            Step::Begin { begin, block } => {
                self.bytes = 0;
                self.writer = Some(ledger.begin_snapshot(begin).map_err(|error| error.to_string())?);
                block
            }
            Step::Block(block) => block,
            Step::Finish(end) => {
                let writer = self.writer.take().ok_or("no snapshot was begun")?;
                return writer.finish(end).map(drop).map_err(|error| error.to_string());
            }
        };
        if block.is_empty() {
            return Ok(());
        }
        self.bytes += block.len() as u64;
        let writer = self.writer.as_mut().ok_or("no snapshot was begun")?;
        writer.write_block(&block).map_err(|error| error.to_string())
    }
}
