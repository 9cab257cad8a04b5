//! Tests that the real server conforms to all contracts, and that the suite covers all their observable rules.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::http::StatusCode;
use axum::{Json, Router};
use conformance::{Contract, Options, Outcome, Subject};
use serde_json::json;
use tokio::net::TcpListener;

use crate::support::Server;
use crate::{all_passed, failed, mutant, outcomes, quick_server, server};

/// What is checked of each contract. A number that is lost from the suite is missed here.
pub(crate) fn covered(contract: Contract) -> BTreeSet<String> {
    let span = |prefix: &str, numbers: &[u32]| -> Vec<String> {
        numbers.iter().map(|number| format!("{prefix}-{number}")).collect()
    };
    let all = |first: u32, last: u32, but: &[u32]| -> Vec<u32> {
        (first..=last).filter(|number| !but.contains(number)).collect()
    };
    let numbers = match contract {
        Contract::Native => {
            let workers_own = [8, 13, 15, 16, 17, 21, 22, 23, 24];
            let authority =
                [5, 6, 7, 9, 11, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 37, 38, 39, 40, 41];
            [span("S0", &all(1, 27, &workers_own)), span("S4", &authority)].concat()
        }
        Contract::Claim => span("S2", &all(1, 30, &[3, 8])),
        Contract::Callback => {
            [span("S1", &all(1, 57, &[16, 21, 23, 36, 56, 57])), vec!["push".to_owned()]].concat()
        }
        Contract::Grpc => span("S3", &all(9, 40, &[39])),
        Contract::Reapi => {
            let served = [all(1, 44, &[13, 18, 19, 43]), all(45, 56, &[]), vec![58]].concat();
            served.iter().map(|number| format!("R{number}")).collect()
        }
    };
    numbers.into_iter().collect()
}

async fn keeps(contract: Contract) {
    keeps_at(&server(), contract).await;
}

async fn keeps_at(server: &Server, contract: Contract) {
    let outcomes = outcomes(&server.url(), contract, &[]).await;
    all_passed(&outcomes);
    assert_eq!(numbers(&outcomes), covered(contract));
}

/// The numbers that were checked.
pub(crate) fn numbers(outcomes: &[Outcome]) -> BTreeSet<String> {
    outcomes.iter().flat_map(|outcome| outcome.check.numbers).map(|number| number.to_string()).collect()
}

#[tokio::test]
async fn the_native_contract_is_kept() {
    keeps(Contract::Native).await;
}

#[tokio::test]
async fn the_claim_contract_is_kept() {
    keeps(Contract::Claim).await;
}

#[tokio::test]
async fn the_callback_contract_is_kept() {
    keeps(Contract::Callback).await;
}

#[tokio::test]
async fn the_grpc_contract_is_kept() {
    keeps_at(&quick_server(), Contract::Grpc).await;
}

#[tokio::test]
async fn the_remote_execution_api_is_kept() {
    keeps(Contract::Reapi).await;
}

/// The worker inside `lessor up` works for whichever instance a build names, and instances stay apart (R56).
#[tokio::test]
async fn any_instance_is_served_without_set_up() {
    let server = server();
    for instance in ["main", "some/team"] {
        let options = Options { instance: instance.to_owned(), ..Options::new(server.url()) };
        let subject = Arc::new(Subject::connect(options).await.unwrap());
        let only = ["R40".to_owned(), "R56".to_owned()];
        let checks = Contract::Reapi.checks().into_iter().filter(|check| check.is_about(&only)).collect();
        all_passed(&conformance::run(subject, checks, |_| ()).await);
    }
}

/// The broken coordinators of the other tests are broken by their faults and by nothing else. It is also a server that
/// is not empty.
#[tokio::test]
async fn a_proxy_without_a_fault_keeps_every_contract() {
    let server = server();
    let url = mutant::start(&server.url(), |_, _| ()).await;
    for contract in [Contract::Native, Contract::Claim, Contract::Callback] {
        all_passed(&outcomes(&url, contract, &[]).await);
    }
    let quick = quick_server();
    let url = crate::grpc_mutant::start(&quick.url(), crate::grpc_mutant::Fault::None).await;
    all_passed(&outcomes(&url, Contract::Grpc, &[]).await);
    let url = crate::reapi_mutant::start(&server.url(), crate::reapi_mutant::Fault::NONE).await;
    all_passed(&outcomes(&url, Contract::Reapi, &[]).await);
}

/// A server that would not push to this machine fails every check that needs it, with the way out.
#[tokio::test]
async fn a_coordinator_that_refuses_to_push_is_told_how_to_allow_it() {
    let server = crate::support::Server::start();
    let outcomes = outcomes(&server.url(), Contract::Callback, &["S1-53"]).await;
    assert!(failed(&outcomes).contains("S1-53"));
    for outcome in outcomes {
        let finding = outcome.finding.unwrap().to_string();
        assert!(finding.contains("--allow-private-push-targets"), "{finding}");
    }
}

/// No check passes by not looking: not one does where every answer is the same.
#[tokio::test]
async fn nothing_passes_against_a_server_that_says_the_same_to_everything() {
    for status in [StatusCode::OK, StatusCode::CREATED, StatusCode::BAD_REQUEST, StatusCode::NOT_FOUND] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let router = Router::new().fallback(async move || (status, Json(json!({}))));
        tokio::spawn(async move { axum::serve(listener, router).await });
        for contract in Contract::ALL {
            for outcome in outcomes(&url, contract, &[]).await {
                assert!(outcome.finding.is_some(), "{contract} {status}: {}", outcome.check.says);
            }
        }
    }
}
