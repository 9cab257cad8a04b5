//! One test for each kind of timeline. The events are those that the authority would record.

use authority::event::*;
use authority::{Category, DeadReason, Digest, Properties, QueueDefaults, Scope, TaskError, TaskOptions};

use super::*;

const TASK: TaskId = TaskId(7);

/// Records at consecutive positions, each a number of seconds after the first.
struct Script(Vec<HistoryRecord>);

impl Script {
    /// A task that was submitted at second 0.
    fn new() -> Script {
        Script(Vec::new()).at(0, created(None, None))
    }

    fn at(mut self, second: u64, event: Event) -> Script {
        let position = Position(self.0.last().map_or(1, |record| record.position.0 + 1));
        self.0.push(HistoryRecord { position, at: Time(second * 1_000), event });
        self
    }

    /// Grants the next attempt to a worker.
    fn leased(self, second: u64, attempt: u32, worker: &str) -> Script {
        let expires_at = Time(second * 1_000 + 66_000);
        let (worker, length_ms) = (Arc::from(worker), 60_000);
        let (session, request) = (None, None);
        let granted = LeaseGranted {
            task: TASK,
            attempt,
            worker,
            session,
            request,
            length_ms,
            expires_at,
            contract: Some(authority::Contract::Leases),
        };
        self.at(second, Event::LeaseGranted(granted))
    }

    /// The position of the newest lease.
    fn lease(&self) -> Position {
        let granted = |record: &&HistoryRecord| matches!(record.event, Event::LeaseGranted(_));
        self.0.iter().rev().find(granted).unwrap().position
    }

    fn extended(self, second: u64) -> Script {
        let (lease, expires_at) = (self.lease(), Time(second * 1_000 + 66_000));
        self.at(second, Event::LeaseExtended(LeaseExtended { task: TASK, fencing_token: lease, expires_at }))
    }

    fn expired(self, second: u64, cause: ExpiryCause, exhausted: bool) -> Script {
        let lease = self.lease();
        self.at(
            second,
            Event::LeaseExpired(LeaseExpired {
                task: TASK,
                fencing_token: lease,
                cause,
                exhausted,
                since: None,
            }),
        )
    }

    fn released(self, second: u64, cause: ReleaseCause) -> Script {
        let lease = self.lease();
        self.at(second, Event::LeaseReleased(LeaseReleased { task: TASK, fencing_token: lease, cause }))
    }

    fn failed(self, second: u64, next: NextStep) -> Script {
        let (lease, digest) = (self.lease(), Digest([1; 16]));
        self.at(
            second,
            Event::TaskFailed(TaskFailed {
                task: TASK,
                fencing_token: lease,
                digest,
                error: error(),
                next,
                details: None,
            }),
        )
    }

    fn completed(self, second: u64) -> Script {
        let (lease, digest, result) = (self.lease(), Digest([1; 16]), Arc::from(*b"42"));
        self.at(
            second,
            Event::TaskCompleted(TaskCompleted {
                task: TASK,
                fencing_token: lease,
                digest,
                result,
                details: None,
            }),
        )
    }

    fn dead(self, second: u64, reason: DeadReason, detail: Option<&str>) -> Script {
        let detail = detail.map(Arc::from);
        self.at(second, Event::TaskDead(TaskDead { task: TASK, reason, detail, report: None, by: None }))
    }

    fn cancel_requested(self, second: u64, cause: CancelCause, reason: &str) -> Script {
        let grace_until = Time(second * 1_000 + 30_000);
        let reason = Arc::from(reason);
        let stop = CancelRequested { task: TASK, cause, reason, grace_until, by: None };
        self.at(second, Event::CancelRequested(stop))
    }

    fn discarded(self, second: u64, attempt: u32, lease: Position) -> Script {
        let digest = Digest([2; 16]);
        self.at(
            second,
            Event::TaskCancelled(TaskCancelled { task: TASK, fencing_token: lease, attempt, digest }),
        )
    }

    fn timeline(&self) -> Timeline {
        explain(TASK, &self.0, &QueueDefaults::default())
    }

    /// The text of every step after the first.
    fn render(&self) -> Vec<String> {
        self.timeline().steps.iter().skip(1).map(Step::render).collect()
    }
}

