//! LeaseTask: what is leased, to whom, and how long a worker waits.

use std::collections::HashMap;
use std::time::Instant;

use bytes::Bytes;
use serde_json::json;
use tonic::Code;
use wire::grpc::{LeaseTaskRequest, RegisterWorkerRequest, SubmitTask, SubmitTasksRequest};

use super::{WAIT_S, Worker, client, done, refused, scoped, submit, task};
use crate::finding::must;
use crate::{Check, Finding, Subject};

pub(super) const CHECKS: &[Check] = &[
    Check::new(
        &["S3-10", "S3-32"],
        "a poll waits for a task, and ends with an empty list when none comes",
        |s| Box::pin(waits(s)),
    ),
    Check::new(&["S3-17", "S3-18"], "max_tasks is what a worker is given at the most", |s| {
        Box::pin(max_tasks(s))
    }),
    Check::new(&["S3-19", "S3-29"], "a leased task has its id, its timeout and the end of its lease", |s| {
        Box::pin(fields(s))
    }),
    Check::new(
        &["S3-27"],
        "what was submitted with a task comes to its worker, the most urgent first",
        |s| Box::pin(queued(s)),
    ),
    Check::new(&["S3-31"], "a full queue refuses submits with RESOURCE_EXHAUSTED", |s| Box::pin(full(s))),
    Check::new(&["S3-34"], "a task goes to a worker whose platform fits", |s| Box::pin(platform(s))),
    Check::new(&["S3-17"], "a malformed poll is INVALID_ARGUMENT", |s| Box::pin(malformed(s))),
];

async fn waits(subject: &Subject) -> Result<(), Finding> {
    let (worker, queue) = (Worker::register(subject).await?, subject.queue());
    let submit = async {
        tokio::task::yield_now().await;
        submit(subject, task(&queue)).await
    };
    let (leased, id) = tokio::join!(worker.lease(&queue), submit);
    let (leased, id) = (leased?, id?);
    must(leased.task_id == id, || format!("LeaseTask gave {}, and {id} was expected", leased.task_id))?;
    let start = Instant::now();
    let tasks = worker.poll(LeaseTaskRequest { timeout_seconds: 1, ..worker.ask(&queue) }).await?;
    must(tasks.is_empty(), || "a leased task was leased again".into())?;
    must(start.elapsed().as_millis() >= 800, || {
        format!("a poll with timeout_seconds 1 ended empty after {} ms", start.elapsed().as_millis())
    })
}

async fn max_tasks(subject: &Subject) -> Result<(), Finding> {
    let (worker, queue) = (Worker::register(subject).await?, subject.queue());
    let five = SubmitTasksRequest { tasks: vec![task(&queue); 5] };
    done("SubmitTasks", client(subject).submit_tasks(scoped(subject, five)).await)?;
    for (asked, given) in [(0, 0), (3, 3), (100, 2)] {
        let tasks = worker.poll(LeaseTaskRequest { max_tasks: asked, ..worker.ask(&queue) }).await?;
        must(tasks.len() == given, || {
            format!("max_tasks {asked} gave {}, and {given} was expected", tasks.len())
        })?;
    }
    Ok(())
}

async fn fields(subject: &Subject) -> Result<(), Finding> {
    let (worker, queue) = (Worker::register(subject).await?, subject.queue());
    let id = submit(subject, SubmitTask { timeout_ms: 90_500, ..task(&queue) }).await?;
    let leased = worker.lease(&queue).await?;
    must(leased.task_id == id && leased.queue == queue, || format!("LeaseTask gave {leased:?}"))?;
    let timeout = leased.timeout.unwrap_or_default();
    must((timeout.seconds, timeout.nanos) == (90, 500_000_000), || format!("`timeout` came as {timeout:?}"))?;
    let (granted, expires) =
        (leased.granted_at.unwrap_or_default(), leased.lease_expires_at.unwrap_or_default());
    must(expires.seconds > granted.seconds && granted.seconds > 0, || {
        format!("the lease was granted at {granted:?} and expires at {expires:?}")
    })?;
    must(leased.attempt == 1 && !leased.lease_id.is_empty() && leased.fencing_token > 0, || {
        format!("`attempt`, `lease_id` or `fencing_token` is missing: {leased:?}")
    })?;
    must(leased.heartbeat_interval.is_some(), || "`heartbeat_interval` is missing".into())
}

