//! One seed is one history: the production engine on the production ledger, with clients, workers, disk, network,
//! clocks and processes that fail, on one thread and in virtual time.
//!
//! The same seed gives the same history, byte for byte. An auditor that shares no code with the authority judges
//! all requests, records and answers. Nothing here is part of the product.

mod actors;
mod bug;
mod cluster;
mod config;
mod env;
mod features;
mod host;
mod prng;
mod run;
mod trace;
mod world;

pub use bug::Bug;
pub use cluster::ClusterBug;
pub use config::{SimConfig, queue_defaults};
pub use run::{
    Failure, Outcome, record, replay_command, run, run_cluster, run_cluster_with_bug, run_many, run_with_bug,
};
