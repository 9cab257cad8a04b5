//! The rows of the table. `table!` makes a test of each cell.

use serde_json::{Value, json};

use crate::cell::Cell;
use crate::expected_messages::Kind;
use crate::held::{Contract, Held, Say};
use crate::support::Served;

macro_rules! table {
    ($($row:ident),* $(,)?) => {
        $(
            mod $row {
                use super::*;

                #[tokio::test]
                async fn native() {
                    super::$row(Cell::new(Contract::Native).await).await;
                }

                #[tokio::test]
                async fn claim() {
                    super::$row(Cell::new(Contract::Claim).await).await;
                }

                #[tokio::test]
                async fn callback() {
                    super::$row(Cell::new(Contract::Callback).await).await;
                }

                #[tokio::test]
                async fn grpc() {
                    super::$row(Cell::new(Contract::Grpc).await).await;
                }

                #[tokio::test]
                async fn grpc_stream() {
                    super::$row(Cell::new(Contract::Stream).await).await;
                }
            }
        )*
    };
}

table![
    repeated,
    replayed,
    stale,
    expired,
    forged,
    of_another_worker,
    cross_tenant,
    cross_task,
    cross_attempt,
    conflicting,
    conflicting_at_once,
    reordered,
    of_an_unknown_task,
];

fn reports() -> [Say; 2] {
    [Say::Complete(json!("hostile")), Say::Fail(true)]
}

/// S0-26, S2-2, S2-28: the same report again, after a lost answer, also when its JSON is spelt another way.
async fn repeated(cell: Cell) {
    let held = cell.leased().await;
    cell.completes(&held, json!({"a": 1, "b": [2]})).await;
    for result in [json!({"a": 1, "b": [2]}), json!({"b": [2.0], "a": 1})] {
        cell.says_in_vain(&held, Say::Complete(result), Kind::Committed).await;
    }
    cell.ended(&held, "COMPLETED", json!({"a": 1, "b": [2]})).await;

    let failed = cell.leased().await;
    cell.says(&failed, Say::Fail(false), Kind::Committed).await;
    for _ in 0..3 {
        cell.says_in_vain(&failed, Say::Fail(false), Kind::Committed).await;
    }
    cell.ended(&failed, "FAILED", Value::Null).await;
}

/// What was said of an attempt that is over is said again while the next one is under way, and after its end: it is told
/// what it was told then, and changes nothing.
async fn replayed(cell: Cell) {
    let first = cell.leased().await;
    cell.says(&first, Say::Fail(true), Kind::Committed).await;
    let second = cell.leased_again(&first).await;
    for _ in 0..3 {
        cell.says_in_vain(&first, Say::Fail(true), Kind::Committed).await;
        cell.says_in_vain(&first, Say::Beat, Kind::BeatOfOld).await;
    }
    cell.completes(&second, json!("new")).await;
    cell.says_in_vain(&first, Say::Fail(true), Kind::Committed).await;
    cell.says_in_vain(&second, Say::Complete(json!("new")), Kind::Committed).await;
    cell.ended(&first, "COMPLETED", json!("new")).await;
}

/// S0-10, S1-32, S1-52: a worker whose lease is gone comes late. That is recorded once and otherwise ignored.
async fn stale(cell: Cell) {
    let old = cell.leased().await;
    old.release(&cell.served).await;
    cell.says(&old, Say::Complete(json!("old")), Kind::Lost).await;
    let new = cell.leased_again(&old).await;
    for _ in 0..3 {
        cell.says_in_vain(&old, Say::Complete(json!("old")), Kind::Lost).await;
        cell.says_in_vain(&old, Say::Beat, Kind::BeatOfOld).await;
    }
    cell.completes(&new, json!("new")).await;
    cell.says_in_vain(&old, Say::Complete(json!("old")), Kind::Lost).await;
    cell.ended(&old, "COMPLETED", json!("new")).await;
    assert_eq!(cell.count(&old, |event| event["type"] == "TaskCancelled").await, 1);
}

