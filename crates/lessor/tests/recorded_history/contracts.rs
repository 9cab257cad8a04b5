//! The same for the answers to workers of each contract: a wrong answer in any contract is found.

use std::sync::LazyLock;

use authority::command::Verdict;
use authority::{Answer, Command, Event, Outcome, Position};
use chaos::rpc::{self, Rpc};
use chaos::{Answer as HttpAnswer, Call, Contract, Exchange, Plan, RawRecording, Recording};
use serde_json::{Value, json};
use wire::grpc;

static RAW_RECORDING: LazyLock<RawRecording> = LazyLock::new(|| {
    let plan = Plan::from_env(env!("CARGO_BIN_EXE_lessor")).expect("the plan is readable");
    chaos::record_contracts(&plan).expect("the run goes well")
});

/// Changes a copy of the recording and returns the violation that is found.
fn refused(contract: Contract, lie: impl FnOnce(&mut RawRecording)) -> String {
    let mut raw_recording = RAW_RECORDING.clone();
    lie(&mut raw_recording);
    match raw_recording.judge() {
        Err(violation) => violation.message,
        Ok(_) => panic!("the lie passed: {contract:?}"),
    }
}

/// The HTTP calls of a contract with this verb that got this status.
fn calls<'a>(
    raw_recording: &'a mut RawRecording,
    contract: Contract,
    verb: &'static str,
    status: u16,
) -> impl Iterator<Item = &'a mut Call> {
    let prefix = match contract {
        Contract::Native => "/v1/leases",
        Contract::Claim => "/internal/worker/",
        _ => "/v1/tasks/",
    };
    raw_recording.calls.iter_mut().filter(move |call| {
        let is_of_it = call.path.starts_with(prefix) && call.path.ends_with(verb);
        is_of_it && call.answer.status() == Some(status)
    })
}

fn rpcs(raw_recording: &mut RawRecording, contract: Contract) -> impl Iterator<Item = &mut Rpc> {
    raw_recording.rpcs.iter_mut().filter(move |rpc| rpc.contract == contract)
}

/// Changes the answer to the first CANCELLED completion to COMMITTED, as the contract writes it.
fn commit_a_cancelled(raw_recording: &mut RawRecording, contract: Contract) {
    let accepted = match contract {
        Contract::Native => ("complete", json!({"verdict": "COMMITTED", "state": "COMPLETED"})),
        Contract::Claim => ("complete", json!({"ok": true, "ack": true})),
        Contract::Callback => {
            let time = "2026-01-01T00:00:00Z";
            ("completed", json!({"acknowledged": true, "finalState": "SUCCEEDED", "serverTime": time}))
        }
        Contract::Grpc | Contract::Stream => {
            let answer =
                rpcs(raw_recording, contract).find_map(|rpc| match (&rpc.request, &mut rpc.answer) {
                    (rpc::RpcRequest::Report(report), rpc::Answer::Reported(answer))
                        if report.status() == grpc::TaskStatus::Completed
                            && answer.verdict() == grpc::Verdict::Cancelled =>
                    {
                        Some(answer)
                    }
                    _ => None,
                });
            let answer = answer.expect("a completion was cancelled");
            answer.set_verdict(grpc::Verdict::Committed);
            answer.set_task_state(grpc::TaskState::Completed);
            return;
        }
    };
    let (verb, body) = accepted;
    let is_cancelled = |body: &Value| {
        let by_name = ["attempt_mismatch", "task_already_terminal"].map(|name| body["error"] == *name);
        body["verdict"] == "CANCELLED" || by_name.contains(&true)
    };
    let mut cancelled =
        calls(raw_recording, contract, verb, 409).filter(|call| is_cancelled(call.answer.body()));
    let call = cancelled.find(|call| contract != Contract::Callback || call.body["outcome"] == "SUCCEEDED");
    call.expect("a completion was cancelled").answer = HttpAnswer::Response { status: 200, body };
}

