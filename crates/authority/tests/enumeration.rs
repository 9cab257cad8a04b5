//! Every short history of two tasks and two workers: from each state every command, and every moment that
//! matters. States that differ in nothing but their past are visited once.
//!
//! The world checks each event by the invariants and by the auditor, which also holds every verdict ever given
//! against its repeats. Each new state is compared with a replay of its ledger.

use std::collections::HashSet;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

use authority::command::Verdict;
use authority::{
    Answer, Backoff, Category, Command, LeaseRef, Outcome, Phase, QueueConfig, Task, TaskId, TaskOptions,
    Time,
};

use crate::support::{Stopped, World, commands, replay, same_state};

const A: TaskId = TaskId(1);
const B: TaskId = TaskId(2);
/// How many moves a history has; one more takes some five times as long.
const MAX_MOVES: usize = 7;

/// A world, and every lease that its workers were given.
struct Node {
    world: World,
    leases: Vec<LeaseRef>,
}

/// Nodes wait without their state, of which there would be too many.
type Waiting = (Stopped, Vec<LeaseRef>);

#[test]
fn every_short_history_keeps_the_rules() {
    let mut seen = HashSet::new();
    let first = start();
    let mut layer: Vec<Waiting> = vec![(first.world.stop(), first.leases)];
    for _ in 0..MAX_MOVES {
        let mut next = Vec::new();
        for (stopped, leases) in &layer {
            let resume = || Node { world: stopped.resume(), leases: leases.clone() };
            let mut here = resume();
            for time in moments(&here) {
                let mut later = resume();
                later.world.at(time.0);
                keep_if_new(later, &mut seen, &mut next);
            }
            for command in moves(&here) {
                // A command without events leaves the world as it is; its answer is checked all the same.
                if here.world.state.decide(&command, here.world.now).events.is_empty() {
                    here.take(command);
                    continue;
                }
                let mut after = resume();
                after.take(command);
                keep_if_new(after, &mut seen, &mut next);
            }
        }
        layer = next;
    }
    assert!(seen.len() > 50_000, "only {} states were reached", seen.len());
}

/// One task may be tried twice, the other once and only until its deadline.
fn start() -> Node {
    let mut world = World::new();
    world.at(1_000);
    world.run(commands::configure(
        "q",
        QueueConfig {
            lease_ms: Some(100),
            cancel_grace_ms: Some(150),
            backoff: Some(Backoff { initial_ms: 60, factor_permille: 1_000, max_ms: 60, jitter_permille: 0 }),
            ..QueueConfig::default()
        },
    ));
    world.run(commands::submit_with(1, TaskOptions { max_attempts: Some(2), ..TaskOptions::default() }));
    let deadline = Some(Time(1_200));
    world.run(commands::submit_with(
        2,
        TaskOptions { max_attempts: Some(1), deadline, ..TaskOptions::default() },
    ));
    Node { world, leases: Vec::new() }
}

/// The moments around which something changes: the last of a lease, the ones beside it, ends of waits.
fn moments(node: &Node) -> Vec<Time> {
    let mut times = Vec::new();
    for task in [A, B].map(|id| node.world.task(id)) {
        match &task.phase {
            Phase::Leased(lease) => {
                times.extend([lease.expires_at.0 - 1, lease.expires_at.0, lease.expires_at.0 + 1]);
                times.extend(task.cancel.as_ref().map(|cancel| cancel.grace_until.0));
                times.extend(task.deadline().map(|time| time.0));
            }
            Phase::Waiting { not_before, .. } => {
                times.extend(not_before.map(|time| time.0));
                times.extend(task.deadline().map(|time| time.0));
            }
            _ => {}
        }
    }
    times.sort_unstable();
    times.dedup();
    times.into_iter().map(Time).filter(|time| *time > node.world.now).collect()
}

