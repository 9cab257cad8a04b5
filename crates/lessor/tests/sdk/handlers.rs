//! The behavior of a Rust SDK worker towards its handlers.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lessor_sdk::{Category, Client, Error, Failure, Json, Submit, Task, TaskState, Worker};
use serde_json::{Value, json};
use tokio::sync::{Barrier, Notify};

use crate::fixture::{Fixture, QUEUE, Working};
use crate::support::proxy::PATIENCE;

#[tokio::test]
async fn a_handler_sees_all_of_its_task() {
    let fixture = Fixture::start();
    let submit = Submit::new(QUEUE, &json!({"a": [1]})).unwrap().timeout(Duration::from_secs(60));
    let submit = submit.run_id("r").asset_id("a").task_key("k").resources(&json!({"cpu": 1})).unwrap();
    let id = fixture.client.submit(submit).await.unwrap().task_id;
    let handler = |task: Task| async move {
        let texts =
            [task.queue(), task.run_id().unwrap(), task.asset_id().unwrap(), task.task_key().unwrap()];
        let resources: Value = task.resources().unwrap().read()?;
        let numbers = (task.attempt(), task.timeout().unwrap().as_secs(), task.deadline().is_none());
        Ok(json!([task.id(), task.payload::<Value>()?, texts, resources, numbers]))
    };
    let working = Working::start(fixture.worker().handler(QUEUE, handler));
    let expected = json!([id, {"a": [1]}, [QUEUE, "r", "a", "k"], {"cpu": 1}, [1, 60, true]]);
    assert_eq!(fixture.result(&id).await, expected);
    working.end().await;
}

#[tokio::test]
async fn a_payload_of_another_shape_is_a_matter_of_data_quality() {
    let fixture = Fixture::start();
    let id = fixture.submit(json!("three")).await;
    let working =
        Working::start(fixture.worker().handler(QUEUE, |task: Task| async move { task.payload::<u32>() }));
    let error = fixture.final_task(&id).await.error.unwrap();
    assert_eq!(error.category, Category::DataQuality);
    assert!(error.message.contains("invalid type: string"), "{}", error.message);
    working.end().await;
}