fn queue() -> Arc<QueueKey> {
    let scope = Scope { tenant: Arc::from("default"), workspace: Arc::from("default") };
    Arc::new(QueueKey { scope, name: Arc::from("mail") })
}

fn created(not_before: Option<Time>, options: Option<TaskOptions>) -> Event {
    Event::TaskCreated(Box::new(TaskCreated {
        task: TASK,
        queue: queue(),
        payload: Arc::from(*b"{}"),
        priority: 0,
        not_before,
        properties: Arc::new(Properties::default()),
        options: options.map(Arc::new),
        operation: None,
        by: None,
    }))
}

fn error() -> TaskError {
    TaskError { category: Category::UserCode, code: Some(Arc::from("E7")), message: Arc::from("boom") }
}

#[test]
fn a_plain_completion() {
    let script = Script::new().leased(5, 1, "w1").completed(17);
    assert_eq!(script.timeline().steps[0].render(), "submitted to queue mail");
    assert_eq!(
        script.render(),
        [
            "attempt 1 was given to w1 after waiting 5 s, with a lease of 60 s",
            "attempt 1 was completed by w1 after 12 s, with a result of 2 bytes",
        ]
    );
    let timeline = script.timeline();
    assert_eq!((timeline.waited_ms, timeline.ran_ms, timeline.attempts), (5_000, 12_000, 1));
    assert_eq!(
        timeline.summary(),
        "The task was given to a worker once; it was completed. It waited 5 s and ran 12 s in all."
    );
}

#[test]
fn a_lost_attempt_is_why_it_ran_twice() {
    let script = Script::new()
        .leased(0, 1, "w1")
        .extended(30)
        .expired(97, ExpiryCause::Silence, false)
        .leased(100, 2, "w2")
        .completed(110);
    assert_eq!(
        script.render()[1],
        "attempt 1 was lost after 97 s: w1 was not heard of for 67 s; the task waits again"
    );
    let timeline = script.timeline();
    assert_eq!(timeline.steps[2].extensions, Some(1));
    assert_eq!((timeline.waited_ms, timeline.ran_ms), (3_000, 107_000));
    assert!(
        timeline.summary().starts_with("The task was given to a worker 2 times (1 lost); it was completed.")
    );
}

#[test]
fn the_time_limit_of_an_attempt() {
    let script = Script::new().leased(0, 1, "w1").expired(10, ExpiryCause::Timeout, false);
    assert_eq!(
        script.render()[1],
        "attempt 1 was lost after 10 s: w1 reached the time limit of one attempt; the task waits again"
    );
    assert_eq!(script.timeline().state, Some(TaskState::Waiting));
}

#[test]
fn the_last_attempt_lost_is_death() {
    let script = Script::new().leased(0, 1, "w1").expired(70, ExpiryCause::Silence, true).dead(
        70,
        DeadReason::HeartbeatTimeout,
        None,
    );
    assert!(script.render()[1].ends_with("no attempt is left"));
    assert_eq!(script.render()[2], "the task is DEAD: its last attempt was lost, and none is left");
}

#[test]
fn a_failure_that_is_tried_again_waits_for_its_backoff_at_no_blame() {
    let script = Script::new()
        .leased(0, 1, "w1")
        .failed(4, NextStep::RetryAt(Time(6_000)))
        .leased(9, 2, "w1")
        .failed(10, NextStep::RetryAt(Time(10_000)));
    assert_eq!(
        script.render()[1],
        "attempt 1 failed after 4 s: w1 reported USER_CODE E7: boom; it is tried again in 2 s"
    );
    assert!(script.render()[2].contains("after waiting 3 s"), "the backoff is not waiting");
    assert!(script.render()[3].ends_with("it is tried again at once"));
}

