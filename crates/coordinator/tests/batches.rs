//! A batch of commands and heartbeats: each is decided on its own, in order, and all are answered once all are durable.

mod support;

use std::time::Duration;

use authority::command::{
    ExtendAnswer, ExtendLease, LeaseTasks, ReleaseAnswer, ReleaseLease, ReportCompletion, Verdict,
};
use authority::event::ReleaseCause;
use authority::{Answer, Command, Digest, Outcome, Rejection, TaskState};
use coordinator::{BatchItem, Progress};
use support::{completion, lease, lease_ref, scope, start, submit};

#[tokio::test]
async fn each_item_has_its_own_answer_and_sees_what_the_items_before_it_did() {
    let directory = tempfile::tempdir().unwrap();
    let running = start(directory.path());
    let handle = &running.handle;
    handle.submit_batch(vec![submit(1, "q"), submit(2, "q")]).await.unwrap();
    let grants = handle.lease(LeaseTasks { max_tasks: 2, ..lease("w", "q") }, Duration::ZERO).await.unwrap();
    let (one, two) = (&grants[0], &grants[1]);
    let other_story = ReportCompletion { digest: Digest([8; 16]), ..completion("w", one) };
    let report = |report: ReportCompletion| BatchItem::Command(Command::ReportCompletion(report));
    let progress = Progress { percent: Some(50.0), ..Progress::default() };
    let items = vec![
        report(completion("w", one)),
        report(completion("w", one)),
        report(other_story),
        BatchItem::Heartbeat { extend: ExtendLease { lease: lease_ref("w", one) }, progress: None },
        BatchItem::Heartbeat { extend: ExtendLease { lease: lease_ref("w", two) }, progress: Some(progress) },
        BatchItem::Command(Command::ReleaseLease(ReleaseLease {
            lease: lease_ref("w", two),
            cause: ReleaseCause::Worker,
        })),
    ];
    let before = handle.status().await.unwrap().position;
    let answers = handle.decide(items.into()).await.unwrap();
    let committed = Answer::Reported(Verdict::Committed(Outcome::Completed));
    assert_eq!(answers[0], committed);
    assert_eq!(answers[1], committed);
    assert_eq!(answers[2], Answer::Reported(Verdict::Rejected(Rejection::ConflictingReport)));
    assert_eq!(answers[3], Answer::Extended(ExtendAnswer::Lost));
    assert!(matches!(answers[4], Answer::Extended(ExtendAnswer::Extended { .. })));
    assert_eq!(answers[5], Answer::Released(ReleaseAnswer::Over(TaskState::Waiting)));
    let after = handle.status().await.unwrap().position;
    assert_eq!(after.0, before.0 + 2, "one completion and one release are all that was recorded");
    running.stop().await.unwrap();
}

#[tokio::test]
async fn what_a_worker_holds_is_listed_by_scope_and_survives_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let running = start(directory.path());
    running.handle.submit(submit(1, "q")).await.unwrap();
    let session = LeaseTasks { session: Some("s".into()), ..lease("w", "q") };
    let grant = running.handle.lease(session, Duration::ZERO).await.unwrap().remove(0);
    running.stop().await.unwrap();
    let running = start(directory.path());
    let held = running.handle.leases(scope(), "w".into()).await.unwrap();
    assert_eq!(held.len(), 1);
    assert_eq!((&held[0].lease, held[0].session.as_deref()), (&lease_ref("w", &grant), Some("s")));
    assert!(running.handle.leases(scope(), "v".into()).await.unwrap().is_empty());
    let elsewhere = authority::Scope { workspace: "other".into(), ..scope() };
    assert!(running.handle.leases(elsewhere, "w".into()).await.unwrap().is_empty());
    running.stop().await.unwrap();
}
