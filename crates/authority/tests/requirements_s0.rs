//! The worker protocol, one test for each of its numbers that the authority can keep. What a worker must do with
//! an answer (S0-8, S0-13, S0-15 … S0-17, S0-21 … S0-24) is proved where workers are written.

use std::sync::Arc;

use authority::command::*;
use authority::{
    Answer, Category, Command, LeaseRef, Outcome, Position, QueueConfig, Rejection, TaskId, TaskOptions,
    TaskState, Time,
};

use crate::support::{Actor, World, commands, replay};

#[test]
fn s0_1_only_the_coordinator_decides_what_becomes_of_a_report() {
    let mut world = World::new();
    let config = QueueConfig { retry_on: Some(vec![Category::Timeout]), ..commands::quick_queue() };
    world.run(commands::configure("q", config));
    world.submit(1);
    let lease = world.lease("w1");
    let wish = commands::fail_as(&lease, Category::UserCode, "please again", Some(true));
    assert_eq!(world.run(wish), Answer::Reported(Verdict::Committed(Outcome::Failed)));
}

#[test]
fn s0_2_a_worker_that_breaks_the_contract_harms_no_other() {
    let mut world = World::quick();
    world.submit_all(1..=2);
    let (bad, good) = (world.lease("bad"), world.lease("good"));
    for command in [
        commands::complete(&LeaseRef { worker: Arc::from("bad"), ..good.clone() }, "lie"),
        commands::complete(&LeaseRef { task: good.task, ..bad.clone() }, "lie"),
        commands::release(&LeaseRef { worker: Arc::from("bad"), ..good.clone() }),
        commands::heartbeat(&LeaseRef { fencing_token: Position(u64::MAX), ..good.clone() }),
        commands::session("bad", "s"),
    ] {
        world.run(command);
        assert_eq!(world.lease_ref(good.task), good);
    }
    assert_eq!(world.complete(&good, "1"), Verdict::Committed(Outcome::Completed));
}

#[test]
fn s0_3_the_loop_of_a_worker_leads_from_lease_to_end() {
    let mut world = World::quick();
    let id = world.submit(1);
    let lease = world.lease("w1");
    for beat in 1..=5 {
        world.at(beat * 900);
        assert!(matches!(world.heartbeat(&lease), ExtendAnswer::Extended { cancel: None, .. }));
    }
    assert_eq!(world.complete(&lease, "1"), Verdict::Committed(Outcome::Completed));
    assert_eq!((world.state_of(id), world.task(id).attempt), (TaskState::Completed, 1));
}

/// The authority's part: a request whose answer was lost may be repeated at every step.
#[test]
fn s0_4_every_request_may_be_repeated_after_a_lost_answer() {
    let mut world = World::quick();
    world.submit_all(1..=2);
    let request = Some(commands::digest("r1"));
    let ask = Command::LeaseTasks(LeaseTasks { request, ..commands::lease_tasks("w1", 1) });
    let Answer::Leased(mut first) = world.run(ask.clone()) else { panic!("not leased") };
    // What made the task wait is no part of a lease, so only the first telling says it.
    first.iter_mut().for_each(|grant| grant.since = None);
    assert_eq!(world.run(ask), Answer::Leased(first), "the same lease, and no second task");
    let lease = world.lease_ref(TaskId(1));
    world.at(500);
    assert_eq!(world.heartbeat(&lease), world.heartbeat(&lease));
    assert_eq!(world.fail(&lease, "boom"), world.fail(&lease, "boom"));
}

#[test]
fn s0_5_every_report_gets_exactly_one_of_three_verdicts() {
    for seed in 100..130 {
        let (mut world, mut actor) = (World::new(), Actor::new(seed));
        for _ in 0..200 {
            let (command, _, answer) = actor.step(&mut world);
            if matches!(command, Command::ReportCompletion(_) | Command::ReportFailure(_)) {
                let Answer::Reported(verdict) = answer else { panic!("{command:?} got {answer:?}") };
                match verdict {
                    Verdict::Committed(_) | Verdict::Cancelled | Verdict::Rejected(_) => {}
                }
            }
        }
    }
}

#[test]
fn s0_6_a_verdict_is_final_for_its_attempt() {
    let (mut world, first) = World::leased();
    world.at(1_101);
    assert_eq!(world.complete(&first, "1"), Verdict::Cancelled);
    let second = world.lease("w2");
    assert_eq!(world.complete(&second, "2"), Verdict::Committed(Outcome::Completed));
    for time in [2_000, 50_000, 1_000_000] {
        world.at(time);
        assert_eq!(world.complete(&first, "1"), Verdict::Cancelled);
        assert_eq!(world.complete(&second, "2"), Verdict::Committed(Outcome::Completed));
    }
    assert_eq!(replay(&world.log).check_invariants(), Ok(()));
}

