//! Tests the real binary under faults.
//!
//! Clients, and workers of one contract or of all, talk to a `lessor up` process while it is killed, stopped, starved of
//! disk or given another clock. Every call is recorded with its answer. In the end the faults stop, honest
//! workers drain the queue, every decided request is repeated, and the server is stopped.
//!
//! Then the calls and the records of the ledger become one history ([`Recording`]), and the auditor that judges the
//! simulator's histories judges this one. What only a client can see is checked in addition. Of the product nothing
//! is used but its types (events, requests, replies, the JSON types) and the reading of its ledger: a checker that
//! shared decisions with what it checks would share its mistakes. Used by tests only.

mod actors;
mod api;
mod checks;
mod clients;
mod cluster;
mod contract;
pub mod engine;
mod evidence;
pub mod ext4;
mod fixture;
mod full_disk;
mod history;
mod log_tools;
mod nodes;
mod plan;
mod process;
mod recorder;
mod report_request;
pub mod rpc;
mod scenario;
mod server;
mod submitter;
mod target;
pub mod tmpfs;
mod worker;
mod workers;
mod world;

pub use api::{Answer, Call};
pub use checks::Violation;
pub use contract::Contract;
pub use history::{Exchange, RawRecording, Recording};
pub use plan::{Form, Plan};
pub use scenario::{Scenario, record, record_contracts, run};
pub use server::faketime_library;
pub use target::Dispatch;
