//! T9: no value that can come from outside makes the authority panic, wrap around or break an invariant.

use std::sync::Arc;

use authority::command::*;
use authority::event::{Event, QueueConfigured};
use authority::limits::MAX_GRANTS;
use authority::{
    Answer, Backoff, Category, Command, LeaseRef, Position, QueueConfig, Restore, State, TaskId, TaskOptions,
    TaskState, Time,
};

use crate::support::{Prng, World, commands};

const SPANS: [u64; 6] = [0, 1, 9, 60_000, u64::MAX - 1, u64::MAX];
const TIMES: [u64; 6] = [0, 1, 1_700_000_000_000, u64::MAX - 200, u64::MAX - 1, u64::MAX];
const COUNTS: [u32; 4] = [0, 1, u32::MAX - 1, u32::MAX];

/// Every command, one after the other, over tasks and queues whose every number is an extreme one.
#[test]
fn t9_extreme_numbers_lead_to_no_panic() {
    for seed in 0..3_000 {
        let mut prng = Prng::new(seed);
        let mut world = World::new();
        let mut time = prng.pick(&TIMES);
        world.at(time);
        // Such a queue is refused; a ledger of another time may hold it all the same.
        let config = absurd_queue(&mut prng);
        world.append(Event::QueueConfigured(QueueConfigured {
            queue: commands::queue("q"),
            config,
            by: None,
        }));
        for _ in 0..40 {
            if prng.one_in(4) {
                time = prng.pick(&TIMES).max(time);
                world.at(time);
            } else if prng.one_in(4) {
                time = time.saturating_add(prng.pick(&SPANS));
                world.at(time);
            }
            let command = absurd_command(&mut prng, &world);
            world.run(command);
        }
    }
}

fn absurd_queue(prng: &mut Prng) -> QueueConfig {
    QueueConfig {
        max_attempts: prng.one_in(2).then(|| prng.pick(&COUNTS)),
        lease_ms: prng.one_in(2).then(|| prng.pick(&SPANS)),
        heartbeat_interval_ms: prng.one_in(2).then(|| prng.pick(&SPANS)),
        cancel_grace_ms: prng.one_in(2).then(|| prng.pick(&SPANS)),
        backoff: prng.one_in(2).then(|| absurd_backoff(prng)),
        retry_on: prng.one_in(4).then(Vec::new),
        max_queue_size: prng.one_in(8).then(|| prng.pick(&SPANS)),
        retention_ms: prng.one_in(2).then(|| prng.pick(&SPANS)),
        push: None,
    }
}

fn absurd_backoff(prng: &mut Prng) -> Backoff {
    Backoff {
        initial_ms: prng.pick(&SPANS),
        factor_permille: prng.pick(&COUNTS),
        max_ms: prng.pick(&SPANS),
        jitter_permille: prng.pick(&COUNTS),
    }
}

fn absurd_command(prng: &mut Prng, world: &World) -> Command {
    let task = TaskId(u128::from(prng.below(12)));
    match prng.below(16) {
        0..3 => absurd_submit(prng, world),
        3..5 => commands::lease(prng.pick(&["w1", ""]), prng.pick(&[0, 1, 2, usize::MAX])),
        5 => commands::heartbeat(&absurd_lease(prng, world)),
        6 => commands::start(&absurd_lease(prng, world), ""),
        7 => commands::complete(&absurd_lease(prng, world), ""),
        8 => Command::ReportFailure(ReportFailure {
            lease: absurd_lease(prng, world),
            digest: commands::digest("boom"),
            error: authority::TaskError { category: Category::Timeout, code: None, message: Arc::from("") },
            retryable: None,
            draw: prng.pick(&COUNTS),
            details: None,
        }),
        9 => commands::release(&absurd_lease(prng, world)),
        10 => commands::cancel(task),
        11 => commands::kill(task),
        12 => commands::redrive(task, world.state.position().0.into()),
        13 => commands::session("w1", ""),
        14 => commands::purge(),
        _ => commands::tick(),
    }
}

fn absurd_submit(prng: &mut Prng, world: &World) -> Command {
    let options = TaskOptions {
        deadline: prng.one_in(2).then(|| Time(prng.pick(&TIMES))),
        timeout_ms: prng.one_in(3).then(|| prng.pick(&SPANS)),
        lease_ms: prng.one_in(2).then(|| prng.pick(&SPANS)),
        max_attempts: prng.one_in(2).then(|| prng.pick(&COUNTS)),
        backoff: prng.one_in(2).then(|| absurd_backoff(prng)),
        ..TaskOptions::default()
    };
    Command::SubmitTask(Box::new(SubmitTask {
        id: TaskId(u128::from(world.state.position().0)),
        priority: prng.pick(&[i32::MIN, 0, i32::MAX]),
        delay_ms: prng.pick(&[0, 0, 0, 1, u64::MAX]),
        options: Some(Arc::new(options)),
        ..commands::submit_task(0)
    }))
}

