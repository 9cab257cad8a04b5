//! Named rules of the coordinator, and its only file that asks for injected bugs.
//!
//! Each rule states what is right. Where a test can inject a bug, the rule gives the wrong answer instead; every caller
//! reads as if there were none.

use authority::Time;
use authority::injected_bug::{InjectedBug, is};

/// The time of a start: never before the newest time in the ledger, so that time in the ledger never falls.
pub fn first_time(newest: Time, wall: Time) -> Time {
    if is(InjectedBug::ClockFromWall) { wall } else { newest.max(wall) }
}

/// A projection that failed gets the same record again.
pub(crate) fn projection_outcome(applied: Result<(), String>) -> Result<(), String> {
    if is(InjectedBug::FailedProjectionPassed) { Ok(()) } else { applied }
}

/// Where other nodes may write too, an answer waits for an append or a confirmation that is begun after its request came.
/// `begun` counts those that were begun; 0 stands for none.
pub(crate) fn round_to_wait_for(needs_confirmation: bool, begun: u64) -> u64 {
    match needs_confirmation {
        false => 0,
        true if is(InjectedBug::ReadUnconfirmed) => 0,
        true if is(InjectedBug::ConfirmedTooEarly) => begun,
        true => begun + 1,
    }
}
