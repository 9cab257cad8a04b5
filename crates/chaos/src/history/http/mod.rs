//! Converts the calls of clients to exchanges: submits, reads, cancels, configurations.
//!
//! A call that the edge refuses, because it cannot be read or makes no sense, never became a request; it is left out.

mod client_request;
mod replies;
mod requests;

use super::Exchange;
use super::names::{Names, task_id};
use crate::api::{Answer, Call};
use crate::contract::Contract;
use client_request::ClientRequest;

/// Translates the calls of clients, in the order in which they were sent. Also returns the
/// answers that no contract allows.
pub(super) fn exchanges(names: &mut Names, calls: &[&Call]) -> (Vec<Exchange>, Vec<String>) {
    let calls: Vec<(&Call, ClientRequest)> = calls
        .iter()
        .filter_map(|call| ClientRequest::parse(call).map(|client_request| (*call, client_request)))
        .collect();
    for (call, client_request) in &calls {
        record_outcome(names, call, client_request);
    }
    let (mut exchanges, mut unexpected_answers) = (Vec::new(), Vec::new());
    for (call, client_request) in &calls {
        for request in requests::requests(names, call, client_request) {
            let reply = match &call.answer {
                Answer::Lost => None,
                Answer::Response { status, body } => {
                    let reply = replies::reply(names, client_request, &request, *status, body);
                    if reply.is_none() && (200..300).contains(status) {
                        let (method, path) = (&call.method, &call.path);
                        unexpected_answers.push(format!("{method} {path} was answered {status} with {body}"));
                    }
                    reply
                }
            };
            let (contract, sent_at, ended_at) = (Contract::Native, call.sent_at, call.ended_at);
            exchanges.push(Exchange { contract, sent_at, ended_at, request, reply });
        }
    }
    (exchanges, unexpected_answers)
}

/// Claims the tasks of answered calls first. Only the other tasks may belong to a call whose answer was lost.
fn record_outcome(names: &mut Names, call: &Call, client_request: &ClientRequest) {
    match client_request {
        ClientRequest::Submit(_) if call.answer.status() == Some(201) => {
            let id = call.answer.body()["taskId"].as_str().and_then(task_id);
            id.into_iter().for_each(|id| names.ledger.claim_confirmed(id));
        }
        ClientRequest::Batch(_) => {
            let items = call.answer.body()["tasks"].as_array();
            let ids = items.into_iter().flatten().filter_map(|item| item["taskId"].as_str());
            ids.filter_map(task_id).for_each(|id| names.ledger.claim_confirmed(id));
        }
        _ => {}
    }
}
