//! Stops a process in order: no more requests, polls end, what was decided becomes durable and is answered.

use coordinator::Reply;

use super::Process;
use crate::env::{Env, Ticket};
use auditor::Covered;

impl Process {
    pub(crate) fn begin_stop(&mut self, env: &mut Env) {
        if self.stopping {
            return;
        }
        self.stopping = true;
        env.coverage.bump(Covered::GracefulStop);
        if self.in_flight.is_some() {
            env.coverage.bump(Covered::StopWithBatchInFlight);
        }
        self.engine.end_polls();
        self.wake_at(env.now, env);
    }

    /// Whether everything is durable and answered, or will not be because there is no space for it.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stopping
            && self.inbox.is_empty()
            && (self.held || (self.in_flight.is_none() && self.waiting_records() == 0))
    }

    /// The last answers, in the order in which they were asked for.
    pub(crate) fn last_answers(&mut self) -> Vec<(Ticket, Reply)> {
        let mut waiting = self.engine.take_all_waiting();
        waiting.sort_by_key(|(ticket, _)| ticket.ask);
        waiting
    }

    pub(crate) fn is_held(&self) -> bool {
        self.held
    }
}