#[test]
fn s0_7_committed_means_a_valid_lease_an_accepted_result_and_an_end() {
    let (mut world, lease) = World::leased();
    assert_eq!(world.complete(&lease, "1"), Verdict::Committed(Outcome::Completed));
    assert_eq!(world.state_of(lease.task), TaskState::Completed);
    // For a failure the answer says what became of the task: the end, or another wait (C31).
    world.run(commands::submit_with(2, TaskOptions { max_attempts: Some(1), ..TaskOptions::default() }));
    let lease = world.lease("w1");
    assert_eq!(world.fail(&lease, "boom"), Verdict::Committed(Outcome::Failed));
    assert_eq!(world.state_of(lease.task), TaskState::Failed);
}

#[test]
fn s0_9_no_result_is_accepted_without_committed() {
    let (mut world, lease) = World::leased();
    let thief = LeaseRef { worker: Arc::from("thief"), ..lease.clone() };
    assert!(matches!(world.complete(&thief, "1"), Verdict::Rejected(_)));
    assert_eq!(world.state_of(lease.task), TaskState::Leased);
    world.at(1_101);
    assert_eq!(world.complete(&lease, "1"), Verdict::Cancelled);
    assert_eq!(world.state_of(lease.task), TaskState::Waiting);
}

#[test]
fn s0_10_cancelled_means_the_result_was_thrown_away() {
    let (mut world, lease) = World::leased();
    world.at(1_101);
    assert_eq!(world.complete(&lease, "secret"), Verdict::Cancelled);
    assert!(!format!("{:?}", world.log).contains(&format!("{:?}", b"secret")), "not even recorded");
}

#[test]
fn s0_11_a_lease_is_lost_to_time_to_another_attempt_and_never_to_a_restart() {
    let (mut world, first) = World::leased();
    world.at(1_101).run(commands::tick());
    assert_eq!(world.complete(&first, "1"), Verdict::Cancelled, "expired");
    world.submit(2);
    let (second, third) = (world.lease("w2"), world.lease("w3"));
    world.run(commands::release(&second));
    world.lease("w4");
    assert_eq!(world.complete(&second, "1"), Verdict::Cancelled, "superseded");
    // A live lease survives a restart unchanged (C32).
    let mut restarted = World::replayed(&world.log, Time(1_500));
    assert_eq!(restarted.complete(&third, "1"), Verdict::Committed(Outcome::Completed));
}

#[test]
fn s0_12_cancelled_is_no_failure_and_brings_no_retry() {
    let (mut world, lease) = World::leased();
    world.at(1_101).run(commands::tick());
    let before = world.task(lease.task).clone();
    assert_eq!(world.fail(&lease, "boom"), Verdict::Cancelled);
    let after = world.task(lease.task);
    assert_eq!(before.phase, after.phase, "no backoff, no error, no other turn");
    assert_eq!((after.attempt, &after.last_error), (1, &None));
}

#[test]
fn s0_14_rejected_means_that_the_request_itself_is_invalid() {
    let (mut world, lease) = World::leased();
    let records = world.log.len();
    for (lie, why) in [
        (LeaseRef { task: TaskId(9), ..lease.clone() }, Rejection::UnknownTask),
        (LeaseRef { scope: commands::scope_of("evil"), ..lease.clone() }, Rejection::UnknownTask),
        (LeaseRef { fencing_token: Position(99), ..lease.clone() }, Rejection::NeverGranted),
        (LeaseRef { attempt: 2, ..lease.clone() }, Rejection::NeverGranted),
        (LeaseRef { worker: Arc::from("w2"), ..lease.clone() }, Rejection::WrongWorker),
    ] {
        assert_eq!(world.complete(&lie, "1"), Verdict::Rejected(why));
        assert_eq!(world.fail(&lie, "no"), Verdict::Rejected(why));
    }
    assert_eq!(world.log.len(), records, "nothing is recorded");
    world.complete(&lease, "1");
    let duplicate = world.complete(&lease, "something else");
    assert_eq!(duplicate, Verdict::Rejected(Rejection::ConflictingReport));
}

#[test]
fn s0_18_a_heartbeat_never_changes_what_a_task_is() {
    let (mut world, lease) = World::leased();
    for beat in 1..=20 {
        world.at(beat * 100).run(commands::heartbeat(&lease));
        let task = world.task(lease.task);
        assert_eq!((task.state(), task.attempt), (TaskState::Leased, 1));
    }
    world.run(commands::cancel(lease.task));
    world.at(2_500).run(commands::heartbeat(&lease));
    assert_eq!(world.state_of(lease.task), TaskState::Leased);
}

