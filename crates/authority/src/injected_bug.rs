//! Bugs that a test injects to show that it finds them. They exist only with the feature `injected-bugs`, which nothing
//! in the product enables: without the feature no bug can be injected, nothing is stored, and the compiler removes every
//! question about a bug.
//!
//! The crates around the authority ask here too, so that there is one list and one switch.

macro_rules! injected_bugs {
    (alone { $($(#[$doc:meta])* $name:ident,)* } cluster { $($(#[$cluster_doc:meta])* $cluster_name:ident,)* }) => {
        /// A bug, by what it does wrong.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum InjectedBug { $($(#[$doc])* $name,)* $($(#[$cluster_doc])* $cluster_name,)* }

        #[cfg(feature = "injected-bugs")]
        impl InjectedBug {
            /// Those that a single coordinator can have.
            pub const ALONE: &[InjectedBug] = &[$(InjectedBug::$name,)*];
            /// Those that only the nodes of a cluster can have.
            pub const CLUSTER: &[InjectedBug] = &[$(InjectedBug::$cluster_name,)*];
        }
    };
}

injected_bugs! { alone {
    /// A report commits although its lease has expired.
    LateReportCommits,
    /// A report commits although the grace of the task's cancel is over.
    GraceNotChecked,
    /// A heartbeat brings an expired lease back.
    ExpiredLeaseRevived,
    /// A task that had an attempt never gets ready again.
    RequeueForgotten,
    /// A second report with other content is taken for a repeat.
    ConflictingReportAccepted,
    /// A repeated report is taken for a late one.
    RepeatCalledStale,
    /// A task that is being cancelled waits again when its lease expires.
    CancelledWaitsAgain,
    /// A queue that is named twice gives the same task twice.
    LeaseGrantedTwice,
    /// A purge takes a waiting task along.
    WaitingTaskPurged,
    /// A dedup key is free again when its task ends, not when it is purged.
    DedupKeyForgotten,
    /// All leases of one grant carry the number of the first.
    TokenRepeated,
    /// An attempt that is lost to expiry does not count.
    ExpiryCostsNothing,
    /// A task waits for its retry, but is leased before.
    RetryDelayIgnored,
    /// A failure that may be tried again ends its task.
    RetryForgotten,
    /// A failed task is to be tried again at once.
    BackoffForgotten,
    /// Waiting tasks are leased in the opposite order.
    ReadyOrderReversed,
    /// Another worker's report counts as the holder's.
    WrongWorkerAccepted,
    /// A report under an earlier lease counts as one under the current.
    StaleLeaseAccepted,
    /// A report on a task that is being cancelled is dropped.
    ReportLostToCancel,
    /// A cancel of a leased task is answered and not recorded.
    CancelForgotten,
    /// The loss of a worker ends its leases of every contract.
    AnyLeaseEndsWithWorker,
    /// A restored state knows no timers.
    TimersLostAtRestore,
    /// A restored state knows no settings of queues.
    SettingsLostAtRestore,
    /// Records that a snapshot holds already are applied again.
    WindowAppliedTwice,
    /// A frame of which sectors are missing is taken for whole.
    TornFrameApplied,
    /// A frame is believed, whatever its checksum.
    ChecksumIgnored,
    /// A frame that does not verify is passed over.
    DamagedFrameSkipped,
    /// After a failed sync the ledger syncs again and goes on.
    FailedSyncRetried,
    /// The log that only the older snapshot needs is removed.
    TrimmedTooFar,
    /// A start believes the wall clock, also when the ledger is ahead of it.
    ClockFromWall,
    /// A projection that failed is taken for done.
    FailedProjectionPassed,
} cluster {
    /// An append whose answer was lost is taken for durable.
    UnknownTakenForDurable,
    /// An append whose answer was lost is taken for failed: the batch that is found is another writer's.
    UnknownTakenForFailed,
    /// A batch that was found instead of acknowledged counts as replicated.
    FoundWithoutBarrier,
    /// A batch whose commit came with a warning counts as replicated.
    WarningIgnored,
    /// A standby applies batches that may never become durable.
    UndurableApplied,
    /// A standby that takes over does not append again what the owner had sent to it.
    HeldBatchesForgotten,
    /// Answers do not wait for a standby although they should.
    ReceiptIgnored,
    /// Answers that rest on no new record do not wait for a confirmation.
    ReadUnconfirmed,
    /// An answer is confirmed by what was begun before its request came.
    ConfirmedTooEarly,
    /// A new owner takes the time from its own wall clock.
    TimeFromOwnWall,
    /// What was known of the clock of an earlier owner counts for its successors.
    OldLeadKept,
    /// A standby takes over after a failover although another node holds more.
    LeastTakesOver,
    /// A batch that never became durable counts as durable, so that another one in its place is a fork.
    UndurableTakenForDurable,
    /// What a failover has undone is taken for a fork.
    LossTakenForFork,
    /// An owner writes under the epoch of the owner before.
    EarlierEpochWritten,
} }

#[cfg(feature = "injected-bugs")]
mod switch {
    use super::InjectedBug;

    thread_local! {
        static INJECTED: std::cell::Cell<Option<InjectedBug>> = const { std::cell::Cell::new(None) };
    }

    /// Injects a bug into this thread, or removes it.
    pub fn inject(bug: Option<InjectedBug>) {
        INJECTED.set(bug);
    }

    /// Whether this bug is injected.
    pub fn is(bug: InjectedBug) -> bool {
        INJECTED.get() == Some(bug)
    }
}

#[cfg(feature = "injected-bugs")]
pub use switch::{inject, is};

/// Whether this bug is injected: never without the feature.
#[cfg(not(feature = "injected-bugs"))]
pub const fn is(_: InjectedBug) -> bool {
    false
}
