//! The same for what workers of each contract were told: a lie in the words of a contract is found out.

use std::sync::LazyLock;

use authority::command::Verdict;
use authority::{Answer, Command, Event, Outcome, Position};
use chaos::rpc::{self, Rpc};
use chaos::{Answer as Told, Call, Contract, Exchange, Plan, Recording, Testimony};
use serde_json::{Value, json};
use wire::grpc;

static TESTIMONY: LazyLock<Testimony> = LazyLock::new(|| {
    let plan = Plan::from_env(env!("CARGO_BIN_EXE_lessor")).expect("the plan is readable");
    chaos::record_contracts(&plan).expect("the run goes well")
});

/// Changes a copy of what was said and gives what is found in it.
fn refused(contract: Contract, lie: impl FnOnce(&mut Testimony)) -> String {
    let mut testimony = TESTIMONY.clone();
    lie(&mut testimony);
    match testimony.judge() {
        Err(violation) => violation.message,
        Ok(_) => panic!("the lie passed: {contract:?}"),
    }
}

/// The HTTP calls of a contract with this verb that were told this status.
fn calls<'a>(
    testimony: &'a mut Testimony,
    contract: Contract,
    verb: &'static str,
    status: u16,
) -> impl Iterator<Item = &'a mut Call> {
    let prefix = match contract {
        Contract::Native => "/v1/leases",
        Contract::Claim => "/internal/worker/",
        _ => "/v1/tasks/",
    };
    testimony.calls.iter_mut().filter(move |call| {
        let is_of_it = call.path.starts_with(prefix) && call.path.ends_with(verb);
        is_of_it && call.answer.status() == Some(status)
    })
}

fn rpcs(testimony: &mut Testimony, contract: Contract) -> impl Iterator<Item = &mut Rpc> {
    testimony.rpcs.iter_mut().filter(move |rpc| rpc.contract == contract)
}

/// Tells the first completion that was CANCELLED, in the contract's words, that it was COMMITTED.
fn commit_a_cancelled(testimony: &mut Testimony, contract: Contract) {
    let accepted = match contract {
        Contract::Native => ("complete", json!({"verdict": "COMMITTED", "state": "COMPLETED"})),
        Contract::Claim => ("complete", json!({"ok": true, "ack": true})),
        Contract::Callback => {
            let time = "2026-01-01T00:00:00Z";
            ("completed", json!({"acknowledged": true, "finalState": "SUCCEEDED", "serverTime": time}))
        }
        Contract::Grpc | Contract::Stream => {
            let answer = rpcs(testimony, contract).find_map(|rpc| match (&rpc.said, &mut rpc.answer) {
                (rpc::Said::Report(report), rpc::Answer::Reported(answer))
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
    let mut cancelled = calls(testimony, contract, verb, 409).filter(|call| is_cancelled(call.answer.body()));
    let call = cancelled.find(|call| contract != Contract::Callback || call.body["outcome"] == "SUCCEEDED");
    call.expect("a completion was cancelled").answer = Told::Told { status: 200, body };
}

/// Tells the first lease, in the contract's words, with a fencing token that no lease ever had.
fn change_a_fencing_token(testimony: &mut Testimony, contract: Contract) {
    let none = testimony.records.len() as u64 + 1_000;
    match contract {
        Contract::Native => {
            let mut polls = calls(testimony, contract, "/leases", 200).map(|call| &mut call.answer);
            let lease = polls.find_map(|answer| match answer {
                Told::Told { body, .. } => body["leases"].get_mut(0),
                Told::Lost => None,
            });
            lease.expect("a task was leased")["fencingToken"] = json!(none);
        }
        Contract::Claim => {
            let mut claims = calls(testimony, contract, "claim", 200).map(|call| &mut call.answer);
            let job = claims.find_map(|answer| match answer {
                Told::Told { body, .. } => body.get_mut("fencing_token"),
                Told::Lost => None,
            });
            *job.expect("a job was claimed") = json!(none);
        }
        Contract::Grpc | Contract::Stream => {
            let task = rpcs(testimony, contract).find_map(|rpc| match &mut rpc.answer {
                rpc::Answer::Leased(tasks) => tasks.first_mut(),
                _ => None,
            });
            task.expect("a task was leased").fencing_token = none;
        }
        Contract::Callback => {
            let mut taken = testimony.dispatches.iter_mut().filter(|dispatch| dispatch.answer.is_success());
            taken.next().expect("a task was pushed").envelope.fencing_token = none;
        }
    }
}

/// The lease of a completion that was told to be accepted.
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
    if let Err(violation) = TESTIMONY.judge() {
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
        // What was said about the real lease has lost its proof at the same time; any of these is refused.
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
    let (recording, surprises) = Recording::of(&TESTIMONY);
    assert_eq!(surprises, [""; 0]);
    for contract in Contract::ALL {
        let mut recording = recording.clone();
        let told = recording.exchanges.iter().enumerate().filter(|(_, it)| it.contract == contract);
        let mut accepted = told.filter_map(|(ask, exchange)| Some((ask, accepted(exchange)?)));
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
