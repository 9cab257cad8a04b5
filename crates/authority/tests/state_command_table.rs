//! Every state against every command, as a table: `state_command_table.txt` says what is answered, which events
//! follow and where the task stands then. `LESSOR_REWRITE=1` writes down what really follows.

use std::path::Path;
use std::sync::Arc;

use authority::command::*;
use authority::event::{Event, ExpiryCause, LeaseExpired};
use authority::{Answer, Category, Command, Contract, LeaseRef, Phase, Position, TaskId, TaskOptions};

use crate::support::{World, commands};

const TASK: TaskId = TaskId(1);

/// The task's shape before the command. Leases end at 1,100; the table is tried at 500 or, overdue, at 1,101.
pub(crate) const STATES: [&str; 12] = [
    "WAITING new",
    "WAITING again",
    "WAITING delayed",
    "WAITING exhausted",
    "LEASED",
    "LEASED overdue",
    "LEASED stopping",
    "LEASED stopping, overdue",
    "COMPLETED",
    "FAILED",
    "DEAD",
    "unknown",
];

#[test]
fn every_command_in_every_state_does_what_the_table_says() {
    let mut table = String::from("state | command | answer | events | then\n");
    for name in STATES {
        let (_, lease) = build(name);
        for (command_name, command) in all_commands(&lease) {
            let (mut world, _) = build(name);
            let before = world.state.task(TASK).cloned();
            let (events, answer) = world.trace(command);
            let after = world.state.task(TASK);
            if let Some(before) = before.filter(|task| task.is_final()) {
                // G3: nothing reopens or changes an end.
                assert_eq!(Some(&before.phase), after.map(|task| &task.phase), "{command_name} in {name}");
            }
            let names: Vec<_> = events.iter().map(Event::name).collect();
            let then = after.map_or("unknown".to_string(), |task| match &task.phase {
                Phase::Dead { reason, .. } => format!("DEAD {}", reason.name()),
                _ => format!("{:?}", task.state()).to_uppercase(),
            });
            let events = names.join(", ");
            table.push_str(&format!("{name} | {command_name} | {} | {events} | {then}\n", kind(&answer)));
        }
    }
    compare(&align(&table));
}

/// A world in which the task has this shape, and the lease that it has or had.
pub(crate) fn build(state: &str) -> (World, LeaseRef) {
    let mut world = World::new();
    world.run(commands::configure("q", commands::quick_queue()));
    world.run(commands::submit_with(1, TaskOptions { max_attempts: Some(2), ..TaskOptions::default() }));
    if state == "WAITING new" {
        let (scope, worker) = (commands::scope(), Arc::from("w1"));
        world.at(500);
        return (world, LeaseRef { scope, worker, task: TASK, attempt: 1, fencing_token: Position(3) });
    }
    let ask = LeaseTasks {
        session: Some(Arc::from("s1")),
        contract: Contract::Stream,
        ..commands::lease_tasks("w1", 1)
    };
    let Answer::Leased(grants) = world.run(Command::LeaseTasks(ask)) else { panic!("not leased") };
    let lease = commands::reference("w1", &grants[0]);
    let moves: &[Command] = match state {
        "WAITING again" => &[commands::release(&lease)],
        "WAITING delayed" => &[commands::fail(&lease, "boom")],
        "LEASED stopping" | "LEASED stopping, overdue" => &[commands::cancel(TASK)],
        "COMPLETED" => &[commands::complete(&lease, "1")],
        "FAILED" => &[commands::fail_as(&lease, Category::DataQuality, "bad", None)],
        "DEAD" | "unknown" => &[commands::kill(TASK)],
        _ => &[],
    };
    moves.iter().for_each(|command| drop(world.run(command.clone())));
    match state {
        "WAITING exhausted" => {
            // Only a ledger that was cut between the two records of an end leaves such a task.
            let cause = ExpiryCause::Silence;
            let expired = LeaseExpired {
                task: TASK,
                fencing_token: lease.fencing_token,
                cause,
                exhausted: true,
                since: None,
            };
            world.at(1_101).append(Event::LeaseExpired(expired));
        }
        "LEASED overdue" | "LEASED stopping, overdue" => drop(world.at(1_101)),
        "unknown" => {
            world.at(1_000_000_000).run(commands::purge());
        }
        _ => drop(world.at(500)),
    }
    (world, lease)
}

