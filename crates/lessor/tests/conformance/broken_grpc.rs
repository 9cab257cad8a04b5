//! Coordinators that break the worker service's contract.

use conformance::Contract;

use crate::grpc_mutant::{self, Fault};
use crate::{is_found, server};

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

#[tokio::test]
async fn a_worker_of_the_plan_must_find_its_service() {
    let server = server();
    finds(&server.url(), Fault::OneName, &["S3-9", "S3-14"]).await;
}
