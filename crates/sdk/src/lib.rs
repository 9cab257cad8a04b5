//! Workers and clients for the Lessor work coordinator.
//!
//! A [`Worker`] has handlers for queues and implements the worker contract around them: leases, heartbeats, retries of
//! lost requests, cancellation and draining. A [`Target`] does the same for tasks that are pushed to a program, with the
//! same handlers. The coordinator alone decides: nothing here schedules another attempt, and nothing is reported after a
//! lease is lost.
//!
//! ```no_run
//! use lessor_sdk::{Failure, Task, Worker};
//!
//! async fn greet(task: Task) -> Result<String, Failure> {
//!     let name: String = task.payload()?;
//!     Ok(format!("Hello, {name}!"))
//! }
//!
//! #[tokio::main]
//! async fn main() -> Result<(), lessor_sdk::Error> {
//!     Worker::new().concurrency(4).handler("greetings", greet).run().await
//! }
//! ```

mod accept;
mod assignment;
mod attempt;
mod backoff;
mod callback_contract;
mod client;
mod clock;
mod contract;
mod dispatches;
mod error;
mod failure;
#[doc(hidden)]
pub mod fuzzing;
mod handler;
mod heartbeater;
mod ids;
mod lease_clock;
mod lease_contract;
mod outcome;
mod poll;
pub mod protocol;
mod setters;
mod shutdown;
mod signature;
mod submit;
mod target;
mod target_options;
mod task;
mod transport;
mod work_loop;
mod worker;

pub use accept::Accept;
pub use client::{Client, TaskInfo};
pub use credentials::{ApiKey, Credentials};
pub use error::Error;
pub use failure::Failure;
pub use outcome::Outcome;
pub use shutdown::Stopper;
pub use submit::Submit;
pub use target::Target;
pub use target_options::TargetOptions;
pub use task::Task;
pub use tokio_util::sync::CancellationToken;
pub use transport::Address;
pub use wire::{
    Backoff, CallbackMetrics as Metrics, ErrorCategory as Category, HistoryEvent, Json, Problem, Submitted,
    TaskEnvelope, TaskState,
};
pub use worker::Worker;