#[test]
fn a_final_failure_says_whether_attempts_were_left() {
    let not_retryable = Script::new().leased(0, 1, "w1").failed(4, NextStep::Final);
    assert!(not_retryable.render()[1].ends_with("this error is not tried again, so the task is FAILED"));

    let options = TaskOptions { max_attempts: Some(1), ..TaskOptions::default() };
    let only = Script(Vec::new()).at(0, created(None, Some(options))).leased(0, 1, "w1");
    assert!(only.failed(1, NextStep::Final).render()[1].contains("the only attempt allowed"));

    let config = QueueConfig { max_attempts: Some(2), ..QueueConfig::default() };
    let configured = Event::QueueConfigured(QueueConfigured { queue: queue(), config, by: None });
    let last = Script(Vec::new())
        .at(0, configured)
        .at(0, created(None, None))
        .leased(0, 1, "w1")
        .failed(1, NextStep::RetryAt(Time(1_000)))
        .leased(2, 2, "w1")
        .failed(3, NextStep::Final);
    assert!(last.render()[3].ends_with("it was the last of 2 attempts, so the task is FAILED"));

    // "Attempt 4 … was the last of 3 attempts" contradicted itself.
    let retry = NextStep::RetryAt(Time(1_000));
    let script = Script::new().leased(0, 1, "w1").released(1, ReleaseCause::Worker).leased(2, 2, "w1");
    let script = script.failed(3, retry).leased(4, 3, "w1").failed(5, retry).leased(6, 4, "w1");
    let text = script.failed(7, NextStep::Final).render().pop().unwrap_or_default();
    assert!(text.contains("attempt 4 failed"), "{text}");
    assert!(
        text.ends_with("the last of 3 attempts, not counting 1 released, so the task is FAILED"),
        "{text}"
    );
}

#[test]
fn a_release_costs_no_attempt() {
    for (cause, why) in [
        (ReleaseCause::Worker, "w1 gave it back"),
        (ReleaseCause::Undelivered, "the lease could not be delivered to w1"),
        (ReleaseCause::Session, "w1 began a new session"),
    ] {
        let script = Script::new().leased(0, 1, "w1").released(1, cause).leased(2, 2, "w1");
        let script = script.failed(3, NextStep::Final);
        assert!(script.render()[1].contains(why) && script.render()[1].contains("does not count"));
        assert_eq!((script.timeline().attempts, script.timeline().releases), (2, 1));
        assert!(script.render()[3].contains("not tried again"), "one of three attempts was used");
    }
}

#[test]
fn a_cancel_while_it_waits() {
    let script = Script::new().dead(3, DeadReason::Cancelled, Some("user_requested"));
    assert_eq!(script.render(), ["the task is DEAD: it was cancelled while it waited (user_requested)"]);
    assert!(script.timeline().summary().contains("was never given to a worker; it is dead"));
}

#[test]
fn a_cancel_that_the_worker_obeys() {
    let script = Script::new().leased(0, 1, "w1").cancel_requested(5, CancelCause::User, "budget");
    assert_eq!(script.render()[1], "a cancel was asked for (budget); w1 has 30 s to stop");
    let (lease, digest) = (script.lease(), Digest([1; 16]));
    let report = Some(DeadReport { fencing_token: lease, digest, error: error(), details: None });
    let (reason, detail) = (DeadReason::Cancelled, Some(Arc::from("budget")));
    let script = script.at(8, Event::TaskDead(TaskDead { task: TASK, reason, detail, report, by: None }));
    assert_eq!(
        script.render()[2],
        "the task is DEAD: it was cancelled (budget); attempt 1 ended after 8 s: w1 reported USER_CODE E7: boom"
    );
}

#[test]
fn a_cancel_that_the_worker_ignores_or_does_not_live_to_see() {
    let asked = || Script::new().leased(0, 1, "w1").cancel_requested(5, CancelCause::User, "budget");
    let ignored = asked().dead(35, DeadReason::CancelTimeout, Some("budget"));
    assert_eq!(
        ignored.render()[2],
        "the task is DEAD: it was asked to stop (budget) and did not within its grace period; \
         attempt 1 by w1 was cut off after 35 s"
    );
    let silent = asked().dead(67, DeadReason::Cancelled, Some("budget"));
    assert!(silent.render()[2].ends_with("attempt 1 ended after 67 s: w1 was not heard of for 67 s"));
}

