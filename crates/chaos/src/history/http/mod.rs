//! The calls of the HTTP contract as exchanges.
//!
//! A call that the edge refuses, because it cannot be read or makes no sense, never became a request; it is left out.
//! A call with a lease id that was not told to this worker for this task is a request about a lease that was never
//! granted, so that nothing can follow from it.

mod replies;
mod requests;
mod said;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use auditor::history::Recorded;
use authority::{Digest, LeaseRef, Position, Scope, TaskId, Time};
use jiff::Timestamp;

use super::learnt::Story;
use super::{Exchange, Learnt};
use crate::api::{Answer, Call};
use said::Said;

/// Translates all calls of a run. What no contract allows is told beside it.
pub fn exchanges(calls: &[Call], records: &[Recorded]) -> (Vec<Exchange>, Vec<String>) {
    let mut surprises = Vec::new();
    let mut calls: Vec<(&Call, Said)> =
        calls.iter().filter_map(|call| Said::read(call).map(|said| (call, said))).collect();
    calls.sort_by_key(|(call, _)| call.sent_at);
    let mut names = Names::new(records);
    for (call, said) in &calls {
        surprises.extend(names.learn_leases(call, said).err());
    }
    for (call, said) in &calls {
        names.learn_outcome(call, said);
    }
    let mut exchanges = Vec::new();
    for (call, said) in &calls {
        for request in requests::requests(&mut names, call, said) {
            let reply = match &call.answer {
                Answer::Lost => None,
                Answer::Told { status, body } => {
                    let reply = replies::reply(&names, said, &request, *status, body);
                    if reply.is_none() && (200..300).contains(status) {
                        let (method, path) = (call.method, &call.path);
                        surprises.push(format!("{method} {path} was answered {status} with {body}"));
                    }
                    reply
                }
            };
            exchanges.push(Exchange { sent_at: call.sent_at, ended_at: call.ended_at, request, reply });
        }
    }
    (exchanges, surprises)
}

/// What the names of the contract stand for.
struct Names {
    scope: Scope,
    learnt: Learnt,
    /// To whom each lease id was told, and for what.
    leases: HashMap<String, LeaseRef>,
    lease_ids: HashMap<Position, String>,
    /// Request ids of workers.
    requests: HashMap<(String, String), Digest>,
    /// Reports that were told that the attempt had said something else.
    contradicted: HashSet<(Position, Story)>,
}

impl Names {
    fn new(records: &[Recorded]) -> Names {
        Names {
            scope: Scope { tenant: "default".into(), workspace: "default".into() },
            learnt: Learnt::from(records),
            leases: HashMap::new(),
            lease_ids: HashMap::new(),
            requests: HashMap::new(),
            contradicted: HashSet::new(),
        }
    }

    fn learn_leases(&mut self, call: &Call, said: &Said) -> Result<(), String> {
        let Said::Poll(poll) = said else { return Ok(()) };
        for lease in replies::leases(&call.answer) {
            let granted = LeaseRef {
                scope: self.scope.clone(),
                worker: poll.worker_id.as_str().into(),
                task: task_id(&lease.task_id).unwrap_or(TaskId(0)),
                attempt: lease.attempt,
                lease: Position(lease.fencing_token),
            };
            let before = self.leases.insert(lease.lease_id.clone(), granted.clone());
            if let Some(before) = before.filter(|before| *before != granted) {
                return Err(format!("one lease id stands for two leases: {before:?} and {granted:?}"));
            }
            let before = self.lease_ids.insert(granted.lease, lease.lease_id.clone());
            if before.is_some_and(|before| before != lease.lease_id) {
                return Err(format!("one lease has two lease ids: {granted:?}"));
            }
            if let (Some(id), Some(digest)) = (&poll.request_id, self.learnt.request(granted.lease)) {
                self.requests.entry((poll.worker_id.clone(), id.clone())).or_insert(digest);
            }
        }
        Ok(())
    }

    /// What was told is explained first; only what is left over may belong to a call whose answer was lost.
    fn learn_outcome(&mut self, call: &Call, said: &Said) {
        match said {
            Said::Submit(_) if call.answer.status() == Some(201) => {
                let id = call.answer.body()["taskId"].as_str().and_then(task_id);
                id.into_iter().for_each(|id| self.learnt.claim_told(id));
            }
            Said::Batch(_) => {
                let told = call.answer.body()["tasks"].as_array();
                let ids = told.into_iter().flatten().filter_map(|item| item["taskId"].as_str());
                ids.filter_map(task_id).for_each(|id| self.learnt.claim_told(id));
            }
            Said::Complete(..) | Said::Fail(..) => {
                let Some((lease, story)) = requests::story(self, said) else { return };
                let body = call.answer.body();
                if body["verdict"] == "CANCELLED" {
                    self.learnt.claim_discarded(lease.lease, &story);
                } else if body["code"] == "another_story" {
                    self.contradicted.insert((lease.lease, story));
                }
            }
            _ => {}
        }
    }

    /// The lease that a worker speaks of, if it was granted to it for this task.
    fn lease(&self, lease_id: &str, worker_id: &str, task: Option<&str>) -> LeaseRef {
        let told = self.leases.get(lease_id).filter(|lease| {
            *lease.worker == *worker_id && task.is_none_or(|task| task_id(task) == Some(lease.task))
        });
        told.cloned().unwrap_or_else(|| LeaseRef {
            scope: self.scope.clone(),
            worker: worker_id.into(),
            task: task.and_then(task_id).unwrap_or(TaskId(0)),
            attempt: 0,
            lease: Position::ZERO,
        })
    }
}

fn task_id(text: &str) -> Option<TaskId> {
    let is_written_so = text.len() == 36 && text.matches('-').count() == 4;
    u128::from_str_radix(&text.replace('-', ""), 16).ok().filter(|_| is_written_so).map(TaskId)
}

fn time(at: Timestamp) -> Time {
    Time(u64::try_from(at.as_millisecond()).unwrap_or_default())
}

fn text(text: &Option<String>) -> Option<Arc<str>> {
    text.as_deref().map(Into::into)
}
