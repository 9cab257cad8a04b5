//! Heartbeats of one attempt, sent while its handler runs and at no other time.
//!
//! A heartbeat that gets lost decides nothing: the next one is sent sooner, and that is all. Two things end the
//! attempt: the coordinator's word that the lease is gone, and the worker's own clock.

use std::time::Duration;

use crate::contract::{Contract, Heard};
use crate::backoff::FIRST_PAUSE;
use crate::transport::Answer;
use crate::{Task, clock};

/// Progress goes out at once, but not more often than this.
const MIN_INTERVAL: Duration = Duration::from_millis(500);
/// A heartbeat that is not answered by then is repeated.
const BEAT_TIMEOUT: Duration = Duration::from_secs(10);

pub struct Heartbeater<'a> {
    pub contract: &'a dyn Contract,
    pub task: &'a Task,
}

impl Heartbeater<'_> {
    /// Beats until it is known whether the lease lives; says whether it does.
    pub async fn confirm(&self) -> bool {
        let mut pause = FIRST_PAUSE;
        while clock::now() < self.task.clock(|clock| clock.latest_end()) {
            if self.beat().await {
                return !self.task.is_lease_lost();
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(self.task.heartbeat_interval());
        }
        false
    }

    /// Beats until the lease is lost. Dropping it, when the handler has ended, ends it too.
    pub async fn run(&self) {
        let interval = self.task.heartbeat_interval();
        let mut pause = interval;
        let mut beaten_at = clock::now();
        loop {
            self.until_due(beaten_at, pause).await;
            if self.task.clock(|clock| clock.is_over()) {
                self.task.lose("the lease ran out without an answered heartbeat");
                return;
            }
            beaten_at = clock::now();
            pause = match self.beat().await {
                true if self.task.is_lease_lost() => return,
                true => interval,
                false if pause == interval => FIRST_PAUSE.min(interval),
                false => (pause * 2).min(interval),
            };
        }
    }

    /// Until the next heartbeat, the end of the lease, or progress that is worth a heartbeat of its own.
    async fn until_due(&self, beaten_at: Duration, pause: Duration) {
        let due = (beaten_at + pause).min(self.task.clock(|clock| clock.valid_until()));
        tokio::select! {
            () = tokio::time::sleep(clock::until(due)) => {}
            () = self.task.progressed() => {
                tokio::time::sleep(clock::until((beaten_at + MIN_INTERVAL).min(due))).await;
            }
        }
    }

    /// One heartbeat; says whether it was answered.
    async fn beat(&self) -> bool {
        let progress = self.task.take_progress();
        let Ok(request) = self.contract.heartbeat(progress.clone()) else { return false };
        let sent_at = clock::now();
        let left = clock::until(self.task.clock(|clock| clock.valid_until()));
        let timeout = BEAT_TIMEOUT.min(left.max(self.task.heartbeat_interval()));
        match self.contract.transport().once(&request, timeout).await {
            Ok(answer) => self.obey(&answer, sent_at),
            Err(fault) => {
                self.task.restore_progress(progress);
                tracing::debug!(why = fault.why, "a heartbeat was not answered");
                false
            }
        }
    }

    /// Does what the coordinator says; says whether it was the coordinator who said it.
    fn obey(&self, answer: &Answer, sent_at: Duration) -> bool {
        match self.contract.heard(answer) {
            Heard::Lives { expires_at, stop } => {
                self.task.clock(|clock| clock.extended(sent_at, expires_at));
                if let Some(stop) = stop {
                    if let Some(grace) = stop.grace {
                        self.task.clock(|clock| clock.stopping(grace));
                    }
                    self.task.cancel(stop.reason);
                }
            }
            Heard::Over(why) => self.task.lose(why),
            Heard::Foreign(error) => {
                tracing::debug!(%error, "somebody else answered a heartbeat");
                return false;
            }
        }
        true
    }
}