#[test]
fn a_completion_wins_over_a_cancel() {
    let script =
        Script::new().leased(0, 1, "w1").cancel_requested(5, CancelCause::User, "budget").completed(6);
    assert_eq!(script.timeline().state, Some(TaskState::Completed));
    assert!(script.render()[2].starts_with("attempt 1 was completed by w1"));
}

#[test]
fn a_deadline_waiting_and_leased() {
    let waiting = Script::new().dead(60, DeadReason::Deadline, None);
    assert!(
        waiting.timeline().summary().ends_with("It waited 60 s and ran 0 ms in all."),
        "{}",
        waiting.timeline().summary()
    );
    assert_eq!(waiting.render(), ["the task is DEAD: its deadline passed"]);
    let leased = Script::new().leased(0, 1, "w1").cancel_requested(60, CancelCause::Deadline, "deadline");
    assert_eq!(leased.render()[1], "the deadline passed; w1 has 30 s to stop");
}

#[test]
fn an_operator_ends_it() {
    let script = Script::new().leased(0, 1, "w1").dead(9, DeadReason::Killed, Some("runaway"));
    assert_eq!(
        script.render()[1],
        "the task is DEAD: it was ended from outside (runaway); attempt 1 by w1 was cut off after 9 s"
    );
}

#[test]
fn a_late_report_is_discarded_and_says_why() {
    let script = Script::new().leased(0, 1, "w1");
    let first = script.lease();
    let script = script
        .expired(70, ExpiryCause::Silence, false)
        .discarded(71, 1, first)
        .leased(72, 2, "w2")
        .completed(80)
        .discarded(90, 9, Position(999));
    assert_eq!(script.render()[2], "a late report of attempt 1 by w1 was discarded: its lease had run out");
    assert!(script.render()[5].ends_with("it had no authority any more"));
    assert_eq!(script.timeline().state, Some(TaskState::Completed), "a discarded report changes nothing");
}

#[test]
fn a_takeover_is_told_only_while_somebody_works_on_the_task_and_every_step_names_its_owner() {
    let takeover = |epoch, node| Event::OwnerTookOver(OwnerTookOver { epoch, node, audit_head: None });
    let (a, b): (Arc<str>, Arc<str>) = (Arc::from("a"), Arc::from("b"));
    let script =
        Script(Vec::new()).at(0, takeover(1, a.clone())).at(1, created(None, None)).leased(1, 1, "w1");
    let script =
        script.at(2, takeover(2, a.clone())).at(3, takeover(3, b.clone())).completed(4).at(5, takeover(4, a));
    let owners: Vec<_> = script.timeline().steps.iter().map(|step| step.owner.clone().unwrap()).collect();
    assert_eq!(owners.iter().map(|owner| &**owner).collect::<String>(), "aaabb");
    let kept = "attempt 1 by w1 kept its lease";
    assert_eq!(script.render()[1], format!("the coordinator was started again (epoch 2); {kept}"));
    assert_eq!(script.render()[2], format!("node b took over from node a (epoch 3); {kept}"));
}

#[test]
fn a_delay_that_was_asked_for_is_not_waiting() {
    let options = TaskOptions { redrive_of: Some(TaskId(6)), ..TaskOptions::default() };
    let script = Script(Vec::new()).at(0, created(Some(Time(60_000)), Some(options))).leased(61, 1, "w1");
    assert_eq!(
        script.timeline().steps[0].render(),
        "submitted to queue mail, not to be leased for 60 s, to do task 00000000-0000-0000-0000-000000000006 again"
    );
    assert_eq!(script.timeline().waited_ms, 1_000);
}

#[test]
fn started_by_another_and_joined_by_waiters() {
    let script = Script::new().leased(0, 1, "push");
    let lease = script.lease();
    let script = script
        .at(
            1,
            Event::AttemptStarted(AttemptStarted {
                task: TASK,
                fencing_token: lease,
                worker: Arc::from("pod-3"),
            }),
        )
        .at(2, Event::OperationAttached(OperationAttached { task: TASK, operation: Arc::from("op1") }))
        .at(
            3,
            Event::OperationDetached(OperationDetached { task: TASK, operation: Arc::from("op1"), by: None }),
        );
    assert_eq!(
        script.render()[1..],
        [
            "pod-3 began attempt 1",
            "op1 joined to wait for the outcome",
            "op1 no longer waits for the outcome"
        ]
    );
}

