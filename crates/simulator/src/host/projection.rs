//! Simulates a projection of the ledger: the production runner with its offset on a disk of its own, and a
//! consumer that fails now and then and outlives every crash.

use std::sync::{Arc, Mutex, PoisonError};

use authority::Position;
use coordinator::{HistoryReader, HistoryRecord, Projection, ProjectionRunner};
use fake_disk::FakeDisk;
use ledger::file::{FileReader, OffsetFiles};

use super::{HostEvent, Stop};
use crate::env::{Env, SimEvent};
use auditor::Covered;
use auditor::history::Entry;

/// As in production: the first pause after a failure.
const RETRY_MS: u64 = 100;

pub(super) struct SimulatedProjection {
    runner: ProjectionRunner,
    consumer: Arc<Mutex<Consumer>>,
    disk: FakeDisk,
    life: u64,
    is_planned: bool,
    behind: bool,
    /// Until then everything fails.
    down_until: u64,
}

/// The data outside of the ledger.
#[derive(Default)]
struct Consumer {
    received: Vec<HistoryRecord>,
    /// After so many more records it fails, once.
    fails_after: Option<u64>,
}

struct Shared(Arc<Mutex<Consumer>>);

impl Projection for Shared {
    fn name(&self) -> &str {
        "simulated"
    }

    fn apply(&mut self, record: &HistoryRecord, _: &dyn HistoryReader) -> Result<(), String> {
        let mut consumer = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match consumer.fails_after {
            Some(0) => {
                consumer.fails_after = None;
                return Err("not now".into());
            }
            Some(left) => consumer.fails_after = Some(left - 1),
            None => {}
        }
        consumer.received.push(record.clone());
        Ok(())
    }
}

impl SimulatedProjection {
    pub(super) fn open(
        disk: &FakeDisk,
        reader: FileReader,
        life: u64,
    ) -> Result<SimulatedProjection, String> {
        let consumer = Arc::new(Mutex::new(Consumer::default()));
        let offsets = Arc::new(OffsetFiles::new(Arc::new(disk.clone())));
        let runner = ProjectionRunner::open(Box::new(Shared(consumer.clone())), offsets, 1, Arc::new(reader))
            .map_err(|error| format!("a projection cannot load its offset: {error}"))?;
        let disk = disk.clone();
        Ok(SimulatedProjection {
            runner,
            consumer,
            disk,
            life,
            is_planned: false,
            behind: true,
            down_until: 0,
        })
    }

    pub(super) fn is_idle(&self) -> bool {
        !self.behind
    }

    /// There is more to follow.
    pub(super) fn notify(&mut self, env: &mut Env) {
        self.behind = true;
        if !self.is_planned {
            let delay = env.rng.between(0, 150);
            self.plan(delay, env);
        }
    }

    /// One turn of the projection's thread.
    pub(super) fn follow(&mut self, durable: Position, env: &mut Env) -> Result<(), Stop> {
        self.is_planned = false;
        if env.strikes(true, 120) {
            let after = env.rng.below(6);
            self.lock(|consumer| consumer.fails_after = Some(after));
            if env.config.features.slow_projection {
                self.down_until = env.now + env.rng.between(500, 9_000);
            }
        } else if env.faults && env.now < self.down_until {
            self.lock(|consumer| consumer.fails_after = Some(0));
        }
        let mut result = self.runner.catch_up(durable);
        let received = self.lock(|consumer| {
            consumer.fails_after = None;
            std::mem::take(&mut consumer.received)
        });
        for HistoryRecord { position, at, event } in received {
            env.note(&[13, position.0], || format!("record {position} is applied"));
            env.auditor.read(&Entry::Applied { position, at, event })?;
        }
        if result.is_err() {
            env.coverage.bump(Covered::ProjectionFailed);
        }
        let crash = env.strikes(true, env.config.crash_permille);
        if crash {
            let calls = env.rng.below(6);
            self.disk.halt_after(calls);
        }
        if env.rng.chance(400) {
            result = result.and(self.runner.save().map_err(|error| error.to_string()));
        }
        if crash {
            return Err(Stop::Crash(Covered::CrashInProjection));
        }
        self.behind = self.runner.applied_up_to() < durable;
        if let Err(error) = result {
            env.note(&[14], || format!("a projection failed: {error}"));
            self.plan(RETRY_MS, env);
        }
        Ok(())
    }

    /// The coordinator has ended in good order: what is durable is applied, and the offset is saved.
    pub(super) fn finish(&mut self, durable: Position, env: &mut Env) -> Result<(), String> {
        if let Err(Stop::Wrong(what)) = self.follow(durable, env) {
            return Err(what);
        }
        self.disk.heal();
        // If the offset is not saved, the consumer gets records again.
        let _ = self.runner.save();
        Ok(())
    }

    fn plan(&mut self, delay_ms: u64, env: &mut Env) {
        self.is_planned = true;
        env.after(delay_ms, SimEvent::Host(HostEvent::Follow { life: self.life }));
    }

    fn lock<R>(&self, access: impl FnOnce(&mut Consumer) -> R) -> R {
        access(&mut self.consumer.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
