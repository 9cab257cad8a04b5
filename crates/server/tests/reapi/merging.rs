//! Equal executions are one, unless somebody said otherwise; and they are still one after a restart.

use bazel_remote_apis::build::bazel::remote::execution::v2::ActionResult;
use bazel_remote_apis::google::longrunning::CancelOperationRequest;
use tonic::Code;

use crate::support::{Served, ask};

#[tokio::test]
async fn r44_equal_executions_in_flight_are_run_once() {
    let served = Served::start().await;
    let action = served.action(&["true"]).await;
    let mut waiting = Vec::new();
    for _ in 0..10 {
        waiting.push(served.execute(ask(&action)).await.unwrap());
    }
    assert_eq!(served.tasks().await, 1);
    let mut worker = served.worker("w").await;
    let task = worker.lease().await;
    worker
        .complete(&task, ActionResult { exit_code: 0, stdout_raw: b"once".to_vec(), ..Default::default() })
        .await;
    for waiting in waiting {
        assert_eq!(waiting.response().await.result.unwrap().stdout_raw, b"once");
    }
    served.stop().await;
}

/// R34, R35.
#[tokio::test]
async fn executions_that_must_be_fresh_or_are_not_cached_join_nobody() {
    let served = Served::start().await;
    let action = served.action(&["true"]).await;
    let uncached = served.action_with(&["date"], |action| action.do_not_cache = true).await;
    let mut kept = vec![served.execute(ask(&action)).await.unwrap()];
    let mut fresh = ask(&action);
    fresh.skip_cache_lookup = true;
    kept.push(served.execute(fresh).await.unwrap());
    assert_eq!(served.tasks().await, 2);
    kept.push(served.execute(ask(&uncached)).await.unwrap());
    kept.push(served.execute(ask(&uncached)).await.unwrap());
    assert_eq!(served.tasks().await, 4);
    kept.push(served.execute(ask(&action)).await.unwrap());
    assert_eq!(served.tasks().await, 4, "this one may join either of the first");
    served.stop().await;
}

#[tokio::test]
async fn r42_cancelling_one_waiter_leaves_the_others() {
    let served = Served::start().await;
    let action = served.action(&["true"]).await;
    let mut leaves = served.execute(ask(&action)).await.unwrap();
    let mut stays = served.execute(ask(&action)).await.unwrap();
    let (gone, _) = (leaves.name().await, stays.name().await);
    let mut operations = served.operations().await;
    operations.cancel_operation(CancelOperationRequest { name: gone.clone() }).await.unwrap();
    assert_eq!(leaves.response().await.status.unwrap().code, Code::Cancelled as i32);
    let mut worker = served.worker("w").await;
    let task = worker.lease().await;
    worker.complete(&task, ActionResult::default()).await;
    assert_eq!(stays.response().await.result.unwrap().exit_code, 0);
    served.stop().await;
}

#[tokio::test]
async fn r42_cancelling_the_only_waiter_ends_the_execution() {
    let served = Served::start().await;
    let mut waiting = served.execute(ask(&served.action(&["true"]).await)).await.unwrap();
    let name = waiting.name().await;
    served.operations().await.cancel_operation(CancelOperationRequest { name }).await.unwrap();
    assert_eq!(waiting.response().await.status.unwrap().code, Code::Cancelled as i32);
    served.stop().await;
}

/// R33: names, results and merging survive a restart.
#[tokio::test]
async fn an_operation_is_found_again_after_a_restart_and_equal_ones_still_join_it() {
    let served = Served::start().await;
    let action = served.action(&["true"]).await;
    let mut waiting = served.execute(ask(&action)).await.unwrap();
    let name = waiting.name().await;
    let served = served.restart().await;
    let again = served.wait_execution(&name).await.unwrap();
    let joined = served.execute(ask(&action)).await.unwrap();
    assert_eq!(served.tasks().await, 1);
    let mut worker = served.worker("w").await;
    let task = worker.lease().await;
    worker.complete(&task, ActionResult { exit_code: 4, ..Default::default() }).await;
    for waiting in [again, joined] {
        assert_eq!(waiting.response().await.result.unwrap().exit_code, 4);
    }
    let served = served.restart().await;
    let late = served.wait_execution(&name).await.unwrap();
    assert_eq!(late.response().await.result.unwrap().exit_code, 4);
    let guessed = format!("{}0", &name[..name.len() - 1]);
    if guessed != name {
        assert_eq!(served.wait_execution(&guessed).await.err().unwrap().code(), Code::NotFound);
    }
    served.stop().await;
}