/// A live lease, mostly; or one with impossible numbers.
fn absurd_lease(prng: &mut Prng, world: &World) -> LeaseRef {
    let tasks = (0..world.state.slots()).filter_map(|slot| world.state.in_slot(slot));
    let mut leases: Vec<LeaseRef> = tasks
        .filter_map(|(_, task)| {
            let lease = task.lease()?;
            Some(LeaseRef {
                scope: commands::scope(),
                worker: lease.worker.clone(),
                task: task.id,
                attempt: task.attempt,
                fencing_token: lease.fencing_token,
            })
        })
        .collect();
    leases.push(LeaseRef {
        scope: commands::scope(),
        worker: Arc::from("w1"),
        task: TaskId(u128::from(prng.below(12))),
        attempt: prng.pick(&COUNTS),
        fencing_token: Position(prng.pick(&SPANS)),
    });
    leases[prng.below(leases.len() as u64) as usize].clone()
}

/// At the last moment that a clock can show nothing is past its time any more, and nobody is asked to stop.
#[test]
fn t9_at_the_end_of_time_a_lease_stands_and_the_tick_does_nothing() {
    let mut world = World::new();
    world.at(u64::MAX - 10);
    let id = world.submit(1);
    world.lease("w1");
    world.at(u64::MAX);
    assert_eq!(world.names(commands::tick()), [""; 0]);
    assert_eq!(world.state_of(id), TaskState::Leased);
}

#[test]
fn t9_backoff_stays_within_its_cap_for_every_extreme() {
    for initial_ms in SPANS {
        for max_ms in SPANS {
            for (factor_permille, jitter_permille) in COUNTS.into_iter().flat_map(|f| COUNTS.map(|j| (f, j)))
            {
                let backoff = Backoff { initial_ms, factor_permille, max_ms, jitter_permille };
                for (failures, draw) in COUNTS.into_iter().flat_map(|f| COUNTS.map(|d| (f, d))) {
                    assert!(backoff.delay_ms(failures, draw) <= max_ms);
                }
            }
        }
    }
    // A wait that does not grow is not counted up failure by failure, which would take minutes here.
    let flat = Backoff { initial_ms: 0, factor_permille: 2_000, max_ms: 9, jitter_permille: 0 };
    assert_eq!(flat.delay_ms(u32::MAX, 0), 0);
}

/// Absurd settings are refused by name before they are recorded, and the queue stays as it was.
#[test]
fn t9_absurd_settings_are_refused_and_change_nothing() {
    for seed in 0..500 {
        let mut world = World::new();
        let config = absurd_queue(&mut Prng::new(seed));
        let check = config.check(&QueueConfig::default());
        match world.run(commands::configure("q", config)) {
            Answer::Configured(ConfigureAnswer::Configured) => assert_eq!(check, Ok(())),
            Answer::Configured(ConfigureAnswer::Invalid(what)) => {
                assert_eq!(check, Err(what));
                assert!(world.log.is_empty() && world.state.queue_view(&commands::queue("q")).is_none());
            }
            other => panic!("{other:?}"),
        }
    }
}

/// W6: however much a worker asks for, it gets a bounded batch.
#[test]
fn w6_a_million_tasks_asked_for_are_a_hundred_granted() {
    let mut state = State::new();
    for id in 0..2 * MAX_GRANTS as u128 {
        let created = state.decide(&commands::submit(id), Time::ZERO);
        state.apply(Time::ZERO, &created.events[0]).expect("a new task");
    }
    let decision = state.decide(&commands::lease("w1", 1_000_000), Time::ZERO);
    assert_eq!(decision.events.len(), MAX_GRANTS);
    let Answer::Leased(grants) = decision.answer else { panic!("not a grant") };
    assert_eq!(grants.len(), MAX_GRANTS);
}

/// The counter of attempts has an end, if a task is leased and given back for billions of times.
#[test]
fn t9_a_task_with_every_attempt_counted_ends_instead_of_beginning_again() {
    let mut world = World::new();
    let id = world.submit(1);
    let mut task = world.task(id).clone();
    (task.attempt, task.releases) = (u32::MAX, u32::MAX);
    let mut restore = Restore::new(world.state.position(), world.state.time());
    restore.task(&commands::queue("q"), task).expect("one task");
    let mut state = restore.finish(Position::ZERO);
    let decision = state.decide(&commands::lease("w1", 1), Time::ZERO);
    assert_eq!(decision.answer, Answer::Leased(Vec::new()));
    for event in &decision.events {
        state.apply(Time::ZERO, event).expect("a legal event");
    }
    assert_eq!(state.task(id).map(|task| task.state()), Some(TaskState::Dead));
    assert_eq!(state.check_invariants(), Ok(()));
}
