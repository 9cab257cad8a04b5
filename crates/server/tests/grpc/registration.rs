//! Registering, being known, being forgotten.

use std::collections::HashMap;
use std::time::Duration;

use serde_json::json;
use server::Scheduler;
use tonic::Code;
use wire::grpc::worker_scheduler_client::WorkerSchedulerClient;
use wire::grpc::{
    HeartbeatRequest, LeaseTaskRequest, RegisterWorkerRequest, ResourceLimits, UnregisterWorkerRequest,
    WorkerCapabilities, WorkerState, WorkerStats,
};

use crate::support::{Served, ask, completed, in_time, is_refused, lease, registration};

fn session(worker: &str, session: &str) -> RegisterWorkerRequest {
    RegisterWorkerRequest { session_id: session.to_owned(), ..registration(worker) }
}

#[tokio::test]
async fn s3_9_a_worker_registers_and_is_told_how_to_behave() {
    let served = Served::start().await;
    let told = served.client().await.register_worker(registration("w")).await.unwrap().into_inner();
    let seconds = |span: Option<prost_types::Duration>| span.unwrap().seconds;
    assert_eq!(seconds(told.heartbeat_interval), 30);
    assert_eq!(seconds(told.heartbeat_timeout), 120, "S3-30");
    assert_eq!(seconds(told.long_poll_timeout), 30, "S3-30");
}

/// S3-14, S3-15, S3-16: every field of the request is kept. S3-28: and shown, with the rest of what a registered worker
/// has.
#[tokio::test]
async fn s3_14_15_16_28_what_a_worker_says_of_itself_is_shown() {
    let served = Served::start().await;
    let mut client = served.client().await;
    let resources = ResourceLimits { cpu_cores: 3.5, memory_bytes: 1 << 33, disk_bytes: 1 << 40 };
    let request = RegisterWorkerRequest {
        worker_id: "w".to_owned(),
        capabilities: Some(WorkerCapabilities { max_concurrent_executions: 4, resources: Some(resources) }),
        platform_properties: HashMap::from([("OSFamily".to_owned(), "Linux".to_owned())]),
        session_id: "s1".to_owned(),
    };
    client.register_worker(request).await.unwrap();
    let known = served.known("w").await;
    let shown = &known["registration"];
    assert_eq!(shown["properties"], json!({"OSFamily": "Linux"}));
    assert_eq!((&shown["maxConcurrentExecutions"], &shown["cpuCores"]), (&json!(4), &json!(3.5)));
    assert_eq!((&shown["memoryBytes"], &shown["diskBytes"]), (&json!(1_u64 << 33), &json!(1_u64 << 40)));
    assert_eq!((&shown["state"], &shown["sessionId"]), (&json!("IDLE"), &json!("s1")));
    assert!(shown["registeredAt"].is_string() && known["lastHeartbeatAt"].is_string());
}

#[tokio::test]
async fn s3_23_24_37_a_heartbeat_refreshes_the_workers_state_and_stats() {
    let served = Served::start().await;
    let mut client = served.worker("w").await;
    let beat = HeartbeatRequest {
        worker_id: "w".to_owned(),
        state: WorkerState::Busy.into(),
        stats: Some(WorkerStats { active_tasks: 2, total_completed: 30, total_failed: 4 }),
        ..HeartbeatRequest::default()
    };
    // As times: as texts, one with fewer digits would come after one with more.
    let heard_at = |known: &serde_json::Value| -> jiff::Timestamp {
        known["lastHeartbeatAt"].as_str().unwrap().parse().unwrap()
    };
    let before = heard_at(&served.known("w").await);
    let told = client.report_heartbeat(beat).await.unwrap().into_inner();
    assert!(told.registered && !told.should_shutdown, "{told:?}");
    let known = served.known("w").await;
    assert!(heard_at(&known) >= before);
    let shown = &known["registration"];
    assert_eq!(shown["state"], "BUSY");
    assert_eq!(
        (&shown["activeTasks"], &shown["totalCompleted"], &shown["totalFailed"]),
        (&json!(2), &json!(30), &json!(4))
    );
}

