//! LeaseTask: what is leased, to whom, and how long a worker waits.

use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;
use serde_json::json;
use tonic::{Code, Request};
use tonic_types::StatusExt;
use wire::grpc::{LeaseTaskRequest, RegisterWorkerRequest, SubmitTask, SubmitTasksRequest};

use crate::support::{Served, ask, in_time, is_refused, lease, registration, submit, task};

fn pairs(pairs: &[(&str, &str)]) -> HashMap<String, String> {
    pairs.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect()
}

#[tokio::test]
async fn s3_10_32_a_poll_waits_until_a_task_comes() {
    let served = Served::start().await;
    let mut client = served.worker("w").await;
    let poll = LeaseTaskRequest { timeout_seconds: 30, ..ask("w", "q") };
    let poll = tokio::spawn(async move { client.lease_task(poll).await.unwrap().into_inner() });
    served.polls(1).await;
    let task_id = served.submit("q").await;
    let leased = in_time(poll).await.unwrap();
    assert_eq!(leased.tasks[0].task_id, task_id);
}

#[tokio::test]
async fn s3_32_an_empty_list_is_no_error() {
    let served = Served::start().await;
    let mut client = served.worker("w").await;
    assert!(client.lease_task(ask("w", "q")).await.unwrap().into_inner().tasks.is_empty());
    let second = LeaseTaskRequest { timeout_seconds: 1, ..ask("w", "q") };
    assert!(in_time(client.lease_task(second)).await.unwrap().into_inner().tasks.is_empty());
}

#[tokio::test]
async fn s3_30_a_wait_is_no_longer_than_the_server_allows_nor_than_its_caller_waits() {
    let short = Duration::from_millis(50);
    let scheduler = server::Scheduler { long_poll_timeout: short, ..server::Scheduler::default() };
    let served = Served::start_with(scheduler).await;
    let mut client = served.worker("w").await;
    let forever = LeaseTaskRequest { timeout_seconds: i64::MAX, ..ask("w", "q") };
    assert!(in_time(client.lease_task(forever)).await.unwrap().into_inner().tasks.is_empty());

    let served = Served::start().await;
    let mut client = served.worker("w").await;
    // The server leaves some time for its answer to arrive, which a busy machine may need more of.
    for tries in 1.. {
        let mut poll = Request::new(LeaseTaskRequest { timeout_seconds: 30, ..ask("w", "q") });
        poll.set_timeout(Duration::from_millis(400));
        match in_time(client.lease_task(poll)).await {
            Ok(answer) => {
                assert!(answer.into_inner().tasks.is_empty());
                break;
            }
            Err(late) => assert!(tries < 10, "it does not end before its deadline: {late}"),
        }
    }
}

#[tokio::test]
async fn s3_17_18_max_tasks_is_what_the_worker_can_take() {
    let served = Served::start().await;
    let mut client = served.worker("w").await;
    client.submit_tasks(SubmitTasksRequest { tasks: vec![task("q"); 5] }).await.unwrap();
    let leased = async |client: &mut crate::support::Client, max_tasks| {
        let poll = LeaseTaskRequest { max_tasks, ..ask("w", "q") };
        client.lease_task(poll).await.map(|answer| answer.into_inner().tasks.len())
    };
    assert_eq!(leased(&mut client, 0).await.unwrap(), 0);
    assert_eq!(leased(&mut client, 3).await.unwrap(), 3);
    assert_eq!(leased(&mut client, i32::MAX).await.unwrap(), 2);
    is_refused(leased(&mut client, -1).await, Code::InvalidArgument, "invalid_field");
    let negative = LeaseTaskRequest { timeout_seconds: -1, ..ask("w", "q") };
    is_refused(client.lease_task(negative).await, Code::InvalidArgument, "invalid_field");
}

