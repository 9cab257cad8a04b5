//! The fault rows that the authority alone must survive, by their numbers, and its own bounds.

use std::sync::Arc;

use authority::command::*;
use authority::limits::{MAX_OPERATIONS, MAX_REPORTS, MAX_REQUIREMENT_SETS};
use authority::{
    Answer, Category, Command, Dedup, LeaseRef, Outcome, QueueKey, Rejection, Scope, State, TaskId,
    TaskOptions, TaskState, Time,
};

use crate::support::{World, commands};

#[test]
fn t11_events_of_one_millisecond_are_ordered_by_the_ledger() {
    let mut world = World::quick();
    world.at(5);
    let ids: Vec<TaskId> = [9, 3, 7, 1].map(|id| world.submit(id)).to_vec();
    let granted: Vec<TaskId> = world.lease_all("w1", 4).iter().map(|grant| grant.task).collect();
    assert_eq!(granted, ids);
    let positions: Vec<u64> = ids.iter().map(|id| world.task(*id).created.0).collect();
    assert!(positions.is_sorted(), "{positions:?}");
}

/// A timer that is late, or never fires, delays an expiry; nobody gets more time by it.
#[test]
fn t10_without_a_tick_whoever_comes_late_finds_its_lease_over() {
    let late = |ask: &dyn Fn(&mut World, &LeaseRef) -> Vec<&'static str>| {
        let (mut world, lease) = World::leased();
        let events = ask(world.at(3_600_000), &lease);
        assert_ne!(world.state_of(lease.task), TaskState::Leased, "the lease is over: {events:?}");
        assert_ne!(world.state_of(lease.task), TaskState::Completed, "{events:?}");
        events
    };
    assert_eq!(late(&|world, lease| world.names(commands::heartbeat(lease))), ["LeaseExpired"]);
    assert_eq!(late(&|world, lease| world.names(commands::start(lease, "w1"))), ["LeaseExpired"]);
    let discarded = ["LeaseExpired", "TaskCancelled"];
    assert_eq!(late(&|world, lease| world.names(commands::complete(lease, "1"))), discarded);
    assert_eq!(late(&|world, lease| world.names(commands::fail(lease, "no"))), discarded);
    let ended = late(&|world, lease| world.names(commands::cancel(lease.task)));
    assert_eq!(ended, ["LeaseExpired", "TaskDead"]);
}

/// Repeats of a stale report are answered from memory: they do not make the log grow.
#[test]
fn w19_a_flood_of_reports_of_an_old_lease_makes_one_record() {
    let (mut world, old) = World::leased();
    world.at(1_101).run(commands::tick());
    let records = world.log.len();
    for round in 0..500 {
        assert_eq!(world.complete(&old, "1"), Verdict::Cancelled, "{round}");
        let other = Verdict::Rejected(Rejection::ConflictingReport);
        assert_eq!(world.complete(&old, &format!("\"{round}\"")), other);
        assert_eq!(world.fail(&old, &format!("{round}")), other);
        assert_eq!(world.names(commands::heartbeat(&old)), [""; 0]);
        assert_eq!(world.names(commands::release(&old)), [""; 0]);
    }
    assert_eq!(world.log.len(), records + 1, "the first report, and nothing of all the others");
}

#[test]
fn w1_a_completion_without_a_lease_with_anothers_and_with_an_old_one() {
    let mut world = World::quick();
    let (one, two) = (world.submit(1), world.submit(2));
    let mine = world.lease("w1");
    let theirs = world.lease("w2");
    let none = LeaseRef { task: TaskId(77), ..mine.clone() };
    assert_eq!(world.complete(&none, "1"), Verdict::Rejected(Rejection::UnknownTask));
    let stolen = LeaseRef { worker: Arc::from("w1"), ..theirs.clone() };
    assert_eq!(world.complete(&stolen, "1"), Verdict::Rejected(Rejection::WrongWorker));
    let swapped = LeaseRef { task: one, ..theirs };
    assert_eq!(world.complete(&swapped, "1"), Verdict::Rejected(Rejection::NeverGranted));
    world.at(1_101).run(commands::tick());
    assert_eq!(world.complete(&mine, "1"), Verdict::Cancelled);
    assert_eq!((world.state_of(one), world.state_of(two)), (TaskState::Waiting, TaskState::Waiting));
}

