//! Operations by their names (R33, R42).

use bazel_remote_apis::build::bazel::remote::execution::v2::ActionResult;
use bazel_remote_apis::google::longrunning::{
    CancelOperationRequest, DeleteOperationRequest, GetOperationRequest, ListOperationsRequest,
    WaitOperationRequest,
};
use tonic::Code;

use crate::support::{Served, ask, response};

#[tokio::test]
async fn r42_an_operation_is_got_listed_waited_for_and_deleted() {
    let served = Served::start().await;
    let mut operations = served.operations().await;
    let mut waiting = served.execute(ask(&served.action(&["true"]).await)).await.unwrap();
    let name = waiting.name().await;
    let got =
        operations.get_operation(GetOperationRequest { name: name.clone() }).await.unwrap().into_inner();
    assert_eq!((got.name.as_str(), got.done), (name.as_str(), false));
    let listed = operations.list_operations(ListOperationsRequest::default()).await.unwrap().into_inner();
    assert_eq!(listed.operations.iter().map(|listed| &listed.name).collect::<Vec<_>>(), [&name]);
    let mut worker = served.worker("w").await;
    let task = worker.lease().await;
    let wait = WaitOperationRequest { name: name.clone(), timeout: None };
    let waited = tokio::spawn(async move { operations.wait_operation(wait).await });
    worker.complete(&task, ActionResult { exit_code: 5, ..ActionResult::default() }).await;
    let waited = waited.await.unwrap().unwrap().into_inner();
    assert_eq!(response(&waited).result.unwrap().exit_code, 5);
    let mut operations = served.operations().await;
    operations.delete_operation(DeleteOperationRequest { name: name.clone() }).await.unwrap();
    let gone = operations.get_operation(GetOperationRequest { name }).await.unwrap_err();
    assert_eq!(gone.code(), Code::NotFound);
    served.stop().await;
}

#[tokio::test]
async fn r42_pages_of_operations_hold_each_once() {
    let served = Served::start().await;
    let mut kept = Vec::new();
    let mut expected = Vec::new();
    for n in 0..7 {
        let mut waiting = served.execute(ask(&served.action(&["true", &n.to_string()]).await)).await.unwrap();
        expected.push(waiting.name().await);
        kept.push(waiting);
    }
    let mut operations = served.operations().await;
    let (mut listed, mut page_token) = (Vec::new(), String::new());
    loop {
        let request = ListOperationsRequest { page_size: 3, page_token, ..ListOperationsRequest::default() };
        let page = operations.list_operations(request).await.unwrap().into_inner();
        listed.extend(page.operations.into_iter().map(|operation| operation.name));
        page_token = page.next_page_token;
        if page_token.is_empty() {
            break;
        }
    }
    expected.reverse();
    assert_eq!(listed, expected, "the newest come first");
    let forged = ListOperationsRequest { page_token: "AAAA".into(), ..ListOperationsRequest::default() };
    assert_eq!(operations.list_operations(forged).await.unwrap_err().code(), Code::InvalidArgument);
    served.stop().await;
}

/// Thirty clients wait for one result of 300 kB: together more than a client takes in a message, with the others of the list.
#[tokio::test]
async fn r42_pages_of_operations_are_bounded_also_within_a_task() {
    let served = Served::start().await;
    let mut expected = Vec::new();
    let mut worker = served.worker("w").await;
    for n in 0..2 {
        let action = served.action(&["true", &n.to_string()]).await;
        let mut kept = Vec::new();
        for _ in 0..30 {
            let mut waiting = served.execute(ask(&action)).await.unwrap();
            expected.push(waiting.name().await);
            kept.push(waiting);
        }
        let task = worker.lease().await;
        worker.complete(&task, ActionResult { stdout_raw: vec![b'x'; 300_000], ..Default::default() }).await;
        for waiting in kept {
            waiting.response().await;
        }
    }
    let mut operations = served.operations().await;
    let (mut listed, mut page_token, mut pages) = (Vec::new(), String::new(), 0);
    loop {
        let request = ListOperationsRequest { page_token, ..ListOperationsRequest::default() };
        let page = operations.list_operations(request).await.unwrap().into_inner();
        for operation in page.operations {
            assert_eq!(response(&operation).result.unwrap().stdout_raw.len(), 300_000);
            listed.push(operation.name);
        }
        pages += 1;
        page_token = page.next_page_token;
        if page_token.is_empty() {
            break;
        }
    }
    assert!(pages >= 9, "two megabytes a page: {pages}");
    listed.sort();
    expected.sort();
    assert_eq!(listed, expected, "each comes once");
    served.stop().await;
}

#[tokio::test]
async fn names_that_nobody_was_given_are_not_found() {
    let served = Served::start().await;
    let mut operations = served.operations().await;
    for name in ["", "operations/", "x", "operations/01901234-5678-7000-bfff-ffffffffffff-00"] {
        let name = name.to_owned();
        let got = operations.get_operation(GetOperationRequest { name: name.clone() }).await.unwrap_err();
        assert_eq!(got.code(), Code::NotFound, "{name:?}");
        let cancelled = operations.cancel_operation(CancelOperationRequest { name: name.clone() }).await;
        assert_eq!(cancelled.unwrap_err().code(), Code::NotFound);
        assert_eq!(served.wait_execution(&name).await.err().unwrap().code(), Code::NotFound);
    }
    served.stop().await;
}

/// One tenant's operations are nobody else's business, even with the right name.
#[tokio::test]
async fn another_tenants_operation_is_not_found() {
    let served = Served::start().await;
    let mut waiting = served.execute(ask(&served.action(&["true"]).await)).await.unwrap();
    let name = waiting.name().await;
    let mut request = tonic::Request::new(GetOperationRequest { name });
    request.metadata_mut().insert("lessor-tenant", "other".parse().unwrap());
    assert_eq!(served.operations().await.get_operation(request).await.unwrap_err().code(), Code::NotFound);
    served.stop().await;
}
