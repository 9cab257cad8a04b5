//! Equal executions are one, unless somebody said otherwise; and they are still one after a restart.

use bazel_remote_apis::build::bazel::remote::execution::v2::ActionResult;
use bazel_remote_apis::google::longrunning::CancelOperationRequest;
use tonic::Code;

use crate::support::{Served, ask, in_time};

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

/// As many clients wait as may. The server, which waits for each execution as well, once gave up on new ones then: they lost
/// their pins, and equal ones were executed again.
#[tokio::test]
async fn r35_equal_executions_are_merged_also_when_no_further_client_may_wait() {
    const MAX_WAITS: usize = 20_000;
    let served = Served::start().await;
    let _other = served.execute(ask(&served.action(&["other"]).await)).await.unwrap();
    let scope = authority::Scope { tenant: "default".into(), workspace: "default".into() };
    let handle = served.running.handle.clone();
    let listed = handle.list(scope.clone(), None, None, None, 1).await.unwrap();
    let task = listed.tasks[0].task.id;
    let mut waits = tokio::task::JoinSet::new();
    for _ in 0..=MAX_WAITS {
        let (handle, scope) = (handle.clone(), scope.clone());
        let wanted = coordinator::WaitCondition::Final;
        let wait = std::time::Duration::from_secs(3_600);
        waits.spawn(async move { handle.wait_task(scope, task, wanted, wait).await });
    }
    let refused = in_time(waits.join_next()).await.unwrap().unwrap();
    assert_eq!(refused.unwrap_err(), coordinator::Unavailable::Overloaded, "all places are taken");
    let action = served.action(&["true"]).await;
    let _first = served.execute(ask(&action)).await.unwrap();
    // Whoever is refused a wait hears of it before this is answered.
    handle.status().await.unwrap();
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    let _second = served.execute(ask(&action)).await.unwrap();
    assert_eq!(served.tasks().await, 2, "the other one, and this one once");
    waits.abort_all();
    served.stop().await;
}