#[test]
fn w2_a_completion_twice_with_the_same_content_and_with_other_content() {
    let mut world = World::quick();
    world.submit(1);
    let lease = world.lease("w1");
    assert_eq!(world.complete(&lease, "1"), Verdict::Committed(Outcome::Completed));
    assert_eq!(world.complete(&lease, "1"), Verdict::Committed(Outcome::Completed));
    assert_eq!(world.complete(&lease, "2"), Verdict::Rejected(Rejection::ConflictingReport));
    assert_eq!(world.fail(&lease, "no"), Verdict::Rejected(Rejection::ConflictingReport));
    assert_eq!(world.log.len(), 4, "configured, created, granted, completed");
}

#[test]
fn i4_the_same_key_with_other_content_is_a_conflict_and_records_nothing() {
    let mut world = World::quick();
    let with = |content: &str| {
        let dedup = Some(Dedup { key: Arc::from("k"), content: commands::digest(content) });
        TaskOptions { dedup, ..TaskOptions::default() }
    };
    world.run(commands::submit_with(1, with("a")));
    let (events, answer) = world.trace(commands::submit_with(2, with("b")));
    assert_eq!((events.len(), answer), (0, Answer::Submitted(SubmitAnswer::DedupConflict(TaskId(1)))));
    let (events, answer) = world.trace(commands::submit_with(3, with("a")));
    assert!(events.is_empty());
    assert!(matches!(answer, Answer::Submitted(SubmitAnswer::Existing(view)) if view.task.id == TaskId(1)));
}

#[test]
fn i18_cancelling_twice_and_cancelling_what_is_finished_is_answered_the_same() {
    let mut world = World::quick();
    let (waiting, leased) = (world.submit(1), world.submit(2));
    let first = world.lease("w1");
    for id in [first.task, waiting, leased] {
        assert_eq!(world.run(commands::cancel(id)), Answer::Ended(EndAnswer::Accepted));
        let (events, again) = world.trace(commands::cancel(id));
        assert_eq!((events.len(), again), (0, Answer::Ended(EndAnswer::Accepted)));
    }
    world.complete(&first, "1");
    assert_eq!(world.names(commands::cancel(first.task)), [""; 0]);
    assert_eq!(world.state_of(first.task), TaskState::Completed);
}

/// Whoever asks about another tenant's task hears what he would hear about no task at all.
#[test]
fn a11_a_foreign_task_and_an_absent_one_look_the_same() {
    let mut world = World::quick();
    let foreign = world.submit(1);
    let lease = world.lease("w1");
    let evil = commands::scope_of("evil");
    let ask = |task: TaskId| {
        let lease = LeaseRef { scope: evil.clone(), task, ..lease.clone() };
        let (scope, operation) = (evil.clone(), Arc::from("op"));
        vec![
            commands::complete(&lease, "1"),
            commands::fail(&lease, "no"),
            commands::heartbeat(&lease),
            commands::start(&lease, "w1"),
            commands::release(&lease),
            Command::CancelTask(CancelTask { scope: scope.clone(), task, reason: Arc::from("r"), by: None }),
            Command::KillTask(KillTask { scope: scope.clone(), task, detail: None, by: None }),
            Command::RedriveTask(RedriveTask { scope: scope.clone(), task, id: TaskId(50), by: None }),
            Command::AttachOperation(AttachOperation { scope: scope.clone(), task, operation }),
            Command::DetachOperation(DetachOperation { scope, task, operation: Arc::from("op"), by: None }),
        ]
    };
    for (theirs, nobodys) in ask(foreign).into_iter().zip(ask(TaskId(99))) {
        let (events, answer) = world.trace(theirs);
        assert_eq!((Vec::new(), world.trace(nobodys).1), (events, answer));
    }
    assert_eq!(world.state.view_in(&evil, foreign), None);
    assert_eq!(world.state.list(&evil, None, None, None, 10).tasks, []);
    assert_eq!(world.state.queue_views(&evil), []);
}