async fn queued(subject: &Subject) -> Result<(), Finding> {
    let (worker, queue) = (Worker::register(subject).await?, subject.queue());
    let later = submit(subject, SubmitTask { priority: 5, ..task(&queue) }).await?;
    let deadline = prost_types::Timestamp { seconds: 4_000_000_000, nanos: 0 };
    let urgent = SubmitTask {
        payload: Bytes::from_static(br#"{"a":[1,null]}"#),
        priority: -5,
        deadline: Some(deadline),
        run_id: "run_1".to_owned(),
        asset_id: "asset".to_owned(),
        task_key: "key".to_owned(),
        resources_json: Bytes::from_static(br#"{"cpu":2}"#),
        ..task(&queue)
    };
    let sooner = submit(subject, urgent.clone()).await?;
    let first = worker.lease(&queue).await?;
    must(first.task_id == sooner, || "the task with priority 5 came before the one with -5".into())?;
    let as_told = (
        &first.payload,
        first.deadline,
        &first.run_id,
        &first.asset_id,
        &first.task_key,
        &first.resources_json,
    );
    let as_said = (
        &urgent.payload,
        urgent.deadline,
        &urgent.run_id,
        &urgent.asset_id,
        &urgent.task_key,
        &urgent.resources_json,
    );
    must(as_told == as_said, || format!("{as_said:?} was submitted, and came as {as_told:?}"))?;
    let second = worker.lease(&queue).await?;
    must(second.task_id == later, || "the task with priority 5 did not come".into())
}

async fn full(subject: &Subject) -> Result<(), Finding> {
    let queue = subject.queue_with(json!({"maxQueueSize": 1})).await?;
    submit(subject, task(&queue)).await?;
    let more = SubmitTasksRequest { tasks: vec![task(&queue)] };
    let answer = client(subject).submit_tasks(scoped(subject, more)).await;
    refused("SubmitTasks to a full queue", answer, &[Code::ResourceExhausted])
}

async fn platform(subject: &Subject) -> Result<(), Finding> {
    let queue = subject.queue();
    let pairs = |arch: &str| HashMap::from([("Arch".to_owned(), arch.to_owned())]);
    let id = submit(subject, SubmitTask { properties: pairs("arm64"), ..task(&queue) }).await?;
    let (arm, x86) = (Worker::register(subject).await?, Worker::register(subject).await?);
    for (worker, arch) in [(&arm, "arm64"), (&x86, "x86-64")] {
        let platform_properties = pairs(arch);
        worker.register_as(RegisterWorkerRequest { platform_properties, ..worker.registration() }).await?;
    }
    let tasks = x86.poll(x86.ask(&queue)).await?;
    must(tasks.is_empty(), || "a task for arm64 was given to a worker that offers x86-64".into())?;
    let leased = arm.lease(&queue).await?;
    must(leased.task_id == id, || format!("LeaseTask gave {}, and {id} was expected", leased.task_id))
}

async fn malformed(subject: &Subject) -> Result<(), Finding> {
    let (worker, queue) = (Worker::register(subject).await?, subject.queue());
    for poll in [
        LeaseTaskRequest { max_tasks: -1, ..worker.ask(&queue) },
        LeaseTaskRequest { timeout_seconds: -WAIT_S, ..worker.ask(&queue) },
        LeaseTaskRequest { worker_id: String::new(), ..worker.ask(&queue) },
    ] {
        let answer = client(subject).lease_task(scoped(subject, poll)).await;
        refused("a malformed LeaseTask", answer, &[Code::InvalidArgument])?;
    }
    Ok(())
}
