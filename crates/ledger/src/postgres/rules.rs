//! Named rules of the PostgreSQL backend, and its only file that asks for injected bugs.

use authority::injected_bug::{InjectedBug, is};

/// An append whose answer was lost is looked up. It is neither durable nor undone by itself.
pub(super) fn is_durable_without_answer() -> bool {
    is(InjectedBug::UnknownTakenForDurable)
}

/// A batch that is found where ours belongs, and is ours, was appended by us.
pub(super) fn is_own(is_same: bool) -> bool {
    is_same && !is(InjectedBug::UnknownTakenForFailed)
}

/// A batch that was found is visible. Whether it is replicated, only a later commit shows.
pub(super) fn needs_barrier_when_found() -> bool {
    !is(InjectedBug::FoundWithoutBarrier)
}

/// A commit that came with a warning may not be replicated.
pub(super) fn needs_barrier(is_warned: bool) -> bool {
    is_warned && !is(InjectedBug::WarningIgnored)
}

/// A batch is applied when it is durable.
pub(super) fn is_ready(is_durable: bool) -> bool {
    is_durable || is(InjectedBug::UndurableApplied)
}

/// A standby appends again whatever the owner has sent: the answers to it may have left.
pub(super) fn appends_again(is_held: bool) -> bool {
    is_held && !is(InjectedBug::HeldBatchesForgotten)
}

/// If answers are to wait for a standby, an append has ended when a standby has received it.
pub(super) fn waits_for_receipt(is_wanted: bool) -> bool {
    is_wanted && !is(InjectedBug::ReceiptIgnored)
}
