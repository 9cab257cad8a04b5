//! Asking for leases, so that an answer that gets lost loses no lease.
//!
//! Each poll has a request id. A poll whose answer got lost is asked again under the same id, which gives the same
//! leases again while they live. The id is only given up once an answer has come and nothing can be hidden behind it.

use std::time::Duration;

use wire::LeaseTasks;

use crate::{Error, clock, key};

/// After a fault an earlier poll may be granted leases that its lost connection cannot tell. The id is kept that long
/// to find them; what was granted before that has run out or is close to it.
const KEEP_ID: Duration = Duration::from_secs(120);

/// The polls of one worker, one after the other: which request is to be sent, and what it may bring.
#[derive(Debug)]
pub struct Poll {
    template: LeaseTasks,
    request: Option<LeaseTasks>,
    had_fault: bool,
    asked_at: Duration,
}

impl Poll {
    pub fn new(template: LeaseTasks) -> Poll {
        Poll { template, request: None, had_fault: false, asked_at: Duration::ZERO }
    }

    /// The next request. After a fault it is the same again, whatever there is room for by then.
    pub fn next(&mut self, max_tasks: usize) -> Result<LeaseTasks, Error> {
        let request = match self.request.take() {
            Some(request) => request,
            None => {
                self.had_fault = false;
                let (max_tasks, request_id) = (Some(max_tasks as u64), Some(key::random()?));
                LeaseTasks { max_tasks, request_id, ..self.template.clone() }
            }
        };
        if !self.had_fault {
            self.asked_at = clock::now();
        }
        self.request = Some(request.clone());
        Ok(request)
    }

    pub fn faulted(&mut self) {
        self.had_fault = true;
    }

    /// An answer has come; says when the worker first asked for what it brought.
    pub fn answered(&mut self, is_empty: bool) -> Duration {
        if !is_empty || !self.had_fault || clock::now() > self.asked_at + KEEP_ID {
            self.request = None;
        }
        self.asked_at
    }

    /// The question that is left when polls end: what the last one was granted although nobody heard it.
    pub fn leftover(&mut self) -> Option<LeaseTasks> {
        let request = self.request.take()?;
        Some(LeaseTasks { wait_ms: Some(0), ..request })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_id_is_kept_until_nothing_can_be_hidden_behind_it() {
        let mut poll = Poll::new(LeaseTasks::default());
        let first = poll.next(3).unwrap();
        poll.faulted();
        assert_eq!(poll.next(9).unwrap(), first);
        poll.answered(true);
        assert_eq!(poll.next(9).unwrap(), first, "the lost answer may still be there to be found");
        poll.answered(false);
        let second = poll.next(9).unwrap();
        assert_ne!(second.request_id, first.request_id);
        poll.answered(true);
        assert_ne!(poll.next(9).unwrap().request_id, second.request_id);
    }

    #[test]
    fn a_lease_is_counted_from_the_first_time_it_was_asked_for() {
        let mut poll = Poll::new(LeaseTasks::default());
        poll.next(1).unwrap();
        let asked_at = poll.asked_at;
        poll.faulted();
        poll.next(1).unwrap();
        assert_eq!(poll.answered(false), asked_at);
        poll.next(1).unwrap();
        assert!(poll.answered(false) > asked_at);
    }
}
