//! Every event against every state: `state_event_table.txt` says which fit. One that does not fit is refused and
//! leaves nothing behind; one that fits leaves every invariant whole. Replay of a damaged or foreign ledger stops
//! at the first record that cannot have happened. `LESSOR_REWRITE=1` writes down what really fits.

use std::path::Path;
use std::sync::Arc;

use authority::event::*;
use authority::{CancelCause, Category, DeadReason, LeaseRef, Position, TaskError, TaskId, Time};

use crate::state_command_table::{STATES, build};
use crate::support::{World, commands, events};

const TASK: TaskId = TaskId(1);

#[test]
fn every_event_fits_the_states_that_the_table_says() {
    let mut rows = Vec::new();
    let (_, lease) = build(STATES[1]);
    for (at, (name, _)) in all_events(&lease).into_iter().enumerate() {
        let fits = STATES.map(|state| {
            let (mut world, lease) = build(state);
            let (_, event) = all_events(&lease).remove(at);
            fits(&mut world, event)
        });
        rows.push((name, fits));
    }
    compare(&render(&rows));
}

fn fits(world: &mut World, event: Event) -> bool {
    let legal = World::replayed(&world.log, world.now).state.apply(world.now, &event).is_ok();
    if legal {
        world.append(event);
    } else {
        world.refuses(event);
    }
    legal
}

fn all_events(lease: &LeaseRef) -> Vec<(&'static str, Event)> {
    let (number, digest) = (lease.fencing_token, commands::digest("e"));
    let error = TaskError { category: Category::UserCode, code: None, message: Arc::from("e") };
    let fail = |next: NextStep| {
        Event::TaskFailed(TaskFailed {
            task: TASK,
            fencing_token: number,
            digest,
            error: error.clone(),
            next,
            details: None,
        })
    };
    let dead = |report: Option<DeadReport>| {
        Event::TaskDead(TaskDead { task: TASK, reason: DeadReason::Killed, detail: None, report, by: None })
    };
    let discard = |attempt: u32, lease: Position| {
        Event::TaskCancelled(TaskCancelled { task: TASK, fencing_token: lease, attempt, digest })
    };
    let (cause, exhausted) = (ExpiryCause::Silence, false);
    let release = LeaseReleased { task: TASK, fencing_token: number, cause: ReleaseCause::Worker };
    let stop = CancelRequested {
        task: TASK,
        cause: CancelCause::User,
        reason: Arc::from("r"),
        grace_until: Time(9_000),
        by: None,
    };
    vec![
        ("TaskCreated", events::created(1)),
        ("LeaseGranted, attempt 1", events::grant(TASK, 1)),
        ("LeaseGranted, attempt 2", events::grant(TASK, 2)),
        (
            "LeaseExtended",
            Event::LeaseExtended(LeaseExtended {
                task: TASK,
                fencing_token: number,
                expires_at: Time(9_000),
            }),
        ),
        (
            "LeaseExtended, backwards",
            Event::LeaseExtended(LeaseExtended {
                task: TASK,
                fencing_token: number,
                expires_at: Time(1_100),
            }),
        ),
        (
            "LeaseExpired",
            Event::LeaseExpired(LeaseExpired {
                task: TASK,
                fencing_token: number,
                cause,
                exhausted,
                since: None,
            }),
        ),
        ("LeaseReleased", Event::LeaseReleased(release)),
        (
            "AttemptStarted",
            Event::AttemptStarted(AttemptStarted {
                task: TASK,
                fencing_token: number,
                worker: Arc::from("w1"),
            }),
        ),
        ("TaskCompleted", events::completed(lease)),
        (
            "TaskCompleted, other lease",
            events::completed(&LeaseRef { fencing_token: Position(2), ..lease.clone() }),
        ),
        ("TaskFailed, again", fail(NextStep::RetryAt(Time(9_000)))),
        ("TaskFailed, final", fail(NextStep::Final)),
        ("TaskDead", dead(None)),
        (
            "TaskDead with a report",
            dead(Some(DeadReport { fencing_token: number, digest, error: error.clone(), details: None })),
        ),
        ("TaskCancelled", discard(1, number)),
        ("TaskCancelled, attempt 7", discard(7, number)),
        ("CancelRequested", Event::CancelRequested(stop)),
        (
            "OperationAttached",
            Event::OperationAttached(OperationAttached { task: TASK, operation: Arc::from("op") }),
        ),
        (
            "OperationDetached",
            Event::OperationDetached(OperationDetached { task: TASK, operation: Arc::from("op"), by: None }),
        ),
        ("TasksPurged", Event::TasksPurged(TasksPurged { tasks: vec![TASK] })),
    ]
}

/// A row to an event, a column to a state; the states are numbered to keep the table narrow.
fn render(rows: &[(&str, [bool; STATES.len()])]) -> String {
    let mut text = String::new();
    for (at, state) in STATES.iter().enumerate() {
        text.push_str(&format!("{:>2} {state}\n", at + 1));
    }
    let numbers: Vec<String> = (1..=STATES.len()).map(|number| format!("{number:>3}")).collect();
    text.push_str(&format!("\n{:27}{}\n", "", numbers.concat()));
    for (name, fits) in rows {
        let cells: Vec<&str> = fits.iter().map(|fits| if *fits { "  y" } else { "  -" }).collect();
        text.push_str(&format!("{name:27}{}\n", cells.join("")));
    }
    text
}

fn compare(found: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/state_event_table.txt");
    if std::env::var_os("LESSOR_REWRITE").is_some() {
        std::fs::write(&path, found).expect("the table can be written");
        return;
    }
    let expected = std::fs::read_to_string(&path).expect("the table");
    assert_eq!(expected, found);
}
