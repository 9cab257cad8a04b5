//! The authority model, one test for each of its numbers that the authority itself must keep. What concerns the
//! ledger, recovery and the worker registry (S4-4, S4-14 … S4-16, S4-31, S4-33 … S4-36) is proved where they live.

use std::collections::BTreeSet;
use std::sync::Arc;

use authority::command::*;
use authority::event::*;
use authority::{Command, LeaseRef, Outcome, Position, TaskId, TaskState, Time};

use crate::support::events::{completed, grant};
use crate::support::{Actor, World, commands, replay, same_state};

#[test]
fn s4_1_a_decision_changes_nothing_before_its_record_is_applied() {
    let (mut world, lease) = World::leased();
    world.at(500);
    for command in [
        commands::complete(&lease, "1"),
        commands::heartbeat(&lease),
        commands::cancel(lease.task),
        commands::submit(2),
    ] {
        assert!(!world.state.decide(&command, world.now).events.is_empty());
        assert_eq!(same_state(&world.state, &replay(&world.log)), Ok(()));
    }
}

#[test]
fn s4_2_a_later_owner_fences_every_earlier_one() {
    let mut world = World::new();
    for node in ["a", "b"] {
        world.run(Command::TakeOver(TakeOver { node: Arc::from(node), audit_head: None }));
    }
    assert_eq!(world.state.owner().map(|owner| (owner.epoch, &*owner.node)), Some((2, "b")));
    world.refuses(Event::OwnerTookOver(OwnerTookOver { epoch: 2, node: Arc::from("a"), audit_head: None }));
    world.refuses(Event::OwnerTookOver(OwnerTookOver { epoch: 1, node: Arc::from("a"), audit_head: None }));
}

#[test]
fn s4_3_memory_that_is_not_from_the_ledger_may_be_lost() {
    let mut world = World::quick();
    world.submit_all(1..=3);
    world.state.index_worker_profile(&commands::scope(), &[Arc::from("q")], &commands::properties(&[]));
    let forgetful = replay(&world.log);
    let ask = commands::lease("w1", 2);
    assert_eq!(world.state.decide(&ask, world.now), forgetful.decide(&ask, world.now));
}

#[test]
fn s4_5_the_records_are_a_closed_list_and_each_has_its_decision() {
    const CLOSED: [&str; 19] = [
        "AttemptStarted",
        "CancelRequested",
        "KeyCreated",
        "KeyRevoked",
        "LeaseExpired",
        "LeaseExtended",
        "LeaseGranted",
        "LeaseReleased",
        "OperationAttached",
        "OperationDetached",
        "OwnerTookOver",
        "QueueConfigured",
        "TaskCancelled",
        "TaskCompleted",
        "TaskCreated",
        "TaskDead",
        "TaskFailed",
        "TasksPurged",
        "TokenKeyRotated",
    ];
    let mut seen = BTreeSet::new();
    for seed in 0..20 {
        let (mut world, mut actor) = (World::new(), Actor::new(seed));
        let (scope, task, operation) = (commands::scope(), TaskId(500), Arc::from("op"));
        for command in [
            Command::TakeOver(TakeOver { node: Arc::from("n"), audit_head: None }),
            Command::RotateTokenKey(RotateTokenKey { key_id: Arc::from("k"), by: None }),
            commands::create_key("k", "ci"),
            commands::revoke_key("k"),
            commands::submit(500),
            Command::AttachOperation(AttachOperation { scope: scope.clone(), task, operation }),
            Command::DetachOperation(DetachOperation { scope, task, operation: Arc::from("op"), by: None }),
        ] {
            world.run(command);
        }
        for _ in 0..300 {
            actor.step(&mut world);
        }
        seen.extend(world.log.iter().map(|(_, event)| event.name()));
    }
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), CLOSED);
}

#[test]
fn s4_6_a_task_has_id_payload_state_attempt_and_a_lease_or_none() {
    let (world, lease) = World::leased();
    let task = world.task(lease.task);
    assert_eq!((task.id, &*task.payload), (TaskId(1), &b"{}"[..]));
    assert_eq!((task.state(), task.attempt), (TaskState::Leased, 1));
    assert_eq!(task.lease().map(|lease| lease.fencing_token), Some(lease.fencing_token));
}

#[test]
fn s4_7_there_are_five_states() {
    let all =
        [TaskState::Waiting, TaskState::Leased, TaskState::Completed, TaskState::Failed, TaskState::Dead];
    for state in all {
        // A sixth state would not compile here.
        match state {
            TaskState::Waiting
            | TaskState::Leased
            | TaskState::Completed
            | TaskState::Failed
            | TaskState::Dead => {}
        }
    }
}

