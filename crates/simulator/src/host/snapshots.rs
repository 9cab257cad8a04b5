//! When a snapshot is due and what it waits for: the production rules, with each step of the writer as an event.

use authority::Position;
use coordinator::engine::Engine;
use ledger::disk::fake::{Errno, FakeDisk};
use ledger::file::{FileLedger, SnapshotWriter};

use super::{HostEvent, Stop};
use crate::env::{Env, Happening, Ticket};
use crate::plant::Plant;
use auditor::Reached;

/// What the writer of a snapshot is asked to do.
pub enum Step {
    Begin(Position, Vec<u8>),
    Block(Vec<u8>),
    Finish(Position),
}

pub struct Snapshots {
    after_bytes: u64,
    appended_bytes: u64,
    due_at_bytes: u64,
    phase: Phase,
    writer: Option<SnapshotWriter>,
    bytes: u64,
    began_at: Position,
    /// How many slices there were, and whether records went on between two of them.
    slices: u64,
    sliced_at: Position,
    moved: bool,
    busy_until: u64,
}

enum Phase {
    Idle,
    Busy,
    Ready,
    AllWritten(Position),
}

impl Snapshots {
    pub fn new(after_bytes: u64, replayed_bytes: u64) -> Snapshots {
        Snapshots {
            after_bytes,
            appended_bytes: replayed_bytes,
            due_at_bytes: after_bytes,
            phase: Phase::Idle,
            writer: None,
            bytes: 0,
            began_at: Position::ZERO,
            slices: 0,
            sliced_at: Position::ZERO,
            moved: false,
            busy_until: 0,
        }
    }

    pub fn note_appended(&mut self, bytes: usize) {
        self.appended_bytes += bytes as u64;
    }

    pub fn step(&mut self, engine: &mut Engine<Ticket>, life: u64, env: &mut Env) {
        match self.phase {
            Phase::Idle if self.appended_bytes >= self.due_at_bytes => {
                let (begin, block) = engine.begin_snapshot();
                self.appended_bytes = 0;
                self.began_at = begin;
                (self.slices, self.moved) = (0, false);
                self.send(Step::Begin(begin, block), life, env);
                self.phase = Phase::Busy;
            }
            Phase::Ready => {
                let Some(slice) = engine.snapshot_slice() else { return };
                self.moved |= self.slices > 0 && engine.state().position() > self.sliced_at;
                self.sliced_at = engine.state().position();
                self.slices += 1;
                self.phase = match slice.end {
                    None => Phase::Busy,
                    Some(end) => Phase::AllWritten(end),
                };
                self.send(Step::Block(slice.block), life, env);
            }
            _ => {}
        }
    }

    /// Everything up to here is durable.
    pub fn durable(&mut self, position: Position, life: u64, env: &mut Env) {
        if let Phase::AllWritten(end) = self.phase
            && end <= position
        {
            self.phase = Phase::Busy;
            self.send(Step::Finish(end), life, env);
        }
    }

    /// The writer does one step after another.
    fn send(&mut self, step: Step, life: u64, env: &mut Env) {
        self.busy_until = self.busy_until.max(env.now) + env.rng.between(0, 60);
        env.at(self.busy_until, Happening::Host(HostEvent::Snapshot { life, step }));
    }

    /// Does what the writer's thread would do, and what the driver makes of it.
    pub fn perform(
        &mut self,
        step: Step,
        engine: &mut Engine<Ticket>,
        ledger: &FileLedger,
        disk: &FakeDisk,
        (life, newest): (u64, Position),
        env: &mut Env,
    ) -> Result<(), Stop> {
        let finish = matches!(step, Step::Finish(_));
        let crash = env.strikes(true, env.swarm.crash_permille * 2);
        if crash {
            let calls = env.rng.below(5);
            disk.halt_after(calls);
        } else if env.strikes(env.swarm.failed_syncs, 60) {
            let call = env.rng.below(4);
            disk.fail_at(call, Errno::Io);
        }
        let step = match step {
            Step::Finish(end) if env.planted(Plant::SnapshotOneShort) => Step::Finish(Position(end.0 - 1)),
            Step::Block(_) if env.planted(Plant::SnapshotLacksABlock) => Step::Block(Vec::new()),
            step => step,
        };
        let result = self.write(step, ledger);
        if crash {
            return Err(Stop::Crash(Reached::CrashInAppend));
        }
        disk.heal();
        match result {
            Err(_) => {
                env.reach.bump(Reached::SnapshotFailed);
                self.writer = None;
                engine.abandon_snapshot();
                self.due_at_bytes = self.after_bytes;
                self.appended_bytes = 0;
                self.phase = Phase::Idle;
            }
            Ok(()) if finish => {
                if newest > self.began_at {
                    env.reach.bump(Reached::SnapshotUnderLoad);
                }
                if self.slices > 2 && self.moved {
                    env.reach.bump(Reached::SnapshotInSlices);
                }
                self.due_at_bytes = self.after_bytes.max(self.bytes);
                self.phase = Phase::Idle;
                let delay = env.rng.between(0, 40);
                env.after(delay, Happening::Host(HostEvent::Trim { life }));
            }
            Ok(()) => {
                if let Phase::Busy = self.phase {
                    self.phase = Phase::Ready;
                }
                self.durable(engine.durable(), life, env);
            }
        }
        Ok(())
    }

    fn write(&mut self, step: Step, ledger: &FileLedger) -> Result<(), String> {
        let block = match step {
            Step::Begin(begin, block) => {
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
