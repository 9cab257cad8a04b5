//! Streams that are cut, and names that are not the caller's (N15, I17): who knows an operation's name finds it again, and
//! nobody else learns that it is there.

use bazel_remote_apis::build::bazel::remote::execution::v2::execution_client::ExecutionClient;
use bazel_remote_apis::build::bazel::remote::execution::v2::{ActionResult, WaitExecutionRequest};
use bazel_remote_apis::google::longrunning::{
    CancelOperationRequest, DeleteOperationRequest, GetOperationRequest, WaitOperationRequest,
};
use tonic::{Code, Request};

use crate::support::{Served, ask};

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
