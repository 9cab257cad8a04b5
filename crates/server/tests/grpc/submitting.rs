//! SubmitTasks: each task is accepted or refused on its own.

use bytes::Bytes;
use tonic::Code;
use wire::grpc::{Backoff, SubmitTask, SubmitTasksRequest, TaskState};

use crate::support::{Served, is_refused, lease, submit, task};

#[tokio::test]
async fn one_bad_task_does_not_spoil_the_others() {
    let served = Served::start().await;
    let mut client = served.client().await;
    let bad_times = prost_types::Timestamp { seconds: i64::MAX, nanos: 0 };
    let tasks = vec![
        task("q"),
        task(""),
        SubmitTask { payload: Bytes::from_static(b"{"), ..task("q") },
        SubmitTask { payload: Bytes::from_static(b"\"\xff\""), ..task("q") },
        SubmitTask { payload: Bytes::from_static(br#"{"a":1,"a":2}"#), ..task("q") },
        SubmitTask { deadline: Some(bad_times), ..task("q") },
        SubmitTask { resources_json: Bytes::from_static(b"[]"), ..task("q") },
        SubmitTask { backoff: Some(Backoff { factor: Some(0.5), ..Backoff::default() }), ..task("q") },
        SubmitTask { payload: Bytes::new(), ..task("q") },
    ];
    let answer = client.submit_tasks(SubmitTasksRequest { tasks }).await.unwrap().into_inner().tasks;
    let accepted: Vec<_> = answer.iter().map(|task| task.problem.is_none()).collect();
    assert_eq!(accepted, [true, false, false, false, false, false, false, false, true]);
    for refused in answer.iter().filter_map(|task| task.problem.as_ref()) {
        assert_eq!((refused.status, refused.code.as_str()), (Code::InvalidArgument as i32, "invalid_field"));
        assert!(!refused.field.is_empty(), "{refused:?}");
    }
    assert_eq!(answer[0].state(), TaskState::Waiting);
    assert!(served.task(&answer[8].task_id).await["payload"].is_null());
}

#[tokio::test]
async fn a_dedup_key_gives_the_same_task_or_a_conflict() {
    let served = Served::start().await;
    let mut client = served.worker("w").await;
    let keyed = SubmitTask { dedup_key: "k".to_owned(), ..task("q") };
    let first = submit(&mut client, keyed.clone()).await;
    lease(&mut client, "w", "q").await;
    let other = SubmitTask { payload: Bytes::from_static(b"2"), ..keyed.clone() };
    let request = SubmitTasksRequest { tasks: vec![keyed, other] };
    let answer = client.submit_tasks(request).await.unwrap().into_inner().tasks;
    assert_eq!((&answer[0].task_id, answer[0].state()), (&first, TaskState::Leased));
    let problem = answer[1].problem.as_ref().unwrap();
    assert_eq!((problem.status, problem.code.as_str()), (Code::AlreadyExists as i32, "dedup_conflict"));
}

#[tokio::test]
async fn too_many_tasks_are_refused_together() {
    let served = Served::start().await;
    let mut client = served.client().await;
    let position = served.position().await;
    let many = SubmitTasksRequest { tasks: vec![task("q"); 1_001] };
    is_refused(client.submit_tasks(many).await, Code::InvalidArgument, "too_many_tasks");
    assert_eq!(served.position().await, position);
    assert!(client.submit_tasks(SubmitTasksRequest::default()).await.unwrap().into_inner().tasks.is_empty());
}
