//! The parts of the lease protocol, for programs that bring a loop of their own: the worker agent and the command line.
//!
//! A handler needs none of them. They may change with any release.

pub use crate::backoff::Backoff;
pub use crate::ids::random_id;
pub use crate::lease_clock::LeaseClock;
pub use crate::shutdown::stop_on_signals;
pub use crate::transport::{ANSWER_TIMEOUT, Address, Answer, Fault, Request, Transport, parse_url};

pub use url::Url;

/// The worker's monotonic clock.
pub mod clock {
    pub use crate::clock::{now, until};
}
