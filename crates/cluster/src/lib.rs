//! A node among others that share a ledger in PostgreSQL: it follows the owner as a hot standby, takes over when the
//! owner is gone, and hands over when it leaves.
//!
//! Only liveness depends on anything in here. Who owns the ledger is decided by its next position alone: a node that
//! suspects wrongly is refused, and an owner that was replaced is fenced.

mod failure_detector;
mod fork;
mod own_row;
mod owner_time;
mod reach_end;
mod reachability;
mod rules;
mod supervisor;
mod suspicion;
mod tail;

pub use failure_detector::{ALIVE, Applied, FailureDetector, LOOK_ALARMED, ToRead};
pub use own_row::{BEAT, Name, Standing};
pub use owner_time::OwnerTime;
pub use reach_end::reach_end;
pub use supervisor::{Error, Node, OWNER_BEAT, Phase, Supervisor};
pub use suspicion::{Suspicion, TAKEOVER_AFTER};
