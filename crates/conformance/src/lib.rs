//! The contracts as an executable suite: it can be pointed at any coordinator that speaks them, and says requirement by
//! requirement whether it keeps them.
//!
//! It knows the wire and nothing else: no crate of the coordinator's inside, no empty server, no special build of one. It
//! works in queues with names of its own, in few seconds, and cleans nothing up. Where a contract has no way to submit
//! work or to look at it, the native contract's endpoints stand in for the operator.

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
