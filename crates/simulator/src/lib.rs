//! One seed is one history: the production engine on the production ledger, with clients, workers, disk, network,
//! clocks and processes that fail, on one thread and in virtual time.
//!
//! The same seed gives the same history, byte for byte. An auditor that shares no code with the authority judges
//! everything that was asked, recorded and told. Nothing here is part of the product.

mod actors;
mod breadth;
mod bug;
mod env;
mod host;
mod prng;
mod run;
mod swarm;
mod trace;
mod world;

pub use bug::Bug;
pub use run::{Failure, Outcome, record, replay_command, run, run_many, run_with_bug};
pub use swarm::Swarm;
