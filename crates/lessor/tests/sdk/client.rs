//! The client of the Rust SDK against a real server.

use std::time::Duration;

use jiff::Timestamp;
use lessor_sdk::{Backoff, Client, Error, Submit, Task, TaskState};
use serde_json::{Value, json};
use tokio::net::TcpSocket;

use crate::fixture::{Fixture, QUEUE, Working};
use crate::support::fake::{Fake, Reply};
use crate::support::proxy::{Action, PATIENCE, Request};

#[tokio::test]
async fn a_task_has_what_its_submit_says() {
    let fixture = Fixture::start();
    let deadline: Timestamp = "2126-01-02T03:04:05.678Z".parse().unwrap();
    let submit = Submit::new(QUEUE, &json!({"n": 1})).unwrap().priority(-3).delay(Duration::from_secs(3_600));
    let submit = submit.dedup_key("k").max_attempts(9).property("os", "linux").deadline(deadline);
    let submit = submit.backoff(Backoff { initial_ms: Some(5), ..Backoff::default() });
    let submit =
        submit.timeout(Duration::from_secs(1)).lease(Duration::from_secs(2)).run_id("r").asset_id("a");
    let submit = submit.task_key("t").resources(&json!({"cpu": 1})).unwrap();
    let submitted = fixture.client.submit(submit).await.unwrap();
    assert_eq!(submitted.state, TaskState::Waiting);
    let task = fixture.client.get(&submitted.task_id).await.unwrap();
    let json: Value = serde_json::to_value(&task).unwrap();
    let expected = json!({
        "queue": QUEUE, "state": "WAITING", "payload": {"n": 1}, "priority": -3, "dedupKey": "k",
        "maxAttempts": 9, "properties": {"os": "linux"}, "timeoutMs": 1_000, "runId": "r", "assetId": "a",
        "taskKey": "t", "resources": {"cpu": 1},
    });
    for (name, value) in expected.as_object().unwrap() {
        assert_eq!(json[name], *value, "{name}");
    }
    assert_eq!(task.deadline, Some(deadline));
}

#[tokio::test]
async fn a_dedup_key_gives_the_same_task_and_refuses_another() {
    let fixture = Fixture::start();
    let submit = |payload: u32| Submit::new(QUEUE, &payload).unwrap().dedup_key("k");
    let one = fixture.client.submit(submit(1)).await.unwrap();
    assert_eq!(fixture.client.submit(submit(1)).await.unwrap().task_id, one.task_id);
    let refused = fixture.client.submit(submit(2)).await.unwrap_err();
    assert!(refused.is_conflict(), "{refused}");
    let problem = refused.problem().unwrap();
    assert_eq!(
        (problem.code.as_str(), problem.task_id.as_deref()),
        ("dedup_conflict", Some(one.task_id.as_str()))
    );
}

#[tokio::test]
async fn a_batch_longer_than_a_request_is_sent_whole() {
    let fixture = Fixture::start();
    let submits = (0..1_100).map(|n| Submit::new(if n == 7 { "" } else { QUEUE }, &n).unwrap());
    let answers = fixture.client.submit_batch(submits).await.unwrap();
    let refused: Vec<usize> = (0..answers.len()).filter(|n| answers[*n].is_err()).collect();
    assert_eq!((answers.len(), refused), (1_100, vec![7]));
    let listed = fixture.client.list(Some(QUEUE), None).await.unwrap();
    let mut payloads: Vec<u32> = listed.iter().map(|task| task.payload.read().unwrap()).collect();
    payloads.sort_unstable();
    assert_eq!(payloads, (0..1_100).filter(|n| *n != 7).collect::<Vec<_>>());
}

