//! The worker service as its users and its enemies meet it: over real gRPC, with a real coordinator behind it.

mod failover;
mod heartbeats;
mod leasing;
mod plan;
mod registration;
mod reports;
mod restart;
mod services;
mod stream;
mod submitting;
mod support;
mod worker_orders;
