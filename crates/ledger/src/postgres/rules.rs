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

/// Only a batch that was durable may not be replaced by another one.
pub(super) fn gives_way(never_was_durable: bool) -> bool {
    never_was_durable && !is(InjectedBug::UndurableTakenForDurable)
}

/// What a failover has undone can be appended again, by this node or another one. It is no other history.
pub(super) fn can_come_back() -> bool {
    !is(InjectedBug::LossTakenForFork)
}

/// An owner writes under its own epoch, not only the batch that begins it.
pub(super) fn epoch_to_write(own: u64, begins: bool) -> u64 {
    if is(InjectedBug::EarlierEpochWritten) && !begins { own.saturating_sub(1) } else { own }
}

/// If answers are to wait for a standby, an append has ended when a standby has received it.
pub(super) fn waits_for_receipt(is_wanted: bool) -> bool {
    is_wanted && !is(InjectedBug::ReceiptIgnored)
}
