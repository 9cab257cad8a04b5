//! Named rules of the roles of a node, and the only file of this crate that asks for injected bugs.

use authority::Time;
use authority::injected_bug::{InjectedBug, is};

/// Every owner has a clock of its own.
pub(crate) fn is_of_another_owner(is_later: bool) -> bool {
    is_later && !is(InjectedBug::OldLeadKept)
}

/// A new owner goes on from the time of the last one.
pub(crate) fn time_of_owner(time: Option<Time>) -> Option<Time> {
    if is(InjectedBug::TimeFromOwnWall) { None } else { time }
}

/// After a failover the standby that holds most takes over before the others.
pub(crate) fn passes(lets_pass: bool) -> bool {
    lets_pass || is(InjectedBug::LeastTakesOver)
}