#[test]
fn a_purged_task_and_one_whose_beginning_is_trimmed() {
    let purged = Event::TasksPurged(TasksPurged { tasks: vec![TaskId(1), TASK] });
    let script = Script::new().leased(0, 1, "w1").completed(1).at(90_000, purged);
    assert!(script.timeline().is_purged && script.timeline().summary().contains("has been forgotten since"));

    let failed = Script::new().leased(0, 1, "w1").failed(1, NextStep::Final);
    let mut later = failed.0.clone();
    later.iter_mut().for_each(|record| record.position.0 += 10);
    let text = explain(TASK, &later, &QueueDefaults::default()).steps[2].render();
    assert!(text.ends_with("it is not tried again, so the task is FAILED"), "the settings may be trimmed");

    let rest = Script(script.0[1..].to_vec()).timeline();
    assert!(rest.is_truncated && rest.queue.is_none());
    assert_eq!(rest.steps[0].render(), "attempt 1 was given to w1, with a lease of 60 s");
}

#[test]
fn nothing_is_made_up_about_what_is_trimmed() {
    let purged = Event::TasksPurged(TasksPurged { tasks: vec![TASK] });
    let script = Script::new().leased(0, 1, "w1").completed(1).at(90_000, purged);
    let timeline = Script(script.0[3..].to_vec()).timeline();
    assert_eq!((timeline.state, timeline.is_purged, timeline.is_truncated), (None, true, true));
    assert_eq!(
        timeline.summary(),
        "The task is older than the records that are kept; how it stood is no longer known, and has been forgotten \
         since. It waited 0 ms and ran 0 ms as far as is known."
    );

    let held =
        Script::new().leased(0, 1, "w1").extended(30).cancel_requested(40, CancelCause::User, "budget");
    for start in 2..=3 {
        let timeline = Script(held.0[start..].to_vec()).timeline();
        assert_eq!(timeline.state, Some(TaskState::Leased), "it still is, whoever has it");
        assert!(
            timeline.summary().starts_with("The task is older than the records that are kept; it is leased.")
        );
    }

    let script = Script::new().leased(0, 1, "w1");
    let lease = script.lease();
    let late = script.completed(1).discarded(2, 1, lease);
    assert_eq!(
        Script(late.0[3..].to_vec()).timeline().state,
        None,
        "a discarded report says nothing of the task"
    );
}

#[test]
fn a_task_that_is_created_again_after_its_purge_begins_a_new_life() {
    let purged = Event::TasksPurged(TasksPurged { tasks: vec![TASK] });
    let script = Script::new()
        .leased(0, 1, "w1")
        .released(1, ReleaseCause::Worker)
        .leased(1, 2, "w1")
        .cancel_requested(2, CancelCause::User, "budget")
        .completed(3)
        .at(90_000, purged)
        .at(90_001, created(None, None))
        .leased(90_002, 1, "w2")
        .dead(90_003, DeadReason::Killed, None);
    let timeline = script.timeline();
    assert_eq!((timeline.state, timeline.is_purged), (Some(TaskState::Dead), false));
    assert_eq!(
        (timeline.attempts, timeline.releases, timeline.waited_ms, timeline.ran_ms),
        (1, 0, 1_000, 1_000)
    );
    assert!(matches!(timeline.steps.last().unwrap().kind, StepKind::Dead { cancel: None, .. }));
    assert_eq!(timeline.steps.len(), 10, "the first life is still there");
}

#[test]
fn other_tasks_are_none_of_its_business() {
    let mut other = Script::new().leased(0, 1, "w1").completed(1).0;
    for record in &mut other {
        if let Event::TaskCreated(event) = &mut record.event {
            event.task = TaskId(8);
        }
    }
    let timeline = explain(TaskId(8), &other, &QueueDefaults::default());
    assert_eq!((timeline.steps.len(), timeline.state), (1, Some(TaskState::Waiting)));
    assert_eq!(
        explain(TaskId(9), &other, &QueueDefaults::default()).summary(),
        "no record is about this task"
    );
}
