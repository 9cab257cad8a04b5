//! Plans snapshots: when one is due, and what its writer does next. The driver carries each step to a writer and says how
//! it ended: a slow writer slows the snapshot and nothing else.

use authority::Position;

use super::{Engine, ReplyTo};

/// What the writer of a snapshot is asked to do. It is asked for one step at a time.
pub enum SnapshotStep {
    Begin { begin: Position, block: Vec<u8> },
    Block(Vec<u8>),
    Finish(Position),
}

pub struct SnapshotPlan {
    /// A snapshot is due when this much was appended since the last one, or as much as the last one took.
    after_bytes: u64,
    appended_bytes: u64,
    due_at_bytes: u64,
    phase: Phase,
}

enum Phase {
    Idle,
    /// The writer is busy with a step.
    Busy,
    /// The writer waits for the next slice.
    Ready,
    /// All slices are with the writer; the snapshot may be completed once this position is durable.
    AllWritten(Position),
}

impl SnapshotPlan {
    pub fn new(after_bytes: u64, replayed_bytes: u64) -> SnapshotPlan {
        SnapshotPlan {
            after_bytes,
            appended_bytes: replayed_bytes,
            due_at_bytes: after_bytes,
            phase: Phase::Idle,
        }
    }

    pub fn note_appended(&mut self, bytes: usize) {
        self.appended_bytes += bytes as u64;
    }

    /// The next step, if one is due and the writer is free for it.
    pub fn step<T: ReplyTo>(&mut self, engine: &mut Engine<T>) -> Option<SnapshotStep> {
        match self.phase {
            Phase::Idle if self.appended_bytes >= self.due_at_bytes => {
                let (begin, block) = engine.begin_snapshot();
                self.appended_bytes = 0;
                self.phase = Phase::Busy;
                Some(SnapshotStep::Begin { begin, block })
            }
            Phase::Ready => {
                let slice = engine.snapshot_slice()?;
                self.phase = match slice.end {
                    None => Phase::Busy,
                    Some(end) => Phase::AllWritten(end),
                };
                Some(SnapshotStep::Block(slice.block))
            }
            _ => None,
        }
    }

    /// Everything up to here is durable.
    pub fn durable(&mut self, position: Position) -> Option<SnapshotStep> {
        match self.phase {
            Phase::AllWritten(end) if end <= position => {
                self.phase = Phase::Busy;
                Some(SnapshotStep::Finish(end))
            }
            _ => None,
        }
    }

    /// The last step is written. All slices may be, and durable already.
    pub fn written(&mut self, durable: Position) -> Option<SnapshotStep> {
        if let Phase::Busy = self.phase {
            self.phase = Phase::Ready;
        }
        self.durable(durable)
    }

    /// The snapshot is complete, and this large.
    pub fn finished(&mut self, bytes: u64) {
        self.due_at_bytes = self.after_bytes.max(bytes);
        self.phase = Phase::Idle;
    }

    /// The snapshot could not be written; the log is complete without it.
    pub fn failed<T: ReplyTo>(&mut self, engine: &mut Engine<T>) {
        engine.abandon_snapshot();
        self.due_at_bytes = self.after_bytes;
        self.appended_bytes = 0;
        self.phase = Phase::Idle;
    }
}
