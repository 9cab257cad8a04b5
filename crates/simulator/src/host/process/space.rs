//! Manages disk space: the next segment, batches that wait for space, and old history that is trimmed.

use ledger::{DiskSpace, Ledger};

use super::{Process, RETRY_SPACE_MS};
use crate::env::{Env, SimEvent};
use crate::host::{HostEvent, Stop};
use auditor::Covered;

impl Process {
    /// Prepares the next segment, or tries again to find space for it.
    pub(crate) fn reserve(&mut self, env: &mut Env) -> Result<(), Stop> {
        self.reserve_asked = false;
        let mut failed = false;
        if let Some(job) = self.ledger.reserve_job() {
            if env.strikes(true, env.config.crash_permille) {
                let calls = env.rng.below(5);
                self.disk.halt_after(calls);
                let _ = job.run();
                return Err(Stop::Crash(Covered::CrashInAppend));
            }
            failed = job.run().is_err();
        }
        if self.ledger.space() != DiskSpace::Plenty {
            env.coverage.bump(Covered::FullDisk);
            self.was_full = true;
            env.after(RETRY_SPACE_MS, SimEvent::Host(HostEvent::Reserve { life: self.life }));
        } else if std::mem::take(&mut self.was_full) {
            env.coverage.bump(Covered::SpaceAgain);
        }
        if self.held && !failed {
            return self.append(env);
        }
        self.engine.set_disk_space(self.ledger.space());
        self.step(env)
    }

    pub(super) fn prepare_reserve(&mut self, env: &mut Env) {
        if self.reserve_asked {
            return;
        }
        self.reserve_asked = true;
        let slow = env.strikes(env.config.full_disk, 300);
        let delay = if slow { 8_000 } else { env.rng.between(0, 30) };
        env.after(delay, SimEvent::Host(HostEvent::Reserve { life: self.life }));
    }

    pub(crate) fn trim(&mut self, env: &mut Env) -> Result<(), Stop> {
        let Some(job) = self.ledger.trim_job(self.engine.state().time().0) else { return Ok(()) };
        let crash = env.strikes(true, env.config.crash_permille * 3);
        if crash {
            let calls = env.rng.below(6);
            self.disk.halt_after(calls);
        }
        let removed = job.run();
        if crash {
            return Err(Stop::Crash(Covered::CrashInAppend));
        }
        if removed.is_ok_and(|segments| segments > 0) {
            env.coverage.bump(Covered::Trimmed);
        }
        Ok(())
    }
}
