//! The real binary under fire.
//!
//! Clients, and workers of one contract or of all, talk to a `lessor up` process while it is killed, stopped, starved of
//! disk or given another clock. Every call that they make is noted down with what came back. In the end the faults stop, honest
//! workers drain the queue, everything that was ever said is asked again, and the server is stopped.
//!
//! Then the calls and the records of the ledger become one history ([`Recording`]), and the auditor that judges the
//! simulator's histories judges this one. What only an outsider can see is checked beside it. Of the product nothing
//! is used but its words (events, requests, replies, the JSON types) and the reading of its ledger: a checker that
//! shared decisions with what it checks would share its mistakes. Used by tests only.

mod api;
mod clients;
mod contract;
mod crew;
pub mod engine;
mod evidence;
mod facts;
mod fixture;
mod full_disk;
mod history;
mod log_tools;
mod outside;
mod plan;
mod process;
pub mod rpc;
mod scenario;
mod server;
mod story;
mod submitter;
mod target;
pub mod tmpfs;
mod worker;
mod workers;
mod world;

pub use api::{Answer, Call};
pub use contract::Contract;
pub use history::{Cut, Exchange, Recording, Testimony};
pub use outside::Violation;
pub use plan::{Form, Plan};
pub use scenario::{Scenario, record, record_contracts, run};
pub use target::Dispatch;