#[tokio::test]
async fn s3_23_a_draining_worker_is_offered_nothing() {
    let served = Served::start().await;
    let mut client = served.worker("w").await;
    served.submit("q").await;
    let draining = HeartbeatRequest {
        worker_id: "w".to_owned(),
        state: WorkerState::Draining.into(),
        ..HeartbeatRequest::default()
    };
    client.report_heartbeat(draining).await.unwrap();
    let poll = LeaseTaskRequest { timeout_seconds: 30, ..ask("w", "q") };
    assert!(in_time(client.lease_task(poll)).await.unwrap().into_inner().tasks.is_empty());
}

#[tokio::test]
async fn s3_33_an_unregistered_worker_is_refused_and_told_to_register() {
    let served = Served::start().await;
    let mut client = served.client().await;
    served.submit("q").await;
    let refused = client.lease_task(ask("w", "q")).await;
    assert!(refused.as_ref().unwrap_err().message().contains("RegisterWorker"));
    is_refused(refused, Code::FailedPrecondition, "not_registered");
    client.register_worker(registration("w")).await.unwrap();
    lease(&mut client, "w", "q").await;
}

#[tokio::test]
async fn s3_13_26_a_worker_that_unregisters_gives_its_leases_back_at_no_cost() {
    let served = Served::start().await;
    let mut client = served.worker("w").await;
    let task_id = served.submit("q").await;
    let held = lease(&mut client, "w", "q").await;
    let leave = UnregisterWorkerRequest { worker_id: "w".to_owned(), ..UnregisterWorkerRequest::default() };
    let told = client.unregister_worker(leave.clone()).await.unwrap().into_inner();
    assert_eq!(told.released_leases, 1);
    let shown = served.task(&task_id).await;
    assert_eq!((shown["state"].as_str(), shown["attempt"].as_u64()), (Some("WAITING"), Some(1)));
    assert!(served.known("w").await.is_null());
    is_refused(client.lease_task(ask("w", "q")).await, Code::FailedPrecondition, "not_registered");
    let late = client.update_task_status(completed("w", &held, "1")).await.unwrap().into_inner();
    assert_eq!(late.verdict(), wire::grpc::Verdict::Cancelled);
    assert_eq!(
        client.unregister_worker(leave).await.unwrap().into_inner().released_leases,
        0,
        "again is harmless"
    );
}