/// An id is made outside and never twice; should it happen, the other tenant's task is not handed out.
#[test]
fn a11_a_submit_under_a_foreign_tasks_id_shows_nothing_of_it() {
    let mut world = World::quick();
    world.submit(1);
    let queue = Arc::new(QueueKey { scope: commands::scope_of("evil"), name: Arc::from("q") });
    let again = SubmitTask { queue, ..commands::submit_task(1) };
    let (events, answer) = world.trace(Command::SubmitTask(Box::new(again)));
    assert_eq!((events.len(), answer), (0, Answer::Submitted(SubmitAnswer::DedupConflict(TaskId(1)))));
}

/// A worker that leases, gives back and reports for ever is answered for ever, but its records come to an end.
#[test]
fn reports_without_authority_stop_being_recorded_at_their_bound() {
    let mut state = State::new();
    let run = |state: &mut State, command: &Command| {
        let decision = state.decide(command, Time::ZERO);
        for event in &decision.events {
            state.apply(Time::ZERO, event).expect("a decision is legal");
        }
        (decision.events.len(), decision.answer)
    };
    run(&mut state, &commands::submit(1));
    for round in 0..MAX_REPORTS + 50 {
        let (_, Answer::Leased(grants)) = run(&mut state, &commands::lease("w1", 1)) else {
            panic!("not leased")
        };
        let lease = commands::reference("w1", &grants[0]);
        run(&mut state, &commands::release(&lease));
        let (events, answer) = run(&mut state, &commands::complete(&lease, "1"));
        assert_eq!(answer, Answer::Reported(Verdict::Cancelled));
        assert_eq!(events, usize::from(round < MAX_REPORTS));
    }
    assert_eq!(state.task(TaskId(1)).map(|task| task.reports.len()), Some(MAX_REPORTS));
    assert_eq!(state.check_invariants(), Ok(()));
    // Who does its work is still heard.
    let (_, Answer::Leased(grants)) = run(&mut state, &commands::lease("w2", 1)) else {
        panic!("not leased")
    };
    let lease = commands::reference("w2", &grants[0]);
    let (_, answer) = run(&mut state, &commands::complete(&lease, "1"));
    assert_eq!(answer, Answer::Reported(Verdict::Committed(Outcome::Completed)));
}

/// Every text that a caller can make long counts, so that nobody fills the memory beside its limit.
#[test]
fn long_texts_count_against_the_memory() {
    let long: Arc<str> = Arc::from("x".repeat(10_000));
    let mut world = World::quick();
    let grows = |world: &mut World, command: Command, by: usize| {
        let before = world.state.bytes();
        let name = format!("{command:?}");
        world.run(command);
        assert!(world.state.bytes() >= before + by, "{} … counts for too little", &name[..40]);
    };
    let one = world.submit(1);
    let named = LeaseTasks { session: Some(long.clone()), ..commands::lease_tasks(&long, 1) };
    grows(&mut world, Command::LeaseTasks(named), 20_000);
    let lease = world.lease_ref(one);
    grows(&mut world, commands::start(&lease, &long), 10_000);
    let cancel = |task: TaskId| CancelTask { scope: commands::scope(), task, reason: long.clone(), by: None };
    grows(&mut world, Command::CancelTask(cancel(one)), 10_000);
    let (two, three, four) = (world.submit(2), world.submit(3), world.submit(4));
    grows(&mut world, Command::CancelTask(cancel(two)), 9_000);
    let kill = KillTask { scope: commands::scope(), task: three, detail: Some(long.clone()), by: None };
    grows(&mut world, Command::KillTask(kill), 9_000);
    let attach = AttachOperation { scope: commands::scope(), task: four, operation: long.clone() };
    grows(&mut world, Command::AttachOperation(attach), 10_000);
}

#[test]
fn kinds_of_requirements_beyond_their_bound_are_refused_and_known_ones_go_on() {
    let mut state = State::new();
    let submit = |id: usize, n: usize| {
        let properties = commands::properties(&[("n", &n.to_string())]);
        Command::SubmitTask(Box::new(SubmitTask { properties, ..commands::submit_task(id as u128) }))
    };
    for n in 0..MAX_REQUIREMENT_SETS {
        let decision = state.decide(&submit(n, n), Time::ZERO);
        state.apply(Time::ZERO, &decision.events[0]).expect("a new task");
    }
    let refused = Answer::Submitted(SubmitAnswer::Refused(Refusal::TooManyRequirements));
    assert_eq!(state.decide(&submit(MAX_REQUIREMENT_SETS, MAX_REQUIREMENT_SETS), Time::ZERO).answer, refused);
    assert_eq!(state.decide(&submit(MAX_REQUIREMENT_SETS, 7), Time::ZERO).events.len(), 1);
    assert_eq!(state.check_invariants(), Ok(()));
}