fn moves(node: &Node) -> Vec<Command> {
    let mut moves = vec![commands::tick(), commands::lease("w1", 1), commands::lease("w2", 2)];
    moves.extend([commands::cancel(A), commands::cancel(B), commands::kill(A)]);
    for lease in &node.leases {
        moves.extend([
            commands::complete(lease, "1"),
            commands::complete(lease, "2"),
            commands::fail(lease, "boom"),
            commands::fail_as(lease, Category::DataQuality, "bad", None),
            commands::heartbeat(lease),
            commands::release(lease),
            commands::start(lease, "w1"),
        ]);
    }
    moves
}

fn keep_if_new(node: Node, seen: &mut HashSet<u64>, next: &mut Vec<Waiting>) {
    if !seen.insert(node.summary()) {
        return;
    }
    let mut replayed = replay(&node.world.log);
    replayed.advance(node.world.now);
    if let Err(what) = same_state(&node.world.state, &replayed) {
        panic!("{what} after replaying {:?}", node.world.log);
    }
    next.push((node.world.stop(), node.leases));
}

impl Node {
    fn take(&mut self, command: Command) {
        let finals: Vec<_> = [A, B].map(|id| self.world.task(id).is_final()).to_vec();
        let (events, answer) = self.world.trace(command.clone());
        if let (Command::LeaseTasks(asked), Answer::Leased(grants)) = (&command, &answer) {
            self.leases.extend(grants.iter().map(|grant| commands::reference(&asked.worker, grant)));
        }
        for (id, was_final) in [A, B].into_iter().zip(finals) {
            let about = events.iter().filter(|event| event.task() == Some(id));
            let names: Vec<_> = about.map(|event| event.name()).collect();
            assert!(
                !was_final || names.iter().all(|name| *name == "TaskCancelled"),
                "{names:?} after the end"
            );
        }
        self.ask_again(&command, &answer);
    }

    /// A report repeated at once is told the same and leaves no record.
    fn ask_again(&mut self, command: &Command, answer: &Answer) {
        let Answer::Reported(verdict) = answer else { return };
        let (events, again) = self.world.trace(command.clone());
        assert_eq!((events.len(), &again), (0, answer), "a repeat of {command:?}");
        if let Verdict::Committed(outcome) = verdict {
            assert_ne!(*outcome, Outcome::Discarded);
        }
    }

    /// All that can matter for the future: times from now, the order of the waiting, no positions.
    fn summary(&self) -> u64 {
        let now = self.world.now.0 as i64;
        let tasks = [A, B].map(|id| self.world.task(id));
        let first = tasks.map(|task| match task.phase {
            Phase::Waiting { since, .. } => since.0,
            _ => 0,
        });
        let text = format!("{:?} {:?}", first[0] < first[1], tasks.map(|task| summary_of(task, now)));
        BuildHasherDefault::<DefaultHasher>::default().hash_one(text)
    }
}

fn summary_of(task: &Task, now: i64) -> String {
    let from_now = |time: Time| time.0 as i64 - now;
    let phase = match &task.phase {
        Phase::Waiting { not_before, exhausted, .. } => {
            format!("waiting {:?} {exhausted}", not_before.map(|time| from_now(time).max(0)))
        }
        Phase::Leased(lease) => {
            let young = from_now(lease.extended_at).max(-10);
            format!("{} {} {young} {:?}", lease.worker, from_now(lease.expires_at), lease.started_by)
        }
        Phase::Dead { reason, .. } => format!("{reason:?}"),
        _ => format!("{:?}", task.state()),
    };
    let stop = task.cancel.as_ref().map(|cancel| (cancel.cause, from_now(cancel.grace_until)));
    let deadline = task.deadline().map(|time| from_now(time).max(0));
    let open = (!task.is_final()).then_some((stop, deadline));
    let reports: Vec<_> = task.reports.iter().map(|report| (report.attempt, report.digest)).collect();
    let ends: Vec<_> = task.reports.iter().map(|report| report.outcome.state()).collect();
    format!("{phase} {} {} {open:?} {reports:?} {ends:?}", task.attempt, task.releases)
}
