//! Sends the heartbeats of one attempt while its handler runs, and at no other time.
//!
//! A lost heartbeat decides nothing: the next one is sent sooner. Two things end the attempt: the coordinator's answer
//! that the lease is gone, and the worker's own clock.

use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};

use crate::backoff::FIRST_DELAY;
use crate::contract::{Contract, LeaseAnswer};
use crate::transport::Answer;
use crate::{Task, clock};

/// Progress is sent at once, but not more often than this.
const MIN_INTERVAL: Duration = Duration::from_millis(500);
/// A heartbeat that is not answered by then is repeated.
const HEARTBEAT_TIMEOUT: Duration = Duration::from_secs(10);

pub(crate) struct Heartbeater<'a> {
    pub contract: &'a dyn Contract,
    pub task: &'a Task,
}

impl Heartbeater<'_> {
    /// Sends heartbeats until one is answered. Returns whether the lease is valid.
    pub(crate) async fn confirm(&self) -> bool {
        let mut delays = self.retry_delays();
        while clock::now() < self.task.clock(|clock| clock.latest_end()) {
            if self.send().await {
                return !self.task.is_lease_lost();
            }
            tokio::time::sleep(delays.next().unwrap_or_default()).await;
        }
        false
    }

    /// Sends heartbeats until the lease is lost, or the future is dropped because the handler has ended.
    pub(crate) async fn run(&self) {
        let interval = self.task.heartbeat_interval();
        let mut delay = interval;
        let mut retry_delays = self.retry_delays();
        let mut sent_at = clock::now();
        loop {
            self.wait_until_due(sent_at, delay).await;
            if self.task.clock(|clock| clock.is_over()) {
                self.task.lose("the lease ran out without an answered heartbeat");
                return;
            }
            sent_at = clock::now();
            if self.send().await {
                if self.task.is_lease_lost() {
                    return;
                }
                delay = interval;
            } else {
                if delay == interval {
                    retry_delays = self.retry_delays();
                }
                delay = retry_delays.next().unwrap_or(interval);
            }
        }
    }

    /// The delays after lost heartbeats, never longer than the interval.
    fn retry_delays(&self) -> ExponentialBackoff {
        let interval = self.task.heartbeat_interval();
        let builder = ExponentialBuilder::new().without_max_times();
        builder.with_min_delay(FIRST_DELAY.min(interval)).with_max_delay(interval).build()
    }

    /// Waits for the next heartbeat, the end of the lease, or progress that is worth a heartbeat of its own.
    async fn wait_until_due(&self, sent_at: Duration, delay: Duration) {
        let due = (sent_at + delay).min(self.task.clock(|clock| clock.valid_until()));
        tokio::select! {
            () = tokio::time::sleep(clock::until(due)) => {}
            () = self.task.progressed() => {
                tokio::time::sleep(clock::until((sent_at + MIN_INTERVAL).min(due))).await;
            }
        }
    }

    /// Sends one heartbeat. Returns whether the coordinator answered.
    async fn send(&self) -> bool {
        let progress = self.task.take_progress();
        let Ok(request) = self.contract.heartbeat(progress.clone()) else { return false };
        let sent_at = clock::now();
        let left = clock::until(self.task.clock(|clock| clock.valid_until()));
        let timeout = HEARTBEAT_TIMEOUT.min(left.max(self.task.heartbeat_interval()));
        match self.contract.transport().try_once(&request, timeout).await {
            Ok(answer) => self.apply(&answer, sent_at),
            Err(fault) => {
                self.task.restore_progress(progress);
                tracing::debug!(why = fault.why, "a heartbeat was not answered");
                false
            }
        }
    }

    /// Applies an answer to the task. Returns whether it came from the coordinator.
    fn apply(&self, answer: &Answer, sent_at: Duration) -> bool {
        match self.contract.parse_heartbeat_answer(answer) {
            LeaseAnswer::Live { expires_at, cancel } => {
                self.task.clock(|clock| clock.extend(sent_at, expires_at));
                if let Some(cancel) = cancel {
                    if let Some(grace) = cancel.grace {
                        self.task.clock(|clock| clock.limit_to_grace(grace));
                    }
                    self.task.cancel(cancel.reason);
                }
            }
            LeaseAnswer::Over(why) => self.task.lose(why),
            LeaseAnswer::Foreign(error) => {
                tracing::debug!(%error, "another server answered a heartbeat");
                return false;
            }
        }
        true
    }
}
