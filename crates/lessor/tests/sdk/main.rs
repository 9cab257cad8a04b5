//! The SDKs, Rust and Python, against the real binary: what the worker contract asks of a worker, number by number, and
//! what happens when answers get lost or the coordinator dies.

mod client;
mod drain;
mod examples;
mod fixture;
mod handlers;
mod lost_answers;
mod pushing;
mod python;
#[path = "../support/mod.rs"]
mod support;
mod targets;
mod tls;
mod worker_contract;
