//! Work that one command must not do all at once: it is done in bounded steps, and the answer says when more is
//! left.

use std::sync::Arc;

use authority::command::*;
use authority::limits::{
    DEFAULT_RETENTION_MS, MAX_GRANT_BYTES, MAX_GRANTS, MAX_INLINE_BYTES, MAX_TICK_TASKS,
};
use authority::{Answer, Command, Event, State, TaskId, TaskOptions, TaskState, Time};

use crate::support::commands;

/// More than two steps' worth of tasks.
const MANY: usize = 2 * MAX_TICK_TASKS + 10;

#[test]
fn a_tick_ends_a_thousand_tasks_at_a_time() {
    let mut state = State::new();
    let deadline = Some(Time(10));
    for id in 0..MANY as u128 {
        run(&mut state, commands::submit_with(id, TaskOptions { deadline, ..TaskOptions::default() }), 0);
    }
    let steps = repeat(&mut state, commands::tick(), 10);
    assert_eq!(steps, [MAX_TICK_TASKS, MAX_TICK_TASKS, 10]);
    assert_eq!(state.next_due(), None);
    assert_eq!(state.check_invariants(), Ok(()));
}

#[test]
fn a_purge_forgets_a_thousand_tasks_at_a_time() {
    let mut state = State::new();
    for id in 0..MANY as u128 {
        run(&mut state, commands::submit(id), 0);
        run(&mut state, commands::kill(TaskId(id)), 0);
    }
    assert_eq!(repeat(&mut state, commands::purge(), DEFAULT_RETENTION_MS - 1), [0]);
    let mut sizes = vec![state.len()];
    while run(&mut state, commands::purge(), DEFAULT_RETENTION_MS).1 == Answer::Done(true) {
        sizes.push(state.len());
    }
    assert_eq!(sizes, [MANY, MANY - MAX_TICK_TASKS, MANY - 2 * MAX_TICK_TASKS]);
    assert!(state.is_empty());
    assert_eq!(state.queue_view(&commands::queue("q")), None, "a queue goes with its last task");
    assert_eq!(state.check_invariants(), Ok(()));
}

#[test]
fn a_poll_is_given_large_payloads_a_few_at_a_time() {
    let mut state = State::new();
    for id in 0..20 {
        let Command::SubmitTask(mut task) = commands::submit(id) else { panic!("not a submit") };
        task.payload = Arc::from(vec![b'1'; MAX_INLINE_BYTES]);
        run(&mut state, Command::SubmitTask(task), 0);
    }
    let (given, _) = run(&mut state, Command::LeaseTasks(commands::lease_tasks("w1", MAX_GRANTS)), 0);
    assert_eq!(given, MAX_GRANT_BYTES / MAX_INLINE_BYTES);
}

#[test]
fn a_new_session_gives_a_thousand_leases_back_at_a_time() {
    let mut state = State::new();
    for id in 0..MANY as u128 {
        run(&mut state, commands::submit(id), 0);
    }
    let session = Some(Arc::from("s1"));
    for _ in 0..=MANY / MAX_GRANTS {
        let ask = LeaseTasks { session: session.clone(), ..commands::lease_tasks("w1", MAX_GRANTS) };
        run(&mut state, Command::LeaseTasks(ask), 0);
    }
    let steps = repeat(&mut state, commands::session("w1", "s2"), 0);
    assert_eq!(steps, [MAX_TICK_TASKS, MAX_TICK_TASKS, 10]);
    let view = state.queue_view(&commands::queue("q")).expect("the queue");
    assert_eq!((view.waiting, view.leased), (MANY as u64, 0));
}

/// Tasks past their deadline that nobody ticked away delay a worker by some requests, not for ever.
#[test]
fn a_worker_gets_past_any_number_of_passed_deadlines() {
    let mut state = State::new();
    let deadline = Some(Time(10));
    for id in 0..500 {
        run(&mut state, commands::submit_with(id, TaskOptions { deadline, ..TaskOptions::default() }), 0);
    }
    run(&mut state, commands::submit(500), 0);
    let granted = (0..10).find_map(|_| match run(&mut state, commands::lease("w1", 1), 10) {
        (events, Answer::Leased(grants)) => {
            assert!(events <= 2 * MAX_GRANTS, "{events} events in one decision");
            grants.first().map(|grant| grant.task)
        }
        (_, other) => panic!("{other:?}"),
    });
    assert_eq!(granted, Some(TaskId(500)));
    assert_eq!(state.task(TaskId(499)).map(|task| task.state()), Some(TaskState::Dead));
}

/// A tick looks at what is most overdue first, so the order of expiry is the order of waiting again.
#[test]
fn leases_that_ended_first_wait_again_first() {
    let mut state = State::new();
    for (id, lease_ms) in [(1, 900), (2, 300), (3, 600)] {
        run(
            &mut state,
            commands::submit_with(id, TaskOptions { lease_ms: Some(lease_ms), ..TaskOptions::default() }),
            0,
        );
    }
    run(&mut state, commands::lease("w1", 3), 0);
    run(&mut state, commands::tick(), 5_000);
    let (_, Answer::Leased(grants)) = run(&mut state, commands::lease("w2", 3), 5_000) else {
        panic!("no lease")
    };
    let order: Vec<u128> = grants.iter().map(|grant| grant.task.0).collect();
    assert_eq!(order, [2, 3, 1]);
}

fn run(state: &mut State, command: Command, now: u64) -> (usize, Answer) {
    state.advance(Time(now));
    let decision = state.decide(&command, Time(now));
    for event in &decision.events {
        state.apply(Time(now), event).expect("a decision is legal");
    }
    (decision.events.iter().filter(|event| !matches!(event, Event::TasksPurged(_))).count(), decision.answer)
}

/// Repeats a command until there is no more to do, and gives the events of each step.
fn repeat(state: &mut State, command: Command, now: u64) -> Vec<usize> {
    let mut steps = Vec::new();
    loop {
        let (events, answer) = run(state, command.clone(), now);
        steps.push(events);
        if answer == Answer::Done(false) {
            return steps;
        }
    }
}