/// The proxy answers all but the first request in the server's place.
#[tokio::test]
async fn what_was_accepted_is_told_when_a_later_request_of_a_batch_fails() {
    let fixture = Fixture::start();
    let rule = |_: &Request, number| match number {
        1 => Action::Pass,
        _ => Action::Answer(418, "x: y", "<html>".to_owned()),
    };
    let proxy = fixture.proxy(rule).await;
    let client = Client::new(&proxy.url).unwrap();
    let submits = (0..2_100).map(|n| Submit::new(QUEUE, &n).unwrap());
    let answers = client.submit_batch(submits).await.unwrap();
    let mut accepted: Vec<&str> = Vec::new();
    for (n, answer) in answers.iter().enumerate() {
        match answer {
            Ok(submitted) => accepted.push(&submitted.task_id),
            Err(error) => {
                assert!(n >= 1_000 && matches!(error, Error::Foreign { status: 418, .. }), "{error}")
            }
        }
    }
    assert_eq!((accepted.len(), answers.len()), (1_000, 2_100));
    let listed = fixture.client.list(Some(QUEUE), None).await.unwrap();
    assert!(listed.len() == 1_000 && listed.iter().all(|task| accepted.contains(&task.task_id.as_str())));
    assert_eq!(proxy.count("batch"), 2, "what comes after a failure is not sent");
    let nothing = client.submit_batch([Submit::new(QUEUE, &1).unwrap()]).await;
    assert!(matches!(nothing, Err(Error::Foreign { .. })), "nothing was accepted");
}

/// The longest span that the header can ask for is beyond what can be added to a clock.
#[tokio::test]
async fn a_client_that_is_told_to_come_back_much_later_gives_up() {
    let later = "retry-after: 18446744073709551615";
    let fake = Fake::start(vec![Reply::Answer(503, later, "{}".to_owned())]);
    let client = Client::new(&fake.url).unwrap().retry_for(Duration::from_secs(20));
    assert!(matches!(client.get("x").await, Err(Error::NoAnswer { .. })));
}

#[tokio::test]
async fn waiting_returns_when_the_task_is_final_or_the_time_is_over() {
    let fixture = Fixture::start();
    let id = fixture.submit(json!("x")).await;
    assert_eq!(fixture.client.wait(&id, Duration::ZERO).await.unwrap().state, TaskState::Waiting);
    let handler = |task: Task| async move { Ok(task.payload::<String>()?.repeat(2)) };
    let working = Working::start(fixture.worker().handler(QUEUE, handler));
    let task = fixture.client.wait(&id, PATIENCE).await.unwrap();
    assert_eq!(task.result.unwrap().as_text(), "\"xx\"");
    working.end().await;
}

#[tokio::test]
async fn a_cancelled_task_can_be_redriven_and_its_history_read() {
    let fixture = Fixture::start();
    let id = fixture.submit(json!("p")).await;
    let dead = fixture.client.cancel(&id, Some("not needed")).await.unwrap();
    assert_eq!((dead.state, dead.reason_detail.as_deref()), (TaskState::Dead, Some("not needed")));
    let new = fixture.client.redrive(&id).await.unwrap();
    assert_eq!((new.redrive_of.as_deref(), new.state), (Some(id.as_str()), TaskState::Waiting));
    assert_eq!(fixture.kinds(&id).await, ["TaskCreated", "TaskDead"]);
    let listed = fixture.client.list(Some(QUEUE), Some(TaskState::Dead)).await.unwrap();
    assert_eq!(listed.iter().map(|task| &task.task_id).collect::<Vec<_>>(), [&id]);
    assert!(fixture.client.get("no/such task").await.unwrap_err().is_not_found());
}

#[tokio::test]
async fn a_full_queue_is_said_to_be_full_after_a_while() {
    let fixture = Fixture::start();
    fixture.configure(json!({"maxQueueSize": 1})).await;
    fixture.submit(json!(null)).await;
    let client = Client::new(fixture.server.url()).unwrap().retry_for(Duration::from_millis(50));
    let refused = client.submit(Submit::new(QUEUE, &1).unwrap()).await.unwrap_err();
    assert!(refused.to_string().contains("queue_full"), "{refused}");
}

#[tokio::test]
async fn nobody_answers_or_somebody_else_does() {
    // Bound, so that nobody else takes it, but not listening.
    let taken = TcpSocket::new_v4().unwrap();
    taken.bind(([127, 0, 0, 1], 0).into()).unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let client = Client::new(address).unwrap().retry_for(Duration::from_millis(300));
    assert!(matches!(client.get("x").await, Err(Error::NoAnswer { .. })));
    let fake = Fake::start(vec![Reply::Answer(200, "x: y", "<html>".to_owned())]);
    let error = Client::new(&fake.url).unwrap().get("x").await.unwrap_err();
    assert!(matches!(error, Error::Foreign { status: 200, .. }), "{error}");
}