fn all_commands(lease: &LeaseRef) -> Vec<(&'static str, Command)> {
    let (scope, operation) = (commands::scope(), Arc::from("op"));
    let thief = LeaseRef { worker: Arc::from("thief"), ..lease.clone() };
    let foreign = LeaseRef { scope: commands::scope_of("evil"), ..lease.clone() };
    let forged = LeaseRef { attempt: 7, ..lease.clone() };
    vec![
        ("submit again", commands::submit(1)),
        ("lease", commands::lease("w2", 1)),
        ("heartbeat", commands::heartbeat(lease)),
        ("start", commands::start(lease, "w1")),
        ("complete 1", commands::complete(lease, "1")),
        ("complete 2", commands::complete(lease, "2")),
        ("complete as a thief", commands::complete(&thief, "3")),
        ("complete from another tenant", commands::complete(&foreign, "3")),
        ("complete a forged attempt", commands::complete(&forged, "3")),
        ("fail, to be tried again", commands::fail(lease, "boom")),
        ("fail for good", commands::fail_as(lease, Category::DataQuality, "bad", None)),
        ("release", commands::release(lease)),
        ("cancel", commands::cancel(TASK)),
        ("kill", commands::kill(TASK)),
        ("redrive", commands::redrive(TASK, 2)),
        ("configure", commands::configure("q", authority::QueueConfig::default())),
        ("new session", commands::session("w1", "s2")),
        ("end the worker", commands::end_worker("w1")),
        ("attach", Command::AttachOperation(AttachOperation { scope: scope.clone(), task: TASK, operation })),
        (
            "detach",
            Command::DetachOperation(DetachOperation {
                scope,
                task: TASK,
                operation: Arc::from("op"),
                by: None,
            }),
        ),
        ("rotate the key", Command::RotateTokenKey(RotateTokenKey { key_id: Arc::from("k"), by: None })),
        ("take over", Command::TakeOver(TakeOver { node: Arc::from("n"), audit_head: None })),
        ("tick", commands::tick()),
        ("purge", commands::purge()),
    ]
}

fn kind(answer: &Answer) -> String {
    match answer {
        Answer::Submitted(SubmitAnswer::Created(_)) => "created".to_string(),
        Answer::Submitted(SubmitAnswer::Existing(_)) => "existing".to_string(),
        Answer::Leased(grants) => {
            grants.first().map_or("nothing".into(), |g| format!("attempt {}", g.attempt))
        }
        Answer::Extended(ExtendAnswer::Extended { expires_at, cancel }) => {
            format!("until {expires_at}{}", if cancel.is_some() { ", stop" } else { "" })
        }
        Answer::Reported(Verdict::Committed(outcome)) => format!("COMMITTED {outcome:?}"),
        Answer::Reported(Verdict::Cancelled) => "CANCELLED".to_string(),
        Answer::Reported(Verdict::Rejected(why)) => format!("REJECTED {why:?}"),
        Answer::Redriven(RedriveAnswer::Created(_)) => "created".to_string(),
        Answer::Extended(answer) => format!("{answer:?}"),
        Answer::Started(answer) => format!("{answer:?}"),
        Answer::Released(answer) => format!("{answer:?}"),
        Answer::Ended(answer) => format!("{answer:?}"),
        Answer::Redriven(answer) => format!("{answer:?}"),
        Answer::Submitted(answer) => format!("{answer:?}"),
        Answer::Configured(answer) => format!("{answer:?}"),
        Answer::Attached(answer) => format!("{answer:?}"),
        Answer::KeyCreated(answer) => format!("{answer:?}"),
        Answer::KeyRevoked(answer) => format!("{answer:?}"),
        Answer::Done(_) => "done".to_string(),
    }
}

/// Columns of equal width, one blank line before each new state.
fn align(table: &str) -> String {
    let rows: Vec<Vec<&str>> = table.lines().map(|line| line.split(" | ").collect()).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..rows[0].len()).map(width).collect();
    let mut text = String::new();
    let mut last = "";
    for row in &rows {
        if row[0] != last && !text.is_empty() {
            text.push('\n');
        }
        last = row[0];
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        text.push_str(cells.collect::<Vec<_>>().join(" | ").trim_end());
        text.push('\n');
    }
    text
}

fn compare(found: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/state_command_table.txt");
    if std::env::var_os("LESSOR_REWRITE").is_some() {
        std::fs::write(&path, found).expect("the table can be written");
        return;
    }
    let expected = std::fs::read_to_string(&path).expect("the table");
    let lines = expected.lines().zip(found.lines()).filter(|(expected, found)| expected != found);
    let wrong: Vec<_> = lines.map(|(expected, found)| format!("- {expected}\n+ {found}")).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(expected.lines().count(), found.lines().count(), "the table has other rows");
}
