//! Workers and clients for the Lessor work coordinator.
//!
//! A worker is a handler for a queue; the loop around it (leases, heartbeats, repeats of what got lost, cancellation,
//! draining) is kept here, as the worker contract asks for it. Workers do work, the coordinator decides the truth:
//! nothing here schedules a retry, and nothing is reported after a lease is lost.
//!
//! ```no_run
//! use sdk::{Failure, Task, Worker};
//!
//! async fn greet(task: Task) -> Result<String, Failure> {
//!     let name: String = task.payload()?;
//!     Ok(format!("Hello, {name}!"))
//! }
//!
//! #[tokio::main]
//! async fn main() -> Result<(), sdk::Error> {
//!     Worker::new().concurrency(4).handler("greetings", greet).run().await
//! }
//! ```

mod attempt;
mod client;
mod clock;
mod error;
mod failure;
mod heart;
mod key;
mod lease_clock;
mod outcome;
mod poll;
mod retry;
mod stop;
mod submit;
mod task;
mod transport;
mod work_loop;
mod worker;

pub use client::{Client, TaskInfo};
pub use error::Error;
pub use failure::Failure;
pub use outcome::Outcome;
pub use stop::Stopper;
pub use submit::Submit;
pub use task::Task;
pub use tokio_util::sync::CancellationToken;
pub use wire::{Backoff, ErrorCategory as Category, HistoryEvent, Json, Problem, Submitted, TaskState};
pub use worker::Worker;
