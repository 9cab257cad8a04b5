//! Counts the records of a batch by kind while they are decided. The counts are published once the batch is durable, so
//! that no metric claims what a crash could take back.

use authority::event::{ExpiryCause, NextStep};
use authority::{DeadReason, Event, Phase, Task, Time};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BatchStats {
    pub records: u64,
    pub submitted: u64,
    pub granted: u64,
    pub extended: u64,
    pub released: u64,
    pub expired_by_silence: u64,
    pub expired_by_timeout: u64,
    pub expired_by_worker_loss: u64,
    pub completed: u64,
    pub failed: u64,
    /// Attempts that failed while the task waits for its next one.
    pub retried: u64,
    /// In the order of [`DeadReason::ALL`].
    pub dead: [u64; DeadReason::ALL.len()],
    /// How long tasks waited that were granted, where it is known.
    pub waited_ms: Vec<u64>,
    /// How long attempts took that were reported on.
    pub ran_ms: Vec<u64>,
}

impl BatchStats {
    /// Counts an event of a task as it was before it.
    pub fn note(&mut self, before: Option<&Task>, event: &Event, now: Time) {
        self.records += 1;
        match event {
            Event::TaskCreated(_) => self.submitted += 1,
            Event::LeaseGranted(_) => {
                self.granted += 1;
                self.waited_ms.extend(before.and_then(waiting_since).map(|since| now.since_ms(since)));
            }
            Event::LeaseExtended(_) => self.extended += 1,
            Event::LeaseReleased(_) => self.released += 1,
            Event::LeaseExpired(event) => match event.cause {
                ExpiryCause::Silence => self.expired_by_silence += 1,
                ExpiryCause::Timeout => self.expired_by_timeout += 1,
                ExpiryCause::WorkerLost => self.expired_by_worker_loss += 1,
            },
            Event::TaskCompleted(_) => {
                self.completed += 1;
                self.note_run(before, now);
            }
            Event::TaskFailed(event) => {
                match event.next {
                    NextStep::RetryAt(_) => self.retried += 1,
                    NextStep::Final => self.failed += 1,
                }
                self.note_run(before, now);
            }
            Event::TaskDead(event) => {
                self.dead[event.reason as usize] += 1;
                if event.report.is_some() {
                    self.note_run(before, now);
                }
            }
            _ => {}
        }
    }

    fn note_run(&mut self, before: Option<&Task>, now: Time) {
        let granted_at = before.and_then(|task| task.lease()).map(|lease| lease.granted_at);
        self.ran_ms.extend(granted_at.map(|granted_at| now.since_ms(granted_at)));
    }
}

/// When the task could first have been leased: when it came, or when its delay or backoff ended. After a release or an
/// expiry the state does not say since when it waits, and nothing is made up.
fn waiting_since(task: &Task) -> Option<Time> {
    match task.phase {
        Phase::Waiting { not_before: Some(time), .. } => Some(time.max(task.created_at)),
        Phase::Waiting { not_before: None, .. } => (task.attempt == 0).then_some(task.created_at),
        _ => None,
    }
}