#[tokio::test]
async fn every_attempt_has_a_higher_fencing_token() {
    let fixture = Fixture::start();
    fixture.configure(json!({"backoff": {"initialMs": 1, "factor": 1, "jitter": 0}})).await;
    let id = fixture.submit(json!(null)).await;
    let tokens = Arc::new(Mutex::new(Vec::new()));
    let seen = tokens.clone();
    let working = Working::start(fixture.worker().handler(QUEUE, move |task: Task| {
        seen.lock().unwrap().push(task.fencing_token());
        async move { if task.attempt() < 3 { Err(Failure::infrastructure("again")) } else { Ok(()) } }
    }));
    assert_eq!(fixture.final_task(&id).await.state, TaskState::Completed);
    working.end().await;
    let tokens = tokens.lock().unwrap();
    assert!(tokens.len() == 3 && tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
}

#[tokio::test]
async fn as_many_handlers_run_at_once_as_there_is_room_for() {
    let fixture = Fixture::start();
    let meeting = Arc::new(Barrier::new(3));
    let working = Working::start(fixture.worker().concurrency(3).handler(QUEUE, move |_| {
        let meeting = meeting.clone();
        async move { Ok(meeting.wait().await.is_leader()) }
    }));
    let submits = (0..6).map(|n| Submit::new(QUEUE, &n).unwrap());
    for submitted in fixture.client.submit_batch(submits).await.unwrap() {
        let task = fixture.final_task(&submitted.unwrap().task_id).await;
        assert_eq!(task.state, TaskState::Completed);
    }
    working.end().await;
}

#[tokio::test]
async fn each_queue_has_its_handler_and_only_matching_tasks_come() {
    let fixture = Fixture::start();
    let submit = |queue: &str| Submit::new(queue, &json!(null)).unwrap();
    let task_id = |submit: Submit| async { fixture.client.submit(submit).await.unwrap().task_id };
    let mac = task_id(submit("a").property("os", "mac").priority(-1)).await;
    let (a, b) = (task_id(submit("a").property("os", "linux")).await, task_id(submit("b")).await);
    let worker = fixture.worker().property("os", "linux");
    let worker = worker.handler("a", |_| async { Ok("a") }).handler("b", |_| async { Ok("b") });
    let working = Working::start(worker);
    assert_eq!((fixture.result(&a).await, fixture.result(&b).await), (json!("a"), json!("b")));
    working.end().await;
    assert_eq!(fixture.client.get(&mac).await.unwrap().state, TaskState::Waiting);
}

#[tokio::test]
async fn tenants_and_workspaces_are_apart() {
    let fixture = Fixture::start();
    let acme = Client::scoped(fixture.server.url(), "acme", "w1").unwrap();
    let id = acme.submit(Submit::new(QUEUE, &1).unwrap()).await.unwrap().task_id;
    let worker = fixture.worker().tenant("acme").workspace("w1").handler(QUEUE, |_| async { Ok(2) });
    let working = Working::start(worker);
    assert_eq!(acme.wait(&id, PATIENCE).await.unwrap().result.unwrap().as_text(), "2");
    working.end().await;
    assert!(fixture.client.get(&id).await.unwrap_err().is_not_found());
}

#[tokio::test]
async fn a_result_that_cannot_be_sent_fails_with_a_clear_reason() {
    let fixture = Fixture::start();
    let large = fixture.submit(json!(1024 * 1024)).await;
    let full = fixture.submit(json!(1024 * 1024 - 2)).await;
    let odd = fixture.client.submit(Submit::new("odd", &json!(null)).unwrap()).await.unwrap().task_id;
    let worker = fixture.worker().handler(QUEUE, |task: Task| async move { Ok("x".repeat(task.payload()?)) });
    let worker = worker.handler("odd", |_| async { Ok(BTreeMap::from([((1, 2), 3)])) });
    // The text as it is: deeper than the coordinator takes, half of a character, a key twice.
    let texts = ["[".repeat(64) + &"]".repeat(64), r#""\ud800""#.to_owned(), r#"{"a":1,"a":1}"#.to_owned()];
    let deepest = "[".repeat(63) + &"]".repeat(63);
    let mut ids = Vec::new();
    for text in texts.iter().chain([&deepest]) {
        let submit = Submit::new("text", text).unwrap();
        ids.push(fixture.client.submit(submit).await.unwrap().task_id);
    }
    let deepest = ids.pop().unwrap();
    let worker =
        worker.handler("text", |task: Task| async move { Ok(Json::from_text(task.payload::<String>()?)?) });
    let working = Working::start(worker);
    let not_json = ids.into_iter().chain([odd]).map(|id| (id, "result_not_json"));
    for (id, code) in not_json.chain([(large, "result_too_large")]) {
        let error = fixture.final_task(&id).await.error.unwrap();
        assert_eq!((error.category, error.code.as_deref()), (Category::Configuration, Some(code)));
    }
    for id in [full, deepest] {
        assert_eq!(fixture.final_task(&id).await.state, TaskState::Completed, "the largest result is taken");
    }
    working.end().await;
}

#[tokio::test]
async fn progress_reaches_people_before_the_next_heartbeat_is_due() {
    let fixture = Fixture::start();
    let id = fixture.submit(json!(null)).await;
    let proxy = fixture.witness().await;
    let (client, seen) = (fixture.client.clone(), proxy.clone());
    let working = Working::start(fixture.worker().url(&proxy.url).handler(QUEUE, move |task: Task| {
        let (client, seen) = (client.clone(), seen.clone());
        async move {
            task.progress(40.0, "almost half");
            seen.until("heartbeat", 1).await;
            let progress = client.get(task.id()).await?.progress.unwrap();
            task.progress(f64::NAN, "still at it");
            Ok((progress.progress_pct, progress.message))
        }
    }));
    assert_eq!(fixture.result(&id).await, json!([40.0, "almost half"]));
    working.end().await;
}

#[tokio::test]
async fn a_cancel_reaches_the_handler_and_what_stops_for_it_is_cancelled() {
    let fixture = Fixture::start();
    fixture.configure(json!({"heartbeatIntervalMs": 50})).await;
    let id = fixture.submit(json!(null)).await;
    let is_running = Arc::new(Notify::new());
    let runs = is_running.clone();
    let working = Working::start(fixture.worker().handler(QUEUE, move |task: Task| {
        runs.notify_one();
        async move {
            task.cancelled().await;
            assert_eq!(task.cancel_reason().as_deref(), Some("wrong address"));
            assert!(!task.is_lease_lost());
            task.checkpoint()
        }
    }));
    is_running.notified().await;
    fixture.client.cancel(&id, Some("wrong address")).await.unwrap();
    let task = fixture.final_task(&id).await;
    assert_eq!((task.state, task.reason.as_deref()), (TaskState::Dead, Some("CANCELLED")));
    assert_eq!(fixture.ended.verdicts(1).await, ["COMMITTED"]);
    working.end().await;
}

#[tokio::test]
async fn a_handler_that_ends_all_the_same_after_a_cancel_still_commits() {
    let fixture = Fixture::start();
    fixture.configure(json!({"heartbeatIntervalMs": 50})).await;
    let id = fixture.submit(json!(null)).await;
    let client = fixture.client.clone();
    let working = Working::start(fixture.worker().handler(QUEUE, move |task: Task| {
        let client = client.clone();
        async move {
            client.cancel(task.id(), None).await?;
            task.cancellation().cancelled().await;
            Ok("done all the same")
        }
    }));
    assert_eq!(fixture.result(&id).await, "done all the same");
    working.end().await;
}

#[tokio::test]
async fn a_time_limit_ends_the_attempt_also_for_the_handler() {
    let fixture = Fixture::start();
    let submit = Submit::new(QUEUE, &1).unwrap().timeout(Duration::from_millis(300)).max_attempts(1);
    let id = fixture.client.submit(submit).await.unwrap().task_id;
    let handler = |task: Task| async move {
        task.cancelled().await;
        Ok(())
    };
    let working = Working::start(fixture.worker().handler(QUEUE, handler));
    assert_eq!(fixture.ended.verdicts(1).await, ["LOST"]);
    assert_eq!(fixture.final_task(&id).await.state, TaskState::Dead);
    working.end().await;
}

/// A lease that may be gone on arrival, because the poll waited for longer than it lives, is first confirmed.
#[tokio::test]
async fn a_lease_whose_answer_was_long_under_way_is_confirmed_before_the_handler_starts() {
    let fixture = Fixture::start();
    fixture.configure(json!({"leaseMs": 2_000, "heartbeatIntervalMs": 1_000})).await;
    // Its poll is lost and repeated after the pause that the answer asks for: half of the lease, and a bit.
    let proxy = fixture
        .proxy(|_, number| match number {
            1 => crate::support::proxy::Action::Answer(503, "retry-after: 2", "{}".to_owned()),
            _ => crate::support::proxy::Action::Pass,
        })
        .await;
    let seen = proxy.clone();
    let id = fixture.submit(json!(null)).await;
    let working = Working::start(fixture.worker().url(&proxy.url).handler(QUEUE, move |_| {
        let seen = seen.clone();
        async move { Ok(seen.count("heartbeat")) }
    }));
    assert!(fixture.result(&id).await.as_u64().unwrap() >= 1, "no heartbeat was answered before it started");
    working.end().await;
}

#[tokio::test]
async fn a_hook_that_panics_harms_no_other_task() {
    let fixture = Fixture::start();
    let ids = [fixture.submit(json!(1)).await, fixture.submit(json!(2)).await];
    let ended = fixture.ended.clone();
    let worker = fixture.worker().on_outcome(move |task, outcome| {
        ended.record(task, outcome);
        panic!("a bug in the hook");
    });
    let working = Working::start(worker.handler(QUEUE, |_| async { Ok(()) }));
    fixture.ended.wait(2).await;
    working.end().await;
    for id in ids {
        assert_eq!(fixture.client.get(&id).await.unwrap().state, TaskState::Completed);
    }
}

/// It waits for something that never comes and does not look whether to stop.
#[tokio::test]
async fn a_handler_that_never_stops_is_dropped_after_its_lease_is_lost() {
    let fixture = Fixture::start();
    fixture.configure(json!({"heartbeatIntervalMs": 50})).await;
    let id = fixture.submit(json!(null)).await;
    let back = fixture.direct_calls();
    let working = Working::start(fixture.worker().handler(QUEUE, move |task: Task| {
        let back = back.clone();
        async move {
            if task.attempt() == 1 {
                back.send(&task, "release", json!({"workerId": "w"})).await;
                std::future::pending::<()>().await;
            }
            Ok(task.attempt())
        }
    }));
    assert_eq!(fixture.result(&id).await, 2);
    assert_eq!(fixture.ended.verdicts(2).await, ["LOST", "COMMITTED"]);
    working.end().await;
}

#[tokio::test]
async fn a_worker_that_cannot_work_says_so() {
    let fixture = Fixture::start();
    let refused =
        fixture.worker().worker_id("\n").handler(QUEUE, |_| async { Ok(()) }).run().await.unwrap_err();
    assert_eq!(refused.problem().unwrap().field.as_deref(), Some("workerId"));
    let handler = |_| async { Ok(()) };
    for worker in [
        fixture.worker(),
        fixture.worker().concurrency(0).handler(QUEUE, handler),
        fixture.worker().handler(QUEUE, handler).handler(QUEUE, handler),
        Worker::new().url("ftp://host").handler(QUEUE, handler),
    ] {
        assert!(matches!(worker.run().await, Err(Error::Setup(_))));
    }
}
