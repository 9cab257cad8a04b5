//! The thread that writes the blocks of snapshots, and the driver's side of it.

use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;

use authority::Position;
use ledger::{SnapshotError, SnapshotSink};
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::oneshot;

use super::ledger_thread::{LedgerEvent, LedgerThread};
use crate::engine::{Engine, SnapshotPlan, SnapshotStep};
use crate::request::Reply;

/// A snapshot is due when this much was appended since the last one, or as much as the last one took.
pub(super) const SNAPSHOT_AFTER_BYTES: u64 = 64 << 20;

pub(super) enum SnapshotEvent {
    /// The last block is written; the next may come.
    Ready,
    /// The snapshot is complete and has this many bytes.
    Finished(u64),
    Failed(String),
}

enum Step {
    Begin(Result<Box<dyn SnapshotSink>, SnapshotError>, Vec<u8>),
    Block(Vec<u8>),
    Finish(Position),
}

/// Sends steps to the thread.
#[derive(Clone)]
pub(super) struct SnapshotThread {
    steps: SyncSender<Step>,
}

impl SnapshotThread {
    pub(super) fn spawn(
        events: UnboundedSender<LedgerEvent>,
    ) -> std::io::Result<(SnapshotThread, thread::JoinHandle<()>)> {
        // One step is in progress at a time.
        let (steps, work) = sync_channel(2);
        let thread = thread::Builder::new().name("lessor-snapshot".into()).spawn(move || {
            let mut writing = Writing { writer: None, bytes: 0 };
            for step in work {
                let event = writing.step(step).unwrap_or_else(|error| {
                    writing = Writing { writer: None, bytes: 0 };
                    SnapshotEvent::Failed(error)
                });
                if events.send(LedgerEvent::Snapshot(event)).is_err() {
                    return;
                }
            }
        })?;
        Ok((SnapshotThread { steps }, thread))
    }

    pub(super) fn begin(&self, writer: Result<Box<dyn SnapshotSink>, SnapshotError>, block: Vec<u8>) {
        self.send(Step::Begin(writer, block));
    }

    fn send(&self, step: Step) {
        let _ = self.steps.send(step);
    }
}

struct Writing {
    writer: Option<Box<dyn SnapshotSink>>,
    bytes: u64,
}

impl Writing {
    fn step(&mut self, step: Step) -> Result<SnapshotEvent, String> {
        match step {
            Step::Begin(writer, block) => {
                self.bytes = 0;
                self.writer = Some(writer.map_err(|error| error.to_string())?);
                self.write(&block)
            }
            Step::Block(block) => self.write(&block),
            Step::Finish(end) => {
                let writer = self.writer.take().ok_or("no snapshot was begun")?;
                writer.finish(end).map_err(|error| error.to_string())?;
                Ok(SnapshotEvent::Finished(self.bytes))
            }
        }
    }

    fn write(&mut self, block: &[u8]) -> Result<SnapshotEvent, String> {
        let writer = self.writer.as_mut().ok_or("no snapshot was begun")?;
        if !block.is_empty() {
            writer.write_block(block).map_err(|error| error.to_string())?;
            self.bytes += block.len() as u64;
        }
        Ok(SnapshotEvent::Ready)
    }
}

/// The driver's side.
pub(super) struct Snapshots {
    thread: SnapshotThread,
    plan: SnapshotPlan,
}

impl Snapshots {
    pub(super) fn new(thread: SnapshotThread, after_bytes: u64, replayed_bytes: u64) -> Snapshots {
        Snapshots { thread, plan: SnapshotPlan::new(after_bytes, replayed_bytes) }
    }

    pub(super) fn note_appended(&mut self, bytes: usize) {
        self.plan.note_appended(bytes);
    }

    pub(super) fn step(&mut self, engine: &mut Engine<oneshot::Sender<Reply>>, ledger: &LedgerThread) {
        match self.plan.step(engine) {
            // Only the owner of the ledger can begin a snapshot.
            Some(SnapshotStep::Begin { begin, block }) => ledger.begin_snapshot(begin, block),
            step => self.send(step),
        }
    }

    /// Every record up to `position` is durable.
    pub(super) fn durable(&mut self, position: Position) {
        let step = self.plan.durable(position);
        self.send(step);
    }

    pub(super) fn event(
        &mut self,
        event: SnapshotEvent,
        engine: &mut Engine<oneshot::Sender<Reply>>,
        ledger: &LedgerThread,
    ) {
        match event {
            SnapshotEvent::Ready => {
                let step = self.plan.written(engine.durable());
                self.send(step);
            }
            SnapshotEvent::Finished(bytes) => {
                tracing::info!(bytes, "snapshot taken");
                self.plan.finished(bytes);
                ledger.tend(engine.state().time());
            }
            SnapshotEvent::Failed(error) => {
                tracing::error!(error, "the snapshot could not be written; the log is complete without it");
                self.plan.failed(engine);
            }
        }
    }

    fn send(&self, step: Option<SnapshotStep>) {
        match step {
            Some(SnapshotStep::Block(block)) => self.thread.send(Step::Block(block)),
            Some(SnapshotStep::Finish(end)) => self.thread.send(Step::Finish(end)),
            Some(SnapshotStep::Begin { .. }) | None => {}
        }
    }
}