/// S3-19, S3-27, S3-29: the fields of a leased task, of a queued one and of its lease.
#[tokio::test]
async fn s3_19_27_29_a_leased_task_has_every_field() {
    let served = Served::start().await;
    let mut client = served.worker("w").await;
    let deadline = prost_types::Timestamp { seconds: 4_000_000_000, nanos: 0 };
    let submitted = SubmitTask {
        payload: Bytes::from_static(br#"{"operationName":"operations/7","actionDigest":"abc/3"}"#),
        priority: -5,
        timeout_ms: 90_500,
        deadline: Some(deadline),
        run_id: "run_1".to_owned(),
        asset_id: "asset".to_owned(),
        task_key: "key".to_owned(),
        resources_json: Bytes::from_static(br#"{"cpu":2}"#),
        ..task("exec")
    };
    let task_id = submit(&mut client, submitted.clone()).await;
    let poll = LeaseTaskRequest { queues: Vec::new(), ..ask("w", "") };
    let leased = client.lease_task(poll).await.unwrap().into_inner().tasks.remove(0);
    assert_eq!(
        (&leased.task_id, leased.queue.as_str()),
        (&task_id, "exec"),
        "exec is the queue of those who name none"
    );
    assert_eq!((leased.operation_name.as_str(), leased.action_digest.as_str()), ("operations/7", "abc/3"));
    assert_eq!(leased.timeout, Some(prost_types::Duration { seconds: 90, nanos: 500_000_000 }));
    let (granted, expires) = (leased.granted_at.unwrap(), leased.lease_expires_at.unwrap());
    assert!(expires.seconds - granted.seconds <= 91, "no lease outlives its attempt");
    assert!(leased.created_at.is_some_and(|created| created.seconds <= granted.seconds));
    assert_eq!((leased.payload, leased.deadline), (submitted.payload, Some(deadline)));
    assert_eq!(
        (leased.run_id.as_str(), leased.asset_id.as_str(), leased.task_key.as_str()),
        ("run_1", "asset", "key")
    );
    assert_eq!(&leased.resources_json[..], br#"{"cpu":2}"#);
    assert_eq!((leased.attempt, leased.heartbeat_interval.unwrap().seconds), (1, 30));
    assert!(leased.fencing_token > 0 && !leased.lease_id.is_empty());
    let shown = served.task(&task_id).await;
    assert_eq!((&shown["priority"], &shown["lease"]["workerId"]), (&json!(-5), &json!("w")));
}

#[tokio::test]
async fn s3_30_a_lease_of_the_exec_queue_lasts_five_minutes_unless_configured() {
    let served = Served::start().await;
    let mut client = served.worker("w").await;
    submit(&mut client, task("exec")).await;
    let leased = lease(&mut client, "w", "exec").await;
    let lasts = leased.lease_expires_at.unwrap().seconds - leased.granted_at.unwrap().seconds;
    assert!((300..=330).contains(&lasts), "{lasts}");
}

#[tokio::test]
async fn s3_31_a_full_queue_refuses_submits_and_says_when_to_come_back() {
    let served = Served::start().await;
    served.send("PUT", "/v1/queues/exec", json!({"maxQueueSize": 1})).await;
    let mut client = served.client().await;
    submit(&mut client, task("exec")).await;
    let answer = client.submit_tasks(SubmitTasksRequest { tasks: vec![task("exec")] }).await;
    let status = answer.as_ref().unwrap_err().clone();
    assert!(status.get_error_details().retry_info().unwrap().retry_delay.is_some());
    is_refused(answer, Code::ResourceExhausted, "queue_full");
    let mixed =
        client.submit_tasks(SubmitTasksRequest { tasks: vec![task("exec"), task("other")] }).await.unwrap();
    let mixed = mixed.into_inner().tasks;
    assert_eq!(
        mixed[0].problem.as_ref().map(|problem| (problem.status, problem.code.as_str())),
        Some((8, "queue_full"))
    );
    assert_eq!(mixed[1].problem, None);
}

#[tokio::test]
async fn s3_34_tasks_go_to_workers_whose_platform_fits() {
    let served = Served::start().await;
    let mut client = served.client().await;
    let arm = SubmitTask { properties: pairs(&[("OSFamily", "Linux"), ("Arch", "arm64")]), ..task("q") };
    let task_id = submit(&mut client, arm).await;
    let worker = |name: &str, arch: &str| RegisterWorkerRequest {
        platform_properties: pairs(&[("OSFamily", "Linux"), ("Arch", arch), ("container", "none")]),
        ..registration(name)
    };
    client.register_worker(worker("intel", "x86_64")).await.unwrap();
    client.register_worker(worker("arm", "arm64")).await.unwrap();
    client.register_worker(registration("plain")).await.unwrap();
    for other in ["intel", "plain"] {
        assert!(client.lease_task(ask(other, "q")).await.unwrap().into_inner().tasks.is_empty(), "{other}");
    }
    assert_eq!(lease(&mut client, "arm", "q").await.task_id, task_id);
}

#[tokio::test]
async fn properties_of_a_poll_replace_those_of_the_registration() {
    let served = Served::start().await;
    let mut client = served.worker("w").await;
    submit(&mut client, SubmitTask { properties: pairs(&[("gpu", "1")]), ..task("q") }).await;
    assert!(client.lease_task(ask("w", "q")).await.unwrap().into_inner().tasks.is_empty());
    let poll = LeaseTaskRequest { properties: pairs(&[("gpu", "1")]), ..ask("w", "q") };
    assert_eq!(client.lease_task(poll).await.unwrap().into_inner().tasks.len(), 1);
}

#[tokio::test]
async fn lower_priority_comes_first_and_queues_are_tried_in_their_order() {
    let served = Served::start().await;
    let mut client = served.worker("w").await;
    let later = submit(&mut client, task("b")).await;
    let second = submit(&mut client, SubmitTask { priority: 1, ..task("a") }).await;
    let first = submit(&mut client, SubmitTask { priority: -1, ..task("a") }).await;
    let poll =
        LeaseTaskRequest { max_tasks: 3, queues: vec!["a".to_owned(), "b".to_owned()], ..ask("w", "") };
    let leased = client.lease_task(poll).await.unwrap().into_inner().tasks;
    let ids: Vec<_> = leased.into_iter().map(|task| task.task_id).collect();
    assert_eq!(ids, [first, second, later]);
}

#[tokio::test]
async fn a_repeated_request_id_gets_the_same_leases_again() {
    let served = Served::start().await;
    let mut client = served.worker("w").await;
    client.submit_tasks(SubmitTasksRequest { tasks: vec![task("q"); 2] }).await.unwrap();
    let poll = LeaseTaskRequest { request_id: "r1".to_owned(), ..ask("w", "q") };
    let first = client.lease_task(poll.clone()).await.unwrap().into_inner();
    assert_eq!(client.lease_task(poll).await.unwrap().into_inner(), first);
}

#[tokio::test]
async fn large_tasks_come_in_answers_that_clients_can_read() {
    let served = Served::start().await;
    let mut client = served.worker("w").await;
    let large = Bytes::from(format!("\"{}\"", "x".repeat(1_000_000)));
    for _ in 0..6 {
        submit(&mut client, SubmitTask { payload: large.clone(), ..task("q") }).await;
    }
    let poll = LeaseTaskRequest { max_tasks: 100, ..ask("w", "q") };
    let mut leased = 0;
    while leased < 6 {
        let some = client.lease_task(poll.clone()).await.unwrap().into_inner().tasks;
        assert!((1..=4).contains(&some.len()));
        leased += some.len();
    }
}

#[tokio::test]
async fn tenants_do_not_see_each_other() {
    let served = Served::start().await;
    let mut client = served.worker("w").await;
    served.submit("q").await;
    let foreign = |message| {
        let mut request = Request::new(message);
        request.metadata_mut().insert("lessor-tenant", "other".parse().unwrap());
        request
    };
    is_refused(client.lease_task(foreign(ask("w", "q"))).await, Code::FailedPrecondition, "not_registered");
    let mut register = Request::new(registration("w"));
    register.metadata_mut().insert("lessor-tenant", "other".parse().unwrap());
    client.register_worker(register).await.unwrap();
    assert!(client.lease_task(foreign(ask("w", "q"))).await.unwrap().into_inner().tasks.is_empty());
    let mut nameless = Request::new(ask("w", "q"));
    nameless.metadata_mut().insert("lessor-tenant", "".parse().unwrap());
    is_refused(client.lease_task(nameless).await, Code::InvalidArgument, "invalid_scope");
}
