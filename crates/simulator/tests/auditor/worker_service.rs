//! The same for what only the worker service asks: many steps in one go, and what a worker holds.

use auditor::history::{AskId, Entry};
use authority::command::Verdict;
use authority::{Answer, Outcome, Position};
use coordinator::Reply;

use super::must_be_found;

#[test]
fn a_verdict_in_a_batch_that_no_record_bears_out_is_found() {
    must_be_found(|history| {
        history.iter_mut().position(|entry| match entry {
            Entry::Answered { reply: Reply::Decided(answers), .. } => {
                let committed = |answer: &&mut Answer| {
                    matches!(answer, Answer::Reported(Verdict::Committed(Outcome::Completed)))
                };
                let answer = answers.iter_mut().find(committed);
                answer.map(|answer| *answer = Answer::Reported(Verdict::Cancelled)).is_some()
            }
            _ => false,
        })
    });
}

#[test]
fn a_batch_with_an_answer_too_few_is_found() {
    must_be_found(|history| {
        history.iter_mut().position(|entry| match entry {
            Entry::Answered { reply: Reply::Decided(answers), .. } => answers.pop().is_some(),
            _ => false,
        })
    });
}

#[test]
fn a_lease_shown_as_another_workers_is_found() {
    must_be_found(|history| {
        history.iter_mut().position(|entry| match entry {
            Entry::Answered { reply: Reply::Leases(held), .. } => {
                let first = held.first_mut();
                first.map(|held| held.lease.worker = "mallory".into()).is_some()
            }
            _ => false,
        })
    });
}

#[test]
fn a_lease_shown_after_it_was_over_is_found() {
    must_be_found(|history| {
        // The same answer is given to a request that is sent at the very end.
        let place = history.iter().rposition(
            |entry| matches!(entry, Entry::Answered { reply: Reply::Leases(held), .. } if !held.is_empty()),
        )?;
        let Entry::Answered { ask, reply, durable } = history[place].clone() else { return None };
        let asked =
            history[..place].iter().find(|entry| matches!(entry, Entry::Asked { ask: it, .. } if *it == ask));
        let Some(Entry::Asked { request, .. }) = asked.cloned() else { return None };
        let ask = AskId::MAX;
        history.push(Entry::Asked { ask, request });
        history.push(Entry::Answered { ask, reply, durable: durable.map(|_| Position(u64::MAX)) });
        Some(history.len() - 1)
    });
}