/// Gives the first lease a fencing token that no lease ever had.
fn change_a_fencing_token(raw_recording: &mut RawRecording, contract: Contract) {
    let none = raw_recording.records.len() as u64 + 1_000;
    match contract {
        Contract::Native => {
            let mut polls = calls(raw_recording, contract, "/leases", 200).map(|call| &mut call.answer);
            let lease = polls.find_map(|answer| match answer {
                HttpAnswer::Response { body, .. } => body["leases"].get_mut(0),
                HttpAnswer::Lost => None,
            });
            lease.expect("a task was leased")["fencingToken"] = json!(none);
        }
        Contract::Claim => {
            let mut claims = calls(raw_recording, contract, "claim", 200).map(|call| &mut call.answer);
            let job = claims.find_map(|answer| match answer {
                HttpAnswer::Response { body, .. } => body.get_mut("fencing_token"),
                HttpAnswer::Lost => None,
            });
            *job.expect("a job was claimed") = json!(none);
        }
        Contract::Grpc | Contract::Stream => {
            let task = rpcs(raw_recording, contract).find_map(|rpc| match &mut rpc.answer {
                rpc::Answer::Leased(tasks) => tasks.first_mut(),
                _ => None,
            });
            task.expect("a task was leased").fencing_token = none;
        }
        Contract::Callback => {
            let mut taken =
                raw_recording.dispatches.iter_mut().filter(|dispatch| dispatch.answer.is_success());
            taken.next().expect("a task was pushed").envelope.fencing_token = none;
        }
    }
}

/// The lease of a completion that was answered as accepted.
fn accepted(exchange: &Exchange) -> Option<Position> {
    match (exchange.request.command()?, exchange.reply.as_ref()?.answer()?) {
        (Command::ReportCompletion(report), Answer::Reported(Verdict::Committed(Outcome::Completed))) => {
            Some(report.lease.fencing_token)
        }
        _ => None,
    }
}

#[test]
fn the_truth_of_all_contracts_passes() {
    if let Err(violation) = RAW_RECORDING.judge() {
        panic!("{violation:?}");
    }
}

#[test]
fn a_cancelled_report_told_as_committed_is_refused_in_every_contract() {
    for contract in Contract::ALL {
        let message = refused(contract, |it| commit_a_cancelled(it, contract));
        assert!(message.contains("what is recorded is"), "{contract:?}: {message}");
    }
}

#[test]
fn another_fencing_token_is_refused_in_every_contract() {
    for contract in Contract::ALL {
        let message = refused(contract, |it| change_a_fencing_token(it, contract));
        // The requests about the real lease have lost their proof at the same time; any of these is refused.
        let reasons = [
            "no durable record grants",
            "its holder reported no such",
            "its holder sent no heartbeat",
            "its holder did not give it back",
            "nobody reported anything",
            "nobody said that it begins",
            "the lease was never granted",
            "one lease id stands for two leases",
        ];
        assert!(reasons.iter().any(|why| message.contains(why)), "{contract:?}: {message}");
    }
}

#[test]
fn an_accepted_report_that_is_lost_is_missed_in_every_contract() {
    let (recording, unexpected_answers) = Recording::of(&RAW_RECORDING);
    assert_eq!(unexpected_answers, [""; 0]);
    for contract in Contract::ALL {
        let mut recording = recording.clone();
        let exchanges = recording.exchanges.iter().enumerate().filter(|(_, it)| it.contract == contract);
        let mut accepted = exchanges.filter_map(|(ask, exchange)| Some((ask, accepted(exchange)?)));
        let (ask, lease) = accepted.next_back().expect("a completion was accepted");
        let is_its_end =
            |event: &Event| matches!(event, Event::TaskCompleted(end) if end.fencing_token == lease);
        let place = recording.records.iter().position(|record| is_its_end(&record.event));
        recording.records.truncate(place.expect("it was recorded"));
        recording.cuts.clear();
        // All other answers are forgotten, so that none of them can miss its record instead.
        let others = recording.exchanges.iter_mut().enumerate().filter(|(other, _)| *other != ask);
        others.for_each(|(_, exchange)| exchange.reply = None);
        let violation = recording.judge().err().expect("the accepted report has lost its record");
        assert!(violation.message.contains("what is recorded is None"), "{contract:?}: {violation:?}");
    }
}
