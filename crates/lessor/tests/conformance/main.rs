//! The conformance suite: it passes against the real server, all of it, and fails against coordinators that break their
//! contracts, by the number of what is broken.

mod broken_callback;
mod broken_claim;
mod broken_grpc;
mod broken_native;
mod broken_reapi;
mod broken_reports;
mod cluster;
mod command;
mod conforming;
mod grpc_mutant;
mod mutant;
mod reapi_mutant;
#[path = "../support/mod.rs"]
mod support;

use std::collections::BTreeSet;
use std::sync::Arc;

use conformance::{Contract, Finding, Options, Outcome, Subject};

use support::Server;

/// A server that pushes to this machine.
fn server() -> Server {
    let dir = tempfile::tempdir().unwrap();
    Server::start_in(dir, "127.0.0.1:0", &["--allow-private-push-targets"])
}

/// A server that soon takes a silent worker for lost, so that the suite can wait for it.
fn quick_server() -> Server {
    let dir = tempfile::tempdir().unwrap();
    let text = format!(
        "[server]\naddress = \"127.0.0.1:0\"\n[data]\ndir = \"{}/data\"\nsegment_mib = 32\npreallocate_mib = 1\n\
         [execution.scheduler]\nheartbeat_timeout_seconds = 5\n",
        dir.path().display()
    );
    let file = dir.path().join("lessor.toml");
    std::fs::write(&file, text).unwrap();
    let mut command = support::lessor(&["serve", "--init", "--config"]);
    command.arg(file);
    Server::start_by(command, dir)
}

/// Runs the checks of a contract, or those about some numbers.
async fn outcomes(url: &str, contract: Contract, only: &[&str]) -> Vec<Outcome> {
    outcomes_of(Options::new(url), contract, only).await
}

/// The same with these options.
async fn outcomes_of(options: Options, contract: Contract, only: &[&str]) -> Vec<Outcome> {
    let subject = Subject::connect(options).await.unwrap();
    let only: Vec<String> = only.iter().map(|number| number.to_string()).collect();
    let checks = contract.checks().into_iter().filter(|check| check.is_about(&only)).collect();
    conformance::run(Arc::new(subject), checks, |_| ()).await
}

/// The numbers of all checks that failed; those that were skipped did not.
fn failed(outcomes: &[Outcome]) -> BTreeSet<&'static str> {
    let broken = outcomes.iter().filter(|outcome| matches!(outcome.finding, Some(Finding::Broken(_))));
    broken.flat_map(|outcome| outcome.check.numbers).copied().collect()
}

#[track_caller]
fn all_passed(outcomes: &[Outcome]) {
    for outcome in outcomes {
        assert_eq!(outcome.finding, None, "{:?} {}", outcome.check.numbers, outcome.check.says);
    }
}

/// Of all checks of a contract, exactly the one with this sentence fails.
async fn only_this_fails(url: &str, contract: Contract, says: &str) {
    let outcomes = outcomes(url, contract, &[]).await;
    let broken = outcomes.iter().filter(|outcome| matches!(outcome.finding, Some(Finding::Broken(_))));
    let broken: Vec<_> = broken.map(|outcome| (outcome.check.says, &outcome.finding)).collect();
    assert!(
        matches!(broken[..], [(only, _)] if only == says),
        "{says:?} should fail, and only it: {broken:#?}"
    );
}

/// Each of these numbers is found broken.
async fn is_found(url: &str, contract: Contract, numbers: &[&str]) {
    let found = failed(&outcomes(url, contract, numbers).await);
    for number in numbers {
        assert!(found.contains(number), "{number} was not found broken, only {found:?}");
    }
}
