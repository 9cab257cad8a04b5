//! The suites of the contracts, of the Remote Execution API and of hostile callers, run again with three nodes on one
//! PostgreSQL: each connection of a test goes to any of them. The test binaries are those of the run before.

use std::path::Path;
use std::process::Command;

use crate::steps::cargo;

const NODES: usize = 3;
const SUITES: [&str; 5] = ["http", "grpc", "reapi", "abuse", "hostile"];

/// Tests whose assertions hold for one process only, or that would take too long, each with its reason.
const EXCLUDED: &[(&str, &str)] = &[
    ("admission::n11_idle_connections_make_room_for_newcomers", CONNECTIONS),
    ("admission::n11_beyond_the_limit_busy_connections_stay_and_newcomers_wait_their_turn", CONNECTIONS),
    ("admission::n11_the_address_that_holds_most_makes_room", CONNECTIONS),
    ("callback_hostility::a_server_that_cannot_record_accepts_nothing", STOPPED),
    ("claims::s2_3_a_server_that_cannot_record_acknowledges_nothing", STOPPED),
    ("tasks::a_server_without_its_coordinator_says_that_it_is_not_serving", STOPPED),
    ("tasks::p5_a_server_that_is_about_to_stop_says_so_and_serves_on", "one node leaves, and any is asked"),
    ("services::s3_60_a_watch_of_the_scheduler_is_told_when_the_coordinator_stops", STOPPED),
    ("push_config::the_ledger_has_no_secret_of_a_target_in_clear", "it reads the files of a ledger"),
    ("full_store::a5_readers_are_bounded_and_those_that_take_nothing_are_let_go", BOUND),
    ("uploads::i15_only_so_many_uploads_are_decompressed_at_one_time", BOUND),
    ("trees::i9_a_tree_of_too_many_directories_is_refused_by_both", "200,000 lookups, one after the other"),
    ("full_store::what_an_execution_needs_is_not_evicted_until_it_is_over", "a content server has no pins"),
    ("uploads::n16_an_interrupted_upload_goes_on_where_it_stands_and_nowhere_else", UPLOADS),
    ("uploads::a8_an_id_that_is_used_for_two_blobs_mixes_nothing", UPLOADS),
    (
        "missing_outputs::w8_heartbeats_without_lease_ids_do_not_extend_a_lease_whose_completion_lacked_outputs",
        REFUSED,
    ),
    (
        "missing_outputs::w8_a_late_report_of_an_earlier_attempt_does_not_revive_a_lease_whose_completion_lacked_outputs",
        REFUSED,
    ),
    ("task_tokens::made_up_task_tokens_do_not_reach_the_coordinator", STOPPED),
    ("tenant_limits::a_connection_counts_for_its_tenant_until_it_is_closed", CONNECTIONS),
    ("tenant_limits::a_tenant_has_as_many_streams_as_it_may", STREAMS),
];

const CONNECTIONS: &str = "connections are counted on each node";
const STOPPED: &str = "the coordinator is stopped, which is a pause in a cluster";
const BOUND: &str = "the bound is that of one process";
const UPLOADS: &str =
    "an upload that was cut off goes on at the node that has its beginning, and begins anew at others";
const STREAMS: &str = "streams are counted on each node";
const REFUSED: &str = "not yet run with the refusals that nodes tell the owner";

/// The command that runs the suites.
pub(crate) fn command(root: &Path) -> Command {
    let mut command = cargo(root);
    command.env("LESSOR_TEST_NODES", NODES.to_string());
    // The whole workspace, so that nothing is compiled with other features than before.
    command.args(["test", "--workspace", "--no-fail-fast"]);
    command.args(SUITES.iter().flat_map(|suite| ["--test", suite]));
    command.args(["--", "--exact"]);
    command.args(EXCLUDED.iter().flat_map(|(test, _)| ["--skip", test]));
    command
}

/// Says which tests are left out, and why.
pub(crate) fn print_excluded() {
    for (test, reason) in EXCLUDED {
        println!("not with three nodes: {test} ({reason})");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_excluded_test_exists() {
        let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/server/tests");
        for (test, reason) in EXCLUDED {
            let (module, name) = test.rsplit_once("::").expect("a module and a name");
            let is_here = SUITES.iter().any(|suite| {
                let text = std::fs::read_to_string(tests.join(suite).join(format!("{module}.rs")));
                text.is_ok_and(|text| text.contains(&format!("fn {name}(")))
            });
            assert!(is_here && !reason.is_empty(), "{test}");
        }
    }
}