/// S0-20: a lease whose time is over is never revived, whether or not anybody has the task since.
async fn expired(cell: Cell) {
    let config = json!({"leaseMs": 100, "maxAttempts": 9});
    assert_eq!(cell.served.put("/v1/queues/q", config).await.status, 200);
    let slow = cell.leased().await;
    while cell.served.task(&slow.task).await["state"] == "LEASED" {
        tokio::task::yield_now().await;
    }
    cell.says(&slow, Say::Complete(json!("late")), Kind::Lost).await;
    cell.says_in_vain(&slow, Say::Beat, Kind::BeatOfEnded).await;
    assert_eq!(
        cell.served.put("/v1/queues/q", json!({"leaseMs": 60_000, "maxAttempts": 9})).await.status,
        200
    );
    let next = cell.contract.lease(&cell.served).await;
    cell.says_in_vain(&slow, Say::Complete(json!("late")), Kind::Lost).await;
    cell.completes(&next, json!("in time")).await;
    cell.ended(&slow, "COMPLETED", json!("in time")).await;
}

/// S2-28, S3-35, X1: a proof that was tampered with, made up, or far too long.
async fn forged(cell: Cell) {
    let held = cell.leased().await;
    let tampers: [fn(&str) -> String; 4] = [
        |proof| {
            format!("{}{}", &proof[..proof.len().max(1) - 1], if proof.ends_with('A') { "B" } else { "A" })
        },
        |proof| format!("{proof}A"),
        |_| "made-up".to_owned(),
        |_| "x".repeat(7_000),
    ];
    for tamper in tampers {
        let forged = held.forged(tamper);
        cell.says_in_vain(&forged, Say::Beat, Kind::ForeignBeat).await;
        for report in reports() {
            cell.says_in_vain(&forged, report, Kind::Foreign).await;
        }
    }
    cell.completes(&held, json!(1)).await;
    cell.ended(&held, "COMPLETED", json!(1)).await;
}

/// A worker with another's lease. In the callback contract the one that began is the one.
async fn of_another_worker(cell: Cell) {
    let held = cell.leased().await;
    if cell.contract == Contract::Callback {
        let body = json!({"attempt": 1, "workerId": held.worker});
        assert_eq!(cell.served.call_with(&held.task, &held.token, "started", body).await.status, 200);
    }
    let other = Held { worker: "v".to_owned(), ..held.clone() };
    for report in reports() {
        cell.says_in_vain(&other, report, Kind::OtherWorker).await;
    }
    cell.completes(&held, json!(1)).await;
    cell.ended(&held, "COMPLETED", json!(1)).await;
}

/// A11: the right proof, said in another tenant or workspace.
async fn cross_tenant(cell: Cell) {
    let held = cell.leased().await;
    for header in ["lessor-tenant", "lessor-workspace"] {
        let elsewhere = Held { scope: Some((header, "other")), ..held.clone() };
        cell.says_in_vain(&elsewhere, Say::Beat, Kind::ForeignBeat).await;
        for report in reports() {
            cell.says_in_vain(&elsewhere, report, Kind::Foreign).await;
        }
    }
    cell.completes(&held, json!(1)).await;
    cell.ended(&held, "COMPLETED", json!(1)).await;
}

/// S1-10: the proof of one task, and the name of another.
async fn cross_task(cell: Cell) {
    let (held, other) = (cell.leased().await, cell.leased().await);
    for task in [&other.task, "nope", "01900000-0000-7000-8000-000000000001"] {
        let mixed = Held { task: task.to_owned(), ..held.clone() };
        for report in reports() {
            cell.says_in_vain(&mixed, report, Kind::OtherTask).await;
        }
    }
    for (held, result) in [(&held, json!(1)), (&other, json!(2))] {
        cell.completes(held, result.clone()).await;
        cell.ended(held, "COMPLETED", result).await;
    }
}

