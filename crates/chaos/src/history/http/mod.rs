//! The calls of clients as exchanges: submits, reads, cancels, configurations.
//!
//! A call that the edge refuses, because it cannot be read or makes no sense, never became a request; it is left out.

mod replies;
mod requests;
mod said;

use super::Exchange;
use super::names::{Names, task_id};
use crate::api::{Answer, Call};
use crate::contract::Contract;
use said::Said;

/// Translates the calls of clients, in the order in which they were sent. What no contract allows is told beside it.
pub fn exchanges(names: &mut Names, calls: &[&Call]) -> (Vec<Exchange>, Vec<String>) {
    let calls: Vec<(&Call, Said)> =
        calls.iter().filter_map(|call| Said::read(call).map(|said| (*call, said))).collect();
    for (call, said) in &calls {
        learn_outcome(names, call, said);
    }
    let (mut exchanges, mut surprises) = (Vec::new(), Vec::new());
    for (call, said) in &calls {
        for request in requests::requests(names, call, said) {
            let reply = match &call.answer {
                Answer::Lost => None,
                Answer::Told { status, body } => {
                    let reply = replies::reply(names, said, &request, *status, body);
                    if reply.is_none() && (200..300).contains(status) {
                        let (method, path) = (&call.method, &call.path);
                        surprises.push(format!("{method} {path} was answered {status} with {body}"));
                    }
                    reply
                }
            };
            let (contract, sent_at, ended_at) = (Contract::Native, call.sent_at, call.ended_at);
            exchanges.push(Exchange { contract, sent_at, ended_at, request, reply });
        }
    }
    (exchanges, surprises)
}

/// What was told is explained first; only what is left over may belong to a call whose answer was lost.
fn learn_outcome(names: &mut Names, call: &Call, said: &Said) {
    match said {
        Said::Submit(_) if call.answer.status() == Some(201) => {
            let id = call.answer.body()["taskId"].as_str().and_then(task_id);
            id.into_iter().for_each(|id| names.learnt.claim_told(id));
        }
        Said::Batch(_) => {
            let told = call.answer.body()["tasks"].as_array();
            let ids = told.into_iter().flatten().filter_map(|item| item["taskId"].as_str());
            ids.filter_map(task_id).for_each(|id| names.learnt.claim_told(id));
        }
        _ => {}
    }
}
