//! Streams that are cut, and names that are not the caller's (N15, I17): who knows an operation's name finds it again, and
//! nobody else learns that it is there.

use bazel_remote_apis::build::bazel::remote::execution::v2::execution_client::ExecutionClient;
use bazel_remote_apis::build::bazel::remote::execution::v2::{ActionResult, WaitExecutionRequest};
use bazel_remote_apis::google::longrunning::{
    CancelOperationRequest, DeleteOperationRequest, GetOperationRequest, WaitOperationRequest,
};
use tonic::{Code, Request};

use crate::support::{Served, ask, in_time};

fn result() -> ActionResult {
    ActionResult { exit_code: 3, ..ActionResult::default() }
}

/// A load balancer that cuts streams every minute, at each stage.
#[tokio::test]
async fn n15_a_client_whose_stream_is_cut_attaches_again_and_makes_no_second_task() {
    let served = Served::start().await;
    let action = served.action(&["true"]).await;
    let mut first = served.execute(ask(&action)).await.unwrap();
    let name = first.name().await;
    drop(first);
    let mut worker = served.worker("w").await;
    let mut second = served.wait_execution(&name).await.unwrap();
    assert_eq!(second.name().await, name);
    let task = worker.lease().await;
    drop(second);
    let third = served.wait_execution(&name).await.unwrap();
    // A client that has lost the name as well asks for the same action again.
    let other = served.execute(ask(&action)).await.unwrap();
    worker.complete(&task, result()).await;
    assert_eq!(third.response().await.result.unwrap().exit_code, 3);
    assert_eq!(other.response().await.result.unwrap().exit_code, 3);
    let late = served.wait_execution(&name).await.unwrap();
    assert_eq!(late.response().await.result.unwrap().exit_code, 3, "also when it is over");
    assert_eq!(served.tasks().await, 1);
    served.stop().await;
}

#[tokio::test]
async fn n15_a_cut_by_a_restart_is_like_any_other() {
    let served = Served::start().await;
    let action = served.action(&["true"]).await;
    let mut waiting = served.execute(ask(&action)).await.unwrap();
    let name = waiting.name().await;
    let served = served.restart().await;
    let again = served.wait_execution(&name).await.unwrap();
    let other = served.execute(ask(&action)).await.unwrap();
    let mut worker = served.worker("w").await;
    let task = worker.lease().await;
    worker.complete(&task, result()).await;
    assert_eq!(again.response().await.result.unwrap().exit_code, 3);
    assert_eq!(other.response().await.result.unwrap().exit_code, 3);
    assert_eq!(served.tasks().await, 1);
    served.stop().await;
}

/// One record wakes the whole crowd. Whoever finds no place is told to come back, and the others are not disturbed.
#[tokio::test]
async fn a2_a_crowd_that_waits_for_one_operation_is_bounded_and_woken_together() {
    const CONNECTIONS: usize = 4;
    const STREAMS: usize = 100;
    const MAX_WAITS: usize = 20_000;
    let served = Served::start().await;
    let action = served.action(&["true"]).await;
    let name = served.execute(ask(&action)).await.unwrap().name().await;
    let mut crowd = Vec::new();
    for _ in 0..CONNECTIONS {
        let mut client = ExecutionClient::new(served.channel().await);
        for _ in 0..STREAMS {
            let request = WaitExecutionRequest { name: name.clone() };
            let mut stream = client.wait_execution(request).await.unwrap().into_inner();
            assert!(!in_time(stream.message()).await.unwrap().unwrap().done);
            crowd.push(stream);
        }
    }
    let scope = authority::Scope { tenant: "default".into(), workspace: "default".into() };
    let handle = served.running.handle.clone();
    let task = handle.list(scope.clone(), None, None, None, 1).await.unwrap().tasks[0].task.id;
    let mut waits = tokio::task::JoinSet::new();
    for _ in 0..=MAX_WAITS {
        let (handle, scope) = (handle.clone(), scope.clone());
        let wait = std::time::Duration::from_secs(3_600);
        waits.spawn(
            async move { handle.wait_task(scope, task, coordinator::WaitCondition::Final, wait).await },
        );
    }
    in_time(waits.join_next()).await.unwrap().unwrap().expect_err("all places are taken");
    let mut client = ExecutionClient::new(served.channel().await);
    let mut late = client.wait_execution(WaitExecutionRequest { name }).await.unwrap().into_inner();
    let refused = loop {
        match in_time(late.message()).await {
            Ok(message) => assert!(!message.expect("there is more").done),
            Err(status) => break status,
        }
    };
    assert_eq!(refused.code(), Code::ResourceExhausted, "{refused:?}");
    waits.abort_all();
    while waits.join_next().await.is_some() {}

    let before = handle.status().await.unwrap().position;
    let mut worker = served.worker("w").await;
    let task = worker.lease().await;
    worker.complete(&task, result()).await;
    for mut stream in crowd {
        while !in_time(stream.message()).await.unwrap().expect("there is more").done {}
    }
    let records = handle.status().await.unwrap().position.0 - before.0;
    assert!(records <= 4, "{records} records for one execution");
    served.stop().await;
}

/// Absent, foreign and almost right names get the same answer.
#[tokio::test]
async fn i17_what_is_not_the_callers_is_not_found_whatever_is_done_with_it() {
    let served = Served::start().await;
    let name = served.execute(ask(&served.action(&["true"]).await)).await.unwrap().name().await;
    let mut guessed = name.clone();
    let last = guessed.pop().unwrap();
    guessed.push(if last == '0' { '1' } else { '0' });
    let absent = "operations/01901234-5678-7000-bfff-ffffffffffff-00".to_owned();
    let instead = format!("other/{name}");
    let mut told = Vec::new();
    for (tenant, name) in
        [("other", &name), ("default", &guessed), ("default", &absent), ("default", &instead)]
    {
        fn from<T>(tenant: &str, message: T) -> Request<T> {
            let mut request = Request::new(message);
            request.metadata_mut().insert("lessor-tenant", tenant.parse().unwrap());
            request
        }
        let mut operations = served.operations().await;
        let mut executions = ExecutionClient::new(served.channel().await);
        let mut refused = vec![
            executions
                .wait_execution(from(tenant, WaitExecutionRequest { name: name.clone() }))
                .await
                .map(drop)
                .unwrap_err(),
            operations
                .get_operation(from(tenant, GetOperationRequest { name: name.clone() }))
                .await
                .map(drop)
                .unwrap_err(),
            operations
                .cancel_operation(from(tenant, CancelOperationRequest { name: name.clone() }))
                .await
                .map(drop)
                .unwrap_err(),
            operations
                .delete_operation(from(tenant, DeleteOperationRequest { name: name.clone() }))
                .await
                .map(drop)
                .unwrap_err(),
            operations
                .wait_operation(from(tenant, WaitOperationRequest { name: name.clone(), timeout: None }))
                .await
                .map(drop)
                .unwrap_err(),
        ];
        assert!(refused.iter().all(|status| status.code() == Code::NotFound), "{refused:?}");
        told.push(refused.remove(0).message().replace(name.as_str(), "NAME"));
    }
    assert!(told.iter().all(|words| *words == told[0]), "the same words for all: {told:?}");
    assert_eq!(served.wait_execution(&name).await.unwrap().name().await, name, "it is untouched");
    served.stop().await;
}
