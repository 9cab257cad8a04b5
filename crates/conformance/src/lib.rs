//! The contracts as an executable conformance suite: checks any coordinator, requirement by requirement.
//!
//! The suite knows only the wire: it uses no internals of the coordinator, and needs no empty server and no special
//! build. The suite works in queues with unique names, takes a few seconds, and cleans nothing up. If a contract cannot
//! submit or show a task, the suite uses the endpoints of the native contract.

mod answer;
mod callback;
mod check;
mod claim;
mod contract;
mod finding;
mod grpc;
mod native;
mod operator;
mod reapi;
mod run;
mod subject;
mod target;

pub use check::Check;
pub use contract::Contract;
pub use finding::Finding;
pub use run::{MAX_CHECK, MAX_RUN, Outcome, run};
pub use subject::{Options, Subject, Unreachable};