/// S1-31, S2-28: the proof of an attempt that is over does not speak for the one that is under way.
async fn cross_attempt(cell: Cell) {
    let old = cell.leased().await;
    old.release(&cell.served).await;
    let new = cell.leased_again(&old).await;
    let mixed = Held { attempt: new.attempt, ..old.clone() };
    cell.says(&mixed, Say::Complete(json!("old")), Kind::OtherAttempt).await;
    for _ in 0..2 {
        cell.says_in_vain(&mixed, Say::Complete(json!("old")), Kind::OtherAttempt).await;
    }
    if cell.contract != Contract::Native {
        // The other way round, and an attempt that never was.
        for attempt in [old.attempt, 7] {
            let mixed = Held { attempt, ..new.clone() };
            for report in reports() {
                cell.says_in_vain(&mixed, report, Kind::OtherAttempt).await;
            }
        }
    }
    cell.completes(&new, json!("new")).await;
    cell.ended(&new, "COMPLETED", json!("new")).await;
}

/// S0-14: the first story stands, whichever it was.
async fn conflicting(cell: Cell) {
    let held = cell.leased().await;
    cell.completes(&held, json!(1)).await;
    for story in [Say::Complete(json!(2)), Say::Fail(false), Say::Fail(true)] {
        cell.says_in_vain(&held, story, Kind::ConflictingReport).await;
    }
    cell.says_in_vain(&held, Say::Complete(json!(1)), Kind::Committed).await;
    cell.ended(&held, "COMPLETED", json!(1)).await;

    let failed = cell.leased().await;
    cell.says(&failed, Say::Fail(false), Kind::Committed).await;
    cell.says_in_vain(&failed, Say::Complete(json!(1)), Kind::ConflictingReport).await;
    cell.ended(&failed, "FAILED", Value::Null).await;
}

/// However many tell different stories of one attempt at the same time, one is accepted.
async fn conflicting_at_once(cell: Cell) {
    let held = cell.leased().await;
    let cell = std::sync::Arc::new(cell);
    let mut stories = tokio::task::JoinSet::new();
    for n in 0..20 {
        let (cell, held) = (cell.clone(), held.clone());
        stories
            .spawn(async move { (n, cell.contract.say(&cell.served, &held, Say::Complete(json!(n))).await) });
    }
    let told = stories.join_all().await;
    let mut accepted: Vec<_> = told.iter().filter(|(_, told)| told == "COMMITTED").collect();
    let (winner, _) = accepted.pop().expect("one is accepted");
    assert!(accepted.is_empty(), "{told:?}");
    let refused = crate::expected_messages::expected_message(Kind::ConflictingReport, cell.contract);
    assert_eq!(told.iter().filter(|(_, told)| told == refused).count(), 19, "{told:?}");
    cell.ended(&held, "COMPLETED", json!(winner)).await;
}

/// What comes in the wrong order settles on the report.
async fn reordered(cell: Cell) {
    let held = cell.leased().await;
    cell.completes(&held, json!(1)).await;
    cell.says_in_vain(&held, Say::Beat, Kind::BeatOfEnded).await;
    cell.says_in_vain(&held, Say::Fail(true), Kind::ConflictingReport).await;
    if cell.contract == Contract::Callback {
        let body = json!({"attempt": 1, "workerId": held.worker});
        let told = cell.served.call_with(&held.task, &held.token, "started", body).await;
        told.is_terminal("SUCCEEDED");
    }
    cell.says_in_vain(&held, Say::Complete(json!(1)), Kind::Committed).await;
    cell.ended(&held, "COMPLETED", json!(1)).await;
}

/// A genuine proof, and a server that never had the task: it has the same key, and another ledger.
async fn of_an_unknown_task(cell: Cell) {
    let held = cell.leased().await;
    let other = Served::start().await;
    // So that it has signed a token.
    other.push("other").await;
    let elsewhere = Cell { served: other, contract: cell.contract };
    for report in reports() {
        elsewhere.says_in_vain(&held, report, Kind::Unknown).await;
    }
    cell.completes(&held, json!(1)).await;
    cell.ended(&held, "COMPLETED", json!(1)).await;
}
