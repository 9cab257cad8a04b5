//! Workers that were silent on every channel for the heartbeat timeout: the leases that they hold through the scheduler's
//! calls and stream end before their time.
//!
//! Silence counts only while the coordinator could hear: from the first check after a start, and again from a check that
//! came so late that heartbeats may have been left unread.

use authority::Time;
use authority::command::EndWorker;
use authority::{Command, State};

use super::{Engine, Registry, ReplyTo};

/// The longest time between two checks; a check visits every lease.
const MAX_PAUSE_MS: u64 = 5_000;

#[derive(Default)]
pub(super) struct LostWorkers {
    next_check: Time,
    listening_since: Time,
}

impl LostWorkers {
    /// When the next check is due, if there is anything to check.
    pub(super) fn next_due(&self, state: &State, registry: &Registry) -> Option<Time> {
        (state.has_leases() || registry.has_registered()).then_some(self.next_check)
    }

    /// Notes a check, and whether a silence could have lasted for the timeout.
    fn begin_check(&mut self, registry: &Registry, now: Time) -> bool {
        let timeout_ms = registry.heartbeat_timeout_ms();
        // Workers send three heartbeats within the timeout, so an earlier check cannot have missed one.
        if now.since_ms(self.next_check) > timeout_ms / 2 {
            self.listening_since = now;
        }
        self.next_check = now.plus_ms((timeout_ms / 10).clamp(1, MAX_PAUSE_MS));
        now.since_ms(self.listening_since.max(registry.evicted_at())) > timeout_ms
    }
}

impl<T: ReplyTo> Engine<T> {
    /// Ends the leases of lost workers, as far as the batch has space.
    pub(super) fn end_lost_workers(&mut self, now: Time) {
        let due = self.lost_workers.next_due(&self.state, &self.registry).is_some_and(|due| due <= now);
        if !due {
            return;
        }
        self.registry.expire(now);
        if !self.lost_workers.begin_check(&self.registry, now) {
            return;
        }
        let heard = self.registry.heard_lately(now);
        for (tenant, worker) in
            self.state.lease_holders().into_iter().filter(|holder| !heard.contains(holder))
        {
            if self.is_full() {
                self.lost_workers.next_check = now;
                return;
            }
            tracing::warn!(%worker, %tenant, "worker lost: it sent nothing for the heartbeat timeout, so its leases end");
            let end = Command::EndWorker(EndWorker { tenant, worker });
            while self.run_quietly(end.clone(), now) && !self.is_full() {}
        }
    }
}
