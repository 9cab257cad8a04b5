//! Coordinators that break the worker service's contract.

use conformance::Contract;

use crate::grpc_mutant::{self, Fault};
use crate::{is_found, only_this_fails, quick_server, server};

async fn finds(server: &str, fault: Fault, numbers: &[&str]) {
    is_found(&grpc_mutant::start(server, fault).await, Contract::Grpc, numbers).await;
}

#[tokio::test]
async fn registration_must_mean_something() {
    let server = server();
    let url = server.url();
    finds(&url, Fault::Curt, &["S3-9", "S3-30"]).await;
    finds(&url, Fault::OpenToAll, &["S3-33", "S3-13"]).await;
    finds(&url, Fault::NoShutdown, &["S3-25"]).await;
    finds(&url, Fault::NoLeaving, &["S3-13", "S3-26"]).await;
    finds(&url, Fault::Discreet, &["S3-15", "S3-16", "S3-28"]).await;
    finds(&url, Fault::Careless, &["S3-23", "S3-24", "S3-37"]).await;
}

#[tokio::test]
async fn leased_tasks_must_be_whole_and_as_many_as_asked_for() {
    let server = server();
    let url = server.url();
    finds(&url, Fault::Timeless, &["S3-19", "S3-29"]).await;
    finds(&url, Fault::Stripped, &["S3-19", "S3-27"]).await;
    finds(&url, Fault::Generous, &["S3-17", "S3-18"]).await;
    finds(&url, Fault::Overfull, &["S3-31"]).await;
    finds(&url, Fault::Impatient, &["S3-10", "S3-32"]).await;
    finds(&url, Fault::AnyPlatform, &["S3-34"]).await;
}

#[tokio::test]
async fn reports_must_be_judged() {
    let server = server();
    let url = server.url();
    finds(&url, Fault::NoVerdict, &["S3-11", "S3-20", "S3-22", "S3-36"]).await;
    finds(&url, Fault::Gullible, &["S3-21", "S3-35", "S3-40"]).await;
    finds(&url, Fault::Undecided, &["S3-21", "S3-35", "S3-40"]).await;
}

#[tokio::test]
async fn a_late_report_must_not_be_committed() {
    let server = server();
    finds(&server.url(), Fault::TooKind, &["S3-26", "S3-38"]).await;
}

#[tokio::test]
async fn heartbeats_must_carry_their_signals() {
    let server = server();
    finds(&server.url(), Fault::Deaf, &["S3-12"]).await;
}

/// Only this check fails, of all that the suite has.
async fn only_finds(server: &str, fault: Fault, says: &str) {
    only_this_fails(&grpc_mutant::start(server, fault).await, Contract::Grpc, says).await;
}

#[tokio::test]
async fn a_second_failure_in_the_same_words_must_be_accepted() {
    let server = quick_server();
    let says = "a worker of the plan that is granted a task twice may fail twice in the same words";
    only_finds(&server.url(), Fault::NeedsLeaseId, says).await;
}

/// The server itself waits for two minutes.
#[tokio::test]
async fn a_silent_worker_must_lose_its_task_in_time() {
    let server = server();
    let says =
        "a worker of the plan that is silent for the heartbeat timeout loses its task, whatever its lease";
    only_finds(&server.url(), Fault::Patient, says).await;
}

#[tokio::test]
async fn an_execution_must_be_leased_with_its_timeout() {
    let server = quick_server();
    let says = "an execution is leased with the timeout of its action, or with a default";
    only_finds(&server.url(), Fault::Endless, says).await;
    only_finds(&server.url(), Fault::OneTimeout, says).await;
}

#[tokio::test]
async fn a_worker_of_the_plan_must_find_its_service() {
    let server = server();
    finds(&server.url(), Fault::OneName, &["S3-9", "S3-14"]).await;
}
