//! The worker: leases tasks, lays out the inputs of their actions, runs them and brings back their outputs.
//!
//! The worker reports only on leases that it holds, stops work whose result can no longer be accepted, and leaves no
//! processes and no directories behind. It never decides whether a result counts, and never writes to the action cache.

pub mod action;
mod agent;
mod cache;
pub mod check;
mod command;
mod config;
pub mod dirfd;
mod disk;
mod error;
pub mod executors;
#[doc(hidden)]
pub mod fuzzing;
mod inputs;
mod local_cas;
mod outputs;
mod perform;
mod proc;
mod work;
mod work_dir;
mod worker_context;

pub use action::Actions;
pub use agent::{Agent, Pool, Resources};
pub use cache::verify::digest_of;
pub use command::MAX_INLINE_BYTES;
pub use config::{ActionOptions, Config, Protocol};
pub use disk::Disk;
pub use error::Error;
pub use execution::Failure;
pub use executors::Executor;
pub use lessor_sdk::Stopper;
pub use local_cas::LocalCas;
pub use perform::{Outcome, Performer, Permit};
pub use reapi_client::Cas;
pub use work::Work;
