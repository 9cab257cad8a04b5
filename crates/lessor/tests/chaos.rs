//! The real binary under fire, in the short form; `cargo xtask chaos` runs the long one.
//!
//! In the end every accepted task is final, each exactly once, and every answer that was ever given is still
//! true. The seed of the random choices is printed; `LESSOR_CHAOS_SEED` sets it.

use chaos::{Plan, Scenario};

fn run(scenario: Scenario) {
    let plan = Plan::from_env(env!("CARGO_BIN_EXE_lessor")).expect("the plan is readable");
    if let Err(error) = chaos::run(scenario, &plan) {
        panic!("{error:#}");
    }
}

#[test]
fn kill_nothing_accepted_is_lost_and_nothing_committed_twice() {
    run(Scenario::Kill);
}

#[test]
fn stop_a_pause_longer_than_a_lease_breaks_no_promise() {
    run(Scenario::Stop);
}

#[test]
fn clock_an_hour_forth_and_back_breaks_no_promise() {
    run(Scenario::Clock);
}

#[test]
fn full_disk_d4_running_work_commits_and_everything_recovers() {
    run(Scenario::FullDisk);
}

#[test]
fn contracts_workers_of_all_contracts_share_a_queue_and_no_promise_is_broken() {
    run(Scenario::Contracts);
}

/// Three worker processes, 200 actions here and 2,000 in the long form.
#[test]
fn workers_killed_and_stopped_lose_nothing_commit_nothing_twice_and_leave_nothing_behind() {
    run(Scenario::Workers);
}

/// Three nodes on PostgreSQL with a synchronous replica, each on a host of its own; clients never retry by themselves.
#[test]
fn cluster_nodes_and_database_fail_and_no_request_through_a_live_node_does() {
    run(Scenario::Cluster);
}
