//! Builds polls for leases so that a lost answer loses no lease.
//!
//! Each poll has a request id. A poll without an answer is repeated under the same id, and the coordinator returns the
//! same leases while they are valid. A new id is used only after an answer.

use std::time::Duration;

use wire::LeaseTasks;

use crate::{Error, clock, ids};

/// The polls of one worker, one after the other.
#[derive(Debug)]
pub(crate) struct Poll {
    template: LeaseTasks,
    request: Option<LeaseTasks>,
    asked_at: Duration,
}

impl Poll {
    pub(crate) fn new(template: LeaseTasks) -> Poll {
        Poll { template, request: None, asked_at: Duration::ZERO }
    }

    /// The next request: the last one again until it is answered, even if more slots are free by then.
    pub(crate) fn next(&mut self, max_tasks: usize) -> Result<LeaseTasks, Error> {
        if let Some(request) = &self.request {
            return Ok(request.clone());
        }
        let (max_tasks, request_id) = (Some(max_tasks as u64), Some(ids::random_id()?));
        let request = LeaseTasks { max_tasks, request_id, ..self.template.clone() };
        self.asked_at = clock::now();
        self.request = Some(request.clone());
        Ok(request)
    }

    /// Marks the request as answered. Returns when it was first sent.
    pub(crate) fn answered(&mut self) -> Duration {
        self.request = None;
        self.asked_at
    }

    /// The last request if it was not answered, to be sent once more without a wait: it may have been granted leases.
    pub(crate) fn take_unanswered(&mut self) -> Option<LeaseTasks> {
        let request = self.request.take()?;
        Some(LeaseTasks { wait_ms: Some(0), ..request })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_the_same_until_it_is_answered() {
        let mut poll = Poll::new(LeaseTasks::default());
        let first = poll.next(3).unwrap();
        assert_eq!(poll.next(9).unwrap(), first);
        poll.answered();
        let second = poll.next(9).unwrap();
        assert_eq!(second.max_tasks, Some(9));
        assert_ne!(second.request_id, first.request_id);
    }

    #[test]
    fn a_lease_is_counted_from_the_first_time_it_was_asked_for() {
        let mut poll = Poll::new(LeaseTasks::default());
        poll.next(1).unwrap();
        let asked_at = poll.asked_at;
        poll.next(1).unwrap();
        assert_eq!(poll.answered(), asked_at);
        poll.next(1).unwrap();
        assert!(poll.answered() > asked_at);
    }
}
