//! The records of the authority model and what each requires and does (S4-17 … S4-29), and the authority's part
//! of their atomicity (S4-30, S4-32).

use std::collections::BTreeSet;
use std::sync::Arc;

use authority::command::*;
use authority::event::*;
use authority::{
    Answer, CancelCause, Category, LeaseRef, Outcome, Phase, Position, State, TaskId, TaskOptions, TaskState,
    Time,
};

use crate::support::events::{completed, created, grant};
use crate::support::{Actor, World, commands, replay};

#[test]
fn s4_17_a_created_task_waits_with_no_attempt_made() {
    let mut world = World::quick();
    assert_eq!(world.at(7).names(commands::submit(1)), ["TaskCreated"]);
    let task = world.task(TaskId(1));
    assert_eq!((task.state(), task.attempt, task.created_at), (TaskState::Waiting, 0, Time(7)));
    world.refuses(created(1));
}

#[test]
fn s4_18_a_grant_requires_a_waiting_task() {
    let (mut world, lease) = World::leased();
    world.refuses(grant(lease.task, 2));
    world.complete(&lease, "1");
    world.refuses(grant(lease.task, 2));
}

#[test]
fn s4_19_a_grant_makes_the_task_leased_and_counts_one_attempt() {
    let mut world = World::quick();
    let id = world.submit(1);
    for attempt in 1..=3 {
        assert_eq!(world.names(commands::lease("w1", 1)), ["LeaseGranted"]);
        let task = world.task(id);
        assert_eq!((task.state(), task.attempt), (TaskState::Leased, attempt));
        world.run(commands::release(&world.lease_ref(id)));
    }
    world.refuses(grant(id, 3));
    world.refuses(grant(id, 5));
}

#[test]
fn s4_20_only_a_grant_gives_a_task_an_owner() {
    for seed in 0..20 {
        let (mut world, mut actor) = (World::new(), Actor::new(seed));
        for _ in 0..200 {
            let owned = owned(&world.state);
            let (command, events, _) = actor.step(&mut world);
            let granted = events.iter().filter_map(|event| match event {
                Event::LeaseGranted(event) => Some(event.task),
                _ => None,
            });
            let allowed: BTreeSet<TaskId> = owned.into_iter().chain(granted).collect();
            assert!(self::owned(&world.state).is_subset(&allowed), "{command:?}");
        }
    }
}

fn owned(state: &State) -> BTreeSet<TaskId> {
    let tasks = (0..state.slots()).filter_map(|slot| state.in_slot(slot));
    tasks.filter(|(_, task)| task.lease().is_some()).map(|(_, task)| task.id).collect()
}

#[test]
fn s4_21_only_a_lease_in_time_is_extended() {
    let (mut world, lease) = World::leased();
    let extend = |lease: Position| {
        Event::LeaseExtended(LeaseExtended { task: TaskId(1), fencing_token: lease, expires_at: Time(9_000) })
    };
    world.refuses(extend(Position(2)));
    world.at(1_101);
    world.refuses(extend(lease.fencing_token));
    world.at(1_101).run(commands::tick());
    world.refuses(extend(lease.fencing_token));
}

#[test]
fn s4_22_an_extension_moves_the_expiry_and_nothing_else() {
    let (mut world, lease) = World::leased();
    let before = world.task(lease.task).clone();
    assert_eq!(world.at(500).names(commands::heartbeat(&lease)), ["LeaseExtended"]);
    let mut after = world.task(lease.task).clone();
    let Phase::Leased(extended) = &mut after.phase else { panic!("not leased") };
    assert_eq!(extended.expires_at, Time(1_600));
    (extended.expires_at, extended.extended_at, after.last) = (Time(1_100), Time(0), before.last);
    assert_eq!(before, after);
}

#[test]
fn s4_23_an_expiry_is_recorded_and_lets_the_task_wait_without_a_lease() {
    let (mut world, lease) = World::leased();
    assert_eq!(world.at(1_101).names(commands::tick()), ["LeaseExpired"]);
    let task = world.task(lease.task);
    assert_eq!((task.state(), task.lease()), (TaskState::Waiting, None));
}

#[test]
fn s4_24_no_worker_can_ask_for_an_expiry_and_none_comes_before_its_time() {
    let (mut world, lease) = World::leased();
    world.at(1_100);
    for command in [commands::tick(), commands::heartbeat(&lease), commands::release(&lease)] {
        assert!(!world.names(command).contains(&"LeaseExpired"));
    }
    let (mut world, lease) = World::leased();
    let cause = ExpiryCause::Silence;
    let early = LeaseExpired {
        task: lease.task,
        fencing_token: lease.fencing_token,
        cause,
        exhausted: false,
        since: None,
    };
    world.at(1_100);
    world.refuses(Event::LeaseExpired(early));
}