#[test]
fn s0_19_missing_heartbeats_lose_the_lease() {
    let (mut world, lease) = World::leased();
    world.at(900).run(commands::heartbeat(&lease));
    world.at(2_000).run(commands::tick());
    assert_eq!(world.state_of(lease.task), TaskState::Leased);
    world.at(2_001).run(commands::tick());
    assert_eq!(world.state_of(lease.task), TaskState::Waiting);
}

#[test]
fn s0_20_an_expired_lease_is_never_revived() {
    let (mut world, lease) = World::leased();
    world.at(1_101);
    assert_eq!(world.heartbeat(&lease), ExtendAnswer::Lost, "also before anybody recorded the expiry");
    assert_eq!(world.heartbeat(&lease), ExtendAnswer::Lost);
    let next = world.lease("w1");
    assert_ne!(next.fencing_token, lease.fencing_token);
    assert_eq!(world.heartbeat(&lease), ExtendAnswer::Lost);
    assert_eq!(world.run(commands::start(&lease, "w1")), Answer::Started(StartAnswer::Lost));
    assert_eq!(world.lease_ref(TaskId(1)), next, "the same worker's new lease is another one");
}

/// The authority's part: a failure is judged here, and its wait is in the record.
#[test]
fn s0_25_a_local_failure_is_reported_and_the_coordinator_applies_policy() {
    let (mut world, lease) = World::leased();
    assert_eq!(world.fail(&lease, "panic"), Verdict::Committed(Outcome::RetryAt(Time(1_000))));
    assert_eq!(world.at(999).lease_all("w1", 1), [], "the worker cannot retry by itself");
    assert_eq!(world.at(1_000).lease_all("w2", 1).len(), 1);
}

#[test]
fn s0_26_repeated_heartbeats_and_reports_leave_one_record() {
    let (mut world, lease) = World::leased();
    world.at(500);
    for command in
        [commands::heartbeat(&lease), commands::start(&lease, "w1"), commands::complete(&lease, "1")]
    {
        let (events, first) = world.trace(command.clone());
        assert_eq!(events.len(), 1);
        for _ in 0..3 {
            assert_eq!(world.trace(command.clone()), (Vec::new(), first.clone()));
        }
    }
    world.submit(2);
    let lease = world.lease("w1");
    for command in [commands::fail(&lease, "boom"), commands::fail(&lease, "boom")] {
        let verdict = Verdict::Committed(Outcome::RetryAt(Time(1_500)));
        assert_eq!(world.run(command), Answer::Reported(verdict));
    }
}

/// A worker that repeats, forges, steals, and reports late for hundreds of rounds: the honest one finishes every
/// task, each exactly once, and the world's auditor finds nothing.
#[test]
fn s0_27_a_hostile_worker_changes_no_outcome() {
    let mut world = World::quick();
    world.submit_all(1..=20);
    let mut old: Vec<LeaseRef> = Vec::new();
    let mut now = 0;
    let mut finished = 0;
    while finished < 20 {
        now += 1_200;
        world.at(now).run(commands::tick());
        let grants = world.lease_all("honest", 1);
        let Some(grant) = grants.first() else { panic!("a task was lost after {finished}") };
        let mine = commands::reference("honest", grant);
        let hostage = world.lease_all("hostile", 1);
        old.extend(hostage.iter().map(|grant| commands::reference("hostile", grant)));
        for lease in old.iter().rev().take(6) {
            world.run(commands::release(lease));
            world.run(commands::complete(lease, "lie"));
            world.run(commands::complete(lease, "another lie"));
            world.run(commands::heartbeat(lease));
        }
        let stolen = LeaseRef { worker: Arc::from("hostile"), ..mine.clone() };
        assert_eq!(world.complete(&stolen, "lie"), Verdict::Rejected(Rejection::WrongWorker));
        assert_eq!(world.complete(&mine, "truth"), Verdict::Committed(Outcome::Completed));
        finished += 1;
    }
    let view = world.state.queue_view(&commands::queue("q")).expect("the queue");
    assert_eq!((view.completed, view.waiting + view.leased + view.failed + view.dead), (20, 0));
    for id in 1..=20 {
        let authority::Phase::Completed { result, .. } = &world.task(TaskId(id)).phase else {
            panic!("not done")
        };
        assert_eq!(&**result, b"truth");
    }
}