#[test]
fn waiters_beyond_their_bound_are_refused() {
    let mut state = State::new();
    let created = state.decide(&commands::submit(1), Time::ZERO);
    state.apply(Time::ZERO, &created.events[0]).expect("a new task");
    let attach = |n: usize| {
        let (scope, task, operation) = (commands::scope(), TaskId(1), Arc::from(format!("op{n}")));
        Command::AttachOperation(AttachOperation { scope, task, operation })
    };
    for n in 0..MAX_OPERATIONS {
        let decision = state.decide(&attach(n), Time::ZERO);
        state.apply(Time::ZERO, &decision.events[0]).expect("a new waiter");
    }
    let answer = state.decide(&attach(MAX_OPERATIONS), Time::ZERO).answer;
    assert_eq!(answer, Answer::Attached(AttachAnswer::TooMany));
    assert_eq!(state.decide(&attach(3), Time::ZERO).answer, Answer::Attached(AttachAnswer::Done));
}

/// A list is paged newest first, by queue, and never shows another scope.
#[test]
fn pages_of_a_list_show_every_task_once() {
    let mut world = World::quick();
    for id in 1..=25 {
        world.submit(id);
    }
    let other = SubmitTask { queue: commands::queue("p"), ..commands::submit_task(26) };
    world.run(Command::SubmitTask(Box::new(other)));
    world.lease_all("w1", 5);
    for (state, expected) in [(None, 26), (Some(TaskState::Leased), 5), (Some(TaskState::Dead), 0)] {
        let (mut found, mut after) = (Vec::new(), None);
        loop {
            let page = world.state.list(&commands::scope(), None, state, after, 4);
            assert!(page.tasks.len() <= 4);
            found.extend(page.tasks.iter().map(|view| (view.queue.name.clone(), view.task.created)));
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        assert_eq!(found.len(), expected);
        assert!(found.is_sorted_by(|a, b| a.0 < b.0 || (a.0 == b.0 && a.1 > b.1)), "{found:?}");
    }
}

/// A name that is the beginning of another is another tenant, workspace and queue.
#[test]
fn scopes_with_similar_names_do_not_mix() {
    let mut world = World::new();
    let scopes = ["a", "a\0", "ab"].map(|name| Scope { tenant: Arc::from(name), workspace: Arc::from(name) });
    for (id, scope) in (1..).zip(&scopes) {
        let queue = Arc::new(QueueKey { scope: scope.clone(), name: Arc::from("q") });
        world.run(Command::SubmitTask(Box::new(SubmitTask { queue, ..commands::submit_task(id) })));
    }
    for (id, scope) in (1..).zip(&scopes) {
        let ask = LeaseTasks { scope: scope.clone(), ..commands::lease_tasks("w1", 9) };
        let Answer::Leased(grants) = world.run(Command::LeaseTasks(ask)) else { panic!("not leased") };
        assert_eq!(grants.iter().map(|grant| grant.task).collect::<Vec<_>>(), [TaskId(id)]);
        assert_eq!(world.state.queue_views(scope).len(), 1);
    }
}

/// A failure of another category is a conflicting report, also where the message is the same.
#[test]
fn a_repeat_is_told_by_its_content_alone() {
    let mut world = World::quick();
    world.submit(1);
    let lease = world.lease("w1");
    let first = world.run(commands::fail_as(&lease, Category::Timeout, "slow", None));
    // What the worker thinks of a retry, and the draw, are no part of the content.
    assert_eq!(world.run(commands::fail_as(&lease, Category::Timeout, "slow", Some(false))), first);
    let other = world.run(commands::fail_as(&lease, Category::UserCode, "slow", None));
    assert_eq!(other, Answer::Reported(Verdict::Rejected(Rejection::ConflictingReport)));
}
