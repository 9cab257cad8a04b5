//! The server: protocol adapters that translate a wire request into one command for the coordinator, and its answer
//! back. They check what comes from outside, and decide nothing.

mod app;
mod bodies;
mod cache;
mod callbacks;
mod claims;
mod content;
mod fallback;
mod grpc;
mod guarded_io;
mod health;
mod ids;
mod json;
mod lease_id;
mod leases;
mod listener;
mod metrics;
mod names;
pub mod openapi;
mod origin;
mod page_token;
mod panics;
mod problem;
mod push;
mod queues;
pub mod reapi;
mod receiving;
mod reference;
mod report;
mod router;
mod scope;
pub mod shown;
mod strict;
mod tasks;
mod time;
mod workers;

pub use app::{App, Options};
pub use grpc::Scheduler;
pub use listener::{Drained, Limits, serve, serve_with};
pub use metrics::{MAX_NAMED_QUEUES, Metrics};
pub use push::{PushOptions, fault_of_callback_url};
pub use receiving::Receiving;
pub use router::{document, router};
pub use scope::fault_of_scope_name;