#[tokio::test]
async fn s3_38_54_the_leases_of_a_silent_worker_end_at_once_and_keep_their_place() {
    let scheduler = Scheduler { heartbeat_timeout: Duration::from_secs(6), ..Scheduler::default() };
    let served = Served::start_with(scheduler).await;
    let mut client = served.worker("w").await;
    let (task_id, other) = (served.submit("q").await, served.submit("q").await);
    let held = lease(&mut client, "w", "q").await;
    assert_eq!(held.task_id, task_id);
    // The same name in another contract: its leases live by their own clock.
    let body = json!({"workerId": "w", "queues": ["q2"]});
    let elsewhere = served.submit("q2").await;
    served.send("POST", "/v1/leases", body).await;
    in_time(async {
        while served.task(&task_id).await["state"] != "WAITING" {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert!(served.known("w").await["registration"].is_null());
    let history = served.get(&format!("/v1/tasks/{task_id}/history")).await;
    let last = history["events"].as_array().unwrap().last().unwrap().clone();
    assert_eq!((&last["type"], &last["cause"]), (&json!("LeaseExpired"), &json!("WORKER_LOST")));
    assert_eq!(served.task(&elsewhere).await["state"], "LEASED");
    let late = client.update_task_status(completed("w", &held, "1")).await.unwrap().into_inner();
    assert_eq!(late.verdict(), wire::grpc::Verdict::Cancelled);
    let mut another = served.worker("v").await;
    for expected in [&task_id, &other] {
        assert_eq!(lease(&mut another, "v", "q").await.task_id, *expected, "it kept its place in the queue");
    }
}

#[tokio::test]
async fn only_the_address_that_registered_a_worker_may_replace_it_or_end_it() {
    let served = Served::start().await;
    let mut client = served.client().await;
    client.register_worker(session("w", "one")).await.unwrap();
    let task_id = served.submit("q").await;
    lease(&mut client, "w", "q").await;
    let mut stranger = WorkerSchedulerClient::new(served.channel_from("127.0.0.2").await);
    let elsewhere = |refused| is_refused(refused, Code::FailedPrecondition, "registered_elsewhere");
    elsewhere(stranger.register_worker(session("w", "two")).await.map(drop));
    let mut other_workspace = tonic::Request::new(session("w", "two"));
    other_workspace.metadata_mut().insert("lessor-workspace", "other".parse().unwrap());
    elsewhere(stranger.register_worker(other_workspace).await.map(drop));
    let leave = UnregisterWorkerRequest { worker_id: "w".to_owned(), ..UnregisterWorkerRequest::default() };
    elsewhere(stranger.unregister_worker(leave.clone()).await.map(drop));
    assert_eq!(served.task(&task_id).await["state"], "LEASED");
    assert!(!served.known("w").await["registration"].is_null());
    stranger.register_worker(session("v", "one")).await.unwrap();
    stranger.register_worker(session("w", "one")).await.unwrap();
    client.register_worker(session("w", "one")).await.unwrap();
    client.unregister_worker(leave).await.unwrap();
    stranger.register_worker(session("w", "two")).await.unwrap();
}

#[tokio::test]
async fn s3_54_after_a_restart_silence_counts_from_the_moment_of_serving() {
    let served = Served::start().await;
    let mut client = served.worker("w").await;
    let task_id = served.submit("q").await;
    lease(&mut client, "w", "q").await;
    let scheduler = Scheduler { heartbeat_timeout: Duration::from_secs(10), ..Scheduler::default() };
    let served = served.restart_with(scheduler).await;
    assert_eq!(served.task(&task_id).await["state"], "LEASED", "a restart alone ends no lease");
    in_time(async {
        while served.task(&task_id).await["state"] != "WAITING" {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn s3_38_expired_leases_are_requeued_with_all_that_their_task_has() {
    let served = Served::start().await;
    served.send("PUT", "/v1/queues/q", json!({"leaseMs": 100, "maxAttempts": 2})).await;
    let mut client = served.worker("w").await;
    let task_id = served.submit("q").await;
    lease(&mut client, "w", "q").await;
    let poll = LeaseTaskRequest { timeout_seconds: 30, ..ask("w", "q") };
    let again = in_time(client.lease_task(poll)).await.unwrap().into_inner();
    assert_eq!((again.tasks[0].task_id.as_str(), again.tasks[0].attempt), (task_id.as_str(), 2));
    assert_eq!(&again.tasks[0].payload[..], br#"{"n":1}"#);
}

#[tokio::test]
async fn a_new_session_takes_the_leases_of_the_old_one_and_the_old_one_is_told_to_stop() {
    let served = Served::start().await;
    let mut client = served.client().await;
    client.register_worker(session("w", "old")).await.unwrap();
    let task_id = served.submit("q").await;
    lease(&mut client, "w", "q").await;
    client.register_worker(session("w", "old")).await.unwrap();
    assert_eq!(served.task(&task_id).await["state"], "LEASED", "the same session keeps its leases");
    client.register_worker(session("w", "new")).await.unwrap();
    assert_eq!(served.task(&task_id).await["state"], "WAITING");

    let poll = LeaseTaskRequest { session_id: "old".to_owned(), ..ask("w", "q") };
    is_refused(client.lease_task(poll).await, Code::FailedPrecondition, "superseded");
    let beat = |session: &str| HeartbeatRequest {
        worker_id: "w".to_owned(),
        session_id: session.to_owned(),
        ..HeartbeatRequest::default()
    };
    let told = client.report_heartbeat(beat("old")).await.unwrap().into_inner();
    assert!(told.should_shutdown && !told.registered, "S3-25: {told:?}");
    let told = client.report_heartbeat(beat("new")).await.unwrap().into_inner();
    assert!(!told.should_shutdown && told.registered, "{told:?}");
    let leave = UnregisterWorkerRequest { worker_id: "w".to_owned(), session_id: "old".to_owned() };
    client.unregister_worker(leave).await.unwrap();
    let told = client.report_heartbeat(beat("new")).await.unwrap().into_inner();
    assert!(told.registered, "the old session cannot unregister the new one");
}

#[tokio::test]
async fn malformed_registrations_are_refused() {
    let served = Served::start().await;
    let mut client = served.client().await;
    let negative = WorkerCapabilities { max_concurrent_executions: -1, resources: None };
    let many = (0..65).map(|n| (n.to_string(), String::new())).collect();
    let requests = [
        registration(""),
        registration("a\nb"),
        registration(&"w".repeat(513)),
        session("w", "\u{7}"),
        RegisterWorkerRequest { capabilities: Some(negative), ..registration("w") },
        RegisterWorkerRequest { platform_properties: many, ..registration("w") },
    ];
    for request in requests {
        is_refused(client.register_worker(request).await, Code::InvalidArgument, "invalid_field");
    }
}

/// The old session's call was waiting when the new one came: what it is given goes to the new one.
#[tokio::test]
async fn w11_a_poll_of_a_session_that_was_replaced_keeps_nothing() {
    let served = Served::start().await;
    let mut old = served.client().await;
    old.register_worker(session("w", "old")).await.unwrap();
    let poll = |session: &str| LeaseTaskRequest {
        session_id: session.to_owned(),
        timeout_seconds: 30,
        ..ask("w", "q")
    };
    let waiting = poll("old");
    let waits = tokio::spawn(async move { old.lease_task(waiting).await });
    served.polls(1).await;
    let mut new = served.client().await;
    new.register_worker(session("w", "new")).await.unwrap();
    let task_id = served.submit("q").await;
    is_refused(in_time(waits).await.unwrap(), Code::FailedPrecondition, "superseded");
    let given = in_time(new.lease_task(poll("new"))).await.unwrap().into_inner().tasks;
    assert_eq!(given.iter().map(|task| task.task_id.as_str()).collect::<Vec<_>>(), [task_id.as_str()]);
}

/// Many sessions of one worker at once: the last one to be known keeps what it is given.
#[tokio::test]
async fn w11_of_sessions_that_register_at_once_one_wins_and_keeps_its_leases() {
    let served = std::sync::Arc::new(Served::start().await);
    served.submit("q").await;
    let mut racing = tokio::task::JoinSet::new();
    for n in 0..16 {
        let served = served.clone();
        racing.spawn(async move {
            let name = format!("s{n}");
            let mut client = served.client().await;
            client.register_worker(session("w", &name)).await.unwrap();
            let poll = LeaseTaskRequest { session_id: name.clone(), ..ask("w", "q") };
            let given = client.lease_task(poll).await;
            (name, given.map(|given| given.into_inner().tasks.len()).unwrap_or(0))
        });
    }
    let ended = racing.join_all().await;
    let winner = served.known("w").await["registration"]["sessionId"].as_str().unwrap().to_owned();
    let mut client = served.client().await;
    let poll = LeaseTaskRequest { session_id: winner.clone(), ..ask("w", "q") };
    let later = client.lease_task(poll).await.unwrap().into_inner().tasks.len();
    let before = ended.iter().find(|(name, _)| *name == winner).map_or(0, |(_, given)| *given);
    assert_eq!(before + later, 1, "{winner}: {ended:?}");
    assert_eq!(served.known("w").await["activeLeases"], 1);
}