#[test]
fn s4_8_replay_of_the_same_records_gives_the_same_state() {
    for seed in 0..20 {
        let (mut world, mut actor) = (World::new(), Actor::new(seed));
        for _ in 0..200 {
            actor.step(&mut world);
        }
        let (mut once, mut again) = (replay(&world.log), replay(&world.log));
        once.advance(world.now);
        again.advance(world.now);
        assert_eq!(format!("{once:?}"), format!("{again:?}"), "bit for bit");
        assert_eq!(same_state(&world.state, &once), Ok(()));
    }
}

#[test]
fn s4_9_a_lease_has_its_number_task_worker_and_expiry() {
    let (world, lease) = World::leased();
    let current = world.task(lease.task).lease().expect("leased");
    assert_eq!(current.fencing_token, Position(3), "the position of its LeaseGranted");
    assert_eq!((&*current.worker, current.expires_at), ("w1", Time(1_100)));
}

#[test]
fn s4_10_a_lease_cannot_be_without_its_task() {
    let mut world = World::quick();
    world.refuses(grant(TaskId(7), 1));
}

#[test]
fn s4_11_a_lease_is_valid_only_while_it_is_the_current_one() {
    let (mut world, old) = World::leased();
    world.run(commands::release(&old));
    let new = world.lease("w2");
    world.refuses(completed(&old));
    assert_eq!(world.complete(&old, "1"), Verdict::Cancelled);
    assert_eq!(world.complete(&new, "1"), Verdict::Committed(Outcome::Completed));
}

#[test]
fn s4_12_tasks_are_indexed_as_waiting_leased_and_completed() {
    let mut world = World::quick();
    world.submit_all(1..=3);
    let lease = world.lease("w1");
    world.lease("w2");
    world.complete(&lease, "1");
    let view = world.state.queue_view(&commands::queue("q")).expect("the queue");
    assert_eq!((view.waiting, view.leased, view.completed), (1, 1, 1));
}

#[test]
fn s4_13_the_indexes_are_what_replay_makes_of_the_tasks() {
    let (mut world, lease) = World::leased();
    world.submit(2);
    world.complete(&lease, "1");
    let replayed = replay(&world.log);
    assert_eq!(replayed.check_invariants(), Ok(()));
    assert_eq!(same_state(&world.state, &replayed), Ok(()));
}

#[test]
fn s4_37_a_task_has_at_most_one_active_lease() {
    let (mut world, _) = World::leased();
    assert_eq!(world.lease_all("w2", 9), []);
    world.refuses(grant(TaskId(1), 2));
}

#[test]
fn s4_38_a_lease_belongs_to_one_task() {
    let mut world = World::quick();
    world.submit_all(1..=5);
    let numbers: BTreeSet<Position> =
        world.lease_all("w1", 5).iter().map(|grant| grant.fencing_token).collect();
    assert_eq!(numbers.len(), 5);
    let lease = world.lease_ref(TaskId(1));
    world.refuses(completed(&LeaseRef { task: TaskId(2), ..lease }));
}

#[test]
fn s4_39_a_waiting_task_has_no_lease() {
    let (mut world, lease) = World::leased();
    for end in [commands::release(&lease), commands::fail(&lease, "boom")] {
        let (mut world, _) = World::leased();
        world.run(end);
        assert_eq!((world.state_of(TaskId(1)), world.task(TaskId(1)).lease()), (TaskState::Waiting, None));
    }
    world.at(1_101).run(commands::tick());
    assert_eq!(world.task(TaskId(1)).lease(), None);
}

#[test]
fn s4_40_a_leased_task_has_exactly_one_valid_lease() {
    let (mut world, lease) = World::leased();
    assert_eq!(world.lease_ref(TaskId(1)), lease);
    assert_eq!(world.complete(&lease, "1"), Verdict::Committed(Outcome::Completed));
}

#[test]
fn s4_41_a_completed_task_never_changes_again() {
    let (mut world, lease) = World::leased();
    world.complete(&lease, "1");
    let end = world.task(TaskId(1)).phase.clone();
    for command in [
        commands::complete(&lease, "2"),
        commands::fail(&lease, "boom"),
        commands::release(&lease),
        commands::cancel(TaskId(1)),
        commands::kill(TaskId(1)),
        commands::redrive(TaskId(1), 2),
        commands::lease("w2", 9),
        commands::tick(),
    ] {
        assert_eq!(world.names(command), [""; 0]);
    }
    world.refuses(grant(TaskId(1), 2));
    let dead = authority::DeadReason::Killed;
    world.refuses(Event::TaskDead(TaskDead {
        task: TaskId(1),
        reason: dead,
        detail: None,
        report: None,
        by: None,
    }));
    assert_eq!(world.task(TaskId(1)).phase, end);
}
