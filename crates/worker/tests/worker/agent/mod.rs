//! The agent against a real server: the whole contract, with work that does what the test says.

mod contract;
mod drain;
mod outage;
mod plan;
mod sharing;
pub(crate) mod support;
