//! The coordinator is killed in the middle of a build, its worker in a process of its own: the build succeeds, and
//! nothing that was committed is executed again.
//!
//! `cargo xtask chaos --scenario bazel` runs the long form of it.

mod cluster;

use std::time::{Duration, Instant};

use chaos::Plan;

use crate::bazel::{Bazel, Processes};
use crate::ledger::History;
use crate::succeeded;
use crate::support::Server;
use crate::support::gates::Gates;
use crate::support::worker::{Worker, coordinator};
use crate::workspace::Workspace;

/// How soon a server is back after a quick restart.
const QUICK: Duration = Duration::from_millis(500);
/// One before the kill, one during it and one after it.
const MIN_ACTIONS_OF_A_ROUND: usize = 3;
/// Less than the retries of its default flags take.
const PATIENCE_OF_BAZEL: Duration = Duration::from_secs(2);

#[test]
fn killed_a_build_with_many_retries_goes_on_and_nothing_committed_runs_again() {
    let plan = Plan::from_env(env!("CARGO_BIN_EXE_lessor")).unwrap();
    let (actions, kills) = (plan.pick(60, 300), plan.kills(1).max(1));
    let actions_of_a_round = (actions / kills).max(MIN_ACTIONS_OF_A_ROUND);
    survives(actions_of_a_round * kills, kills, &["--remote_retries=30"], true, Duration::MAX).unwrap();
    println!("chaos Bazel: {} actions built once each under {kills} SIGKILLs", actions_of_a_round * kills);
}

/// Held to half a second in the long form, against a release build. An unoptimised one among other tests may take longer;
/// a restart that is so slow that Bazel's own patience ends is no quick one, and is tried again.
#[test]
fn killed_a_build_with_default_flags_survives_a_quick_restart() {
    let plan = Plan::from_env(env!("CARGO_BIN_EXE_lessor")).unwrap();
    let max_down = plan.pick(PATIENCE_OF_BAZEL, QUICK);
    let tries = plan.pick(3, 1);
    let survived = (0..tries).find_map(|_| survives(60, 1, &[], false, max_down));
    assert!(survived.is_some(), "no restart took less than {} ms", max_down.as_millis());
}

/// `end_while_down`: whether the action that runs at the first kill ends while the coordinator is down or after it is up
/// again; the following kills take turns. There is no answer if it was down for longer than `max_down`.
fn survives(
    actions: usize,
    kills: usize,
    flags: &[&str],
    end_while_down: bool,
    max_down: Duration,
) -> Option<()> {
    let gates = Gates::open();
    let bazel = Bazel::new(&workspace(actions, kills, &gates));
    let dir = tempfile::tempdir().unwrap();
    let command = coordinator(dir.path(), "127.0.0.1:0");
    let mut server = Server::start_by(command, dir);
    let address = server.address();
    let _worker = Worker::start(&server);
    let executor = format!("--remote_executor=grpc://{address}");
    let flags = [&[executor.as_str(), "--spawn_strategy=remote", "--jobs=8"], flags].concat();
    let mut build = bazel.spawn_build(&flags);
    for kill in 0..kills {
        let Some(arrival) = gates.next(&mut build) else { break };
        assert_eq!(arrival.gate, kill, "an action runs a second time although its lease lives");
        let killed = Instant::now();
        server.kill();
        let (at_once, later) =
            if (kill % 2 == 0) == end_while_down { (Some(arrival), None) } else { (None, Some(arrival)) };
        at_once.into_iter().for_each(|arrival| arrival.let_through());
        server = server.start_again(|dir| coordinator(dir, &address));
        let down = killed.elapsed();
        println!("kill {kill}: it served again after {} ms", down.as_millis());
        if down > max_down {
            build.kill().unwrap();
            build.wait().unwrap();
            return None;
        }
        later.into_iter().for_each(|arrival| arrival.let_through());
    }
    let text = succeeded(&build.wait_with_output().unwrap());
    assert_eq!(Processes::of(&text).actions(), actions, "{text}");
    assert!(gates.is_quiet(), "an action ran a second time although its lease lived");
    let history = History::of(&server.data());
    assert_eq!(history.committed_once().len(), actions);
    assert_eq!(history.count("OwnerTookOver"), kills + 1);
    Some(())
}

/// Quick actions in as many rounds as there are gates. The gate of a round waits for half of its actions, so those are
/// committed when it is reached, and the other half is queued, running or committed then. The next round follows it.
fn workspace(actions: usize, gates: usize, at: &Gates) -> Workspace {
    let mut workspace = Workspace::default();
    let round = actions / gates - 1;
    assert_eq!((round + 1) * gates, actions, "the rounds are equal");
    for gate in 0..gates {
        let before: Vec<String> =
            (1..=gate).last().map(|gate| format!("gate{}.txt", gate - 1)).into_iter().collect();
        let names: Vec<String> = (0..round).map(|n| format!("action{gate}_{n}")).collect();
        for name in &names {
            workspace.genrule(name, &before, &format!("echo {name} > $@"));
        }
        let half: Vec<String> = names.iter().take(round / 2).map(|name| format!("{name}.txt")).collect();
        workspace.genrule(&format!("gate{gate}"), &half, &at.command(gate));
    }
    workspace
}
