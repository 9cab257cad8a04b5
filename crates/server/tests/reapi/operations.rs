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