#[test]
fn s4_25_a_completion_needs_a_leased_task_its_lease_and_its_time() {
    let (mut world, lease) = World::leased();
    world.refuses(completed(&LeaseRef { fencing_token: Position(2), ..lease.clone() }));
    world.at(1_101);
    world.refuses(completed(&lease));
    world.run(commands::tick());
    world.refuses(completed(&lease));
    let (mut world, lease) = World::leased();
    world.at(1_100).append(completed(&lease));
}

#[test]
fn s4_26_a_completion_ends_the_task_and_its_lease() {
    let (mut world, lease) = World::leased();
    assert_eq!(world.names(commands::complete(&lease, "1")), ["TaskCompleted"]);
    assert_eq!((world.state_of(lease.task), world.task(lease.task).lease()), (TaskState::Completed, None));
    assert_eq!(world.heartbeat(&lease), ExtendAnswer::Lost);
}

#[test]
fn s4_27_a_report_under_a_stale_lease_is_recorded_as_cancelled() {
    let (mut world, lease) = World::leased();
    world.at(1_101).run(commands::tick());
    assert_eq!(world.names(commands::complete(&lease, "1")), ["TaskCancelled"]);
    assert_eq!(world.names(commands::complete(&lease, "1")), [""; 0], "at most once for each lease");
    let discarded = TaskCancelled {
        task: lease.task,
        fencing_token: lease.fencing_token,
        attempt: 1,
        digest: commands::digest("x"),
    };
    world.refuses(Event::TaskCancelled(discarded));
}

#[test]
fn s4_28_a_cancelled_report_changes_no_state_and_is_no_failure() {
    let (mut world, lease) = World::leased();
    world.at(1_101).run(commands::tick());
    let before = world.task(lease.task).clone();
    assert_eq!(world.fail(&lease, "boom"), Verdict::Cancelled);
    let after = world.task(lease.task);
    assert_eq!((&before.phase, before.attempt, &before.last_error), (&after.phase, 1, &after.last_error));
}

#[test]
fn s4_29_a_failure_waits_or_ends_by_policy_and_ends_the_lease() {
    let mut world = World::quick();
    world.run(commands::submit_with(1, TaskOptions { max_attempts: Some(2), ..TaskOptions::default() }));
    let first = world.lease("w1");
    assert_eq!(world.fail(&first, "boom"), Verdict::Committed(Outcome::RetryAt(Time(1_000))));
    assert_eq!((world.state_of(TaskId(1)), world.task(TaskId(1)).lease()), (TaskState::Waiting, None));
    world.at(1_000);
    let second = world.lease("w1");
    assert_eq!(world.fail(&second, "boom"), Verdict::Committed(Outcome::Failed));
    assert_eq!(world.state_of(TaskId(1)), TaskState::Failed);
    world.submit(2);
    let third = world.lease("w1");
    let verdict = world.run(commands::fail_as(&third, Category::Configuration, "no", None));
    assert_eq!(verdict, Answer::Reported(Verdict::Committed(Outcome::Failed)));
}

/// The authority's part: a record that does not fit leaves nothing behind.
#[test]
fn s4_30_a_record_has_its_whole_effect_or_none() {
    let (mut world, lease) = World::leased();
    world.submit(2);
    let purged = TasksPurged { tasks: vec![TaskId(2), lease.task] };
    world.refuses(Event::TasksPurged(purged));
    let (cause, reason) = (CancelCause::User, Arc::from("r"));
    let stop = CancelRequested { task: TaskId(2), cause, reason, grace_until: Time(1), by: None };
    world.refuses(Event::CancelRequested(stop));
    let next = NextStep::RetryAt(Time(5));
    world.run(commands::cancel(lease.task));
    let error = authority::TaskError { category: Category::UserCode, code: None, message: Arc::from("m") };
    let digest = commands::digest("m");
    world.refuses(Event::TaskFailed(TaskFailed {
        task: lease.task,
        fencing_token: lease.fencing_token,
        digest,
        error,
        next,
        details: None,
    }));
    let cause = ReleaseCause::Worker;
    world.refuses(Event::LeaseReleased(LeaseReleased {
        task: lease.task,
        fencing_token: lease.fencing_token,
        cause,
    }));
}

/// The authority's part: where a decision takes two records, each alone leaves a consistent state.
#[test]
fn s4_32_no_two_records_depend_on_each_other() {
    let mut world = World::quick();
    world.run(commands::submit_with(1, TaskOptions { max_attempts: Some(1), ..TaskOptions::default() }));
    let lease = world.lease("w1");
    let (events, _) = world.at(1_101).trace(commands::complete(&lease, "1"));
    assert_eq!(events.len(), 3, "expired, dead, discarded");
    for cut in 0..=events.len() {
        let state = replay(&world.log[..world.log.len() - cut]);
        assert_eq!(state.check_invariants(), Ok(()));
    }
}
