//! Counts the states that a run must reach: a simulator that never reaches a state proves nothing about it.

use std::collections::BTreeMap;

use authority::Event;

use crate::answer_kinds::EXPECTED_ANSWERS;

macro_rules! reached {
    (alone { $($name:ident => $text:literal,)* } cluster { $($cluster_name:ident => $cluster_text:literal,)* }) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Covered { $($name,)* $($cluster_name,)* }

        impl Covered {
            /// Those of a single coordinator.
            pub const ALONE: &[Covered] = &[$(Covered::$name,)*];
            /// Those that only the nodes of a cluster reach.
            pub const CLUSTER: &[Covered] = &[$(Covered::$cluster_name,)*];

            pub fn name(self) -> &'static str {
                match self { $(Covered::$name => $text,)* $(Covered::$cluster_name => $cluster_text,)* }
            }
        }
    };
}

reached! { alone {
    ExpiryDuringCommit => "a report found its lease expired while it travelled",
    RepeatAfterRestart => "a report was repeated after a restart and got its verdict again",
    RepeatedReport => "a report was repeated",
    ConflictingReport => "an attempt sent a conflicting report and was rejected",
    LateReport => "a report without authority was discarded",
    CommitAfterRestart => "a lease granted before a restart committed after it",
    TornTail => "a torn tail was dropped at start",
    RefusedTail => "a tail of noise was refused and dropped on request",
    FlippedFrame => "a flipped bit in an acknowledged frame was refused",
    FlippedLastFrame => "a flipped bit in the last frame was refused",
    FlippedHistory => "a flipped bit in history showed when it was read",
    FlippedSnapshot => "a start passed over a snapshot with a flipped bit",
    FlippedSnapshots => "damage to every snapshot of a trimmed log was refused",
    UnacknowledgedKept => "unacknowledged records survived a crash",
    UnacknowledgedLost => "unacknowledged records were lost in a crash",
    CrashAfterReceive => "crash after a decision, before its batch was taken",
    CrashBeforeAppend => "crash with a batch taken and not appended",
    CrashInAppend => "crash in the middle of an append",
    CrashAfterAppend => "crash after an append, before its answers",
    CrashBetweenAnswers => "crash between two answers of one batch",
    CrashAtStart => "crash or failure while starting",
    FailedSync => "a failed sync stopped the coordinator",
    FullDisk => "the disk was full and work was refused",
    HeldBatch => "a batch waited for space",
    SpaceAgain => "there was space again",
    Stall => "requests arrived while a sync took long",
    Suspend => "the machine stood still",
    WallBack => "the wall clock was behind the ledger at start",
    WallFar => "the wall clock had jumped far ahead at start",
    DuplicateRequest => "a request arrived twice",
    LostAnswer => "an answer was lost",
    Undelivered => "a lease that nobody waited for was given back",
    SnapshotUnderLoad => "a snapshot was taken while records went on",
    SnapshotUsed => "a start used a snapshot",
    SnapshotFailed => "a snapshot could not be written",
    Trimmed => "old history was removed",
    Rotated => "a segment was full",
    CancelRacesCompletion => "a completion committed after a cancel was requested",
    CancelTimeout => "a cancel ran out of grace",
    CancelWaiting => "a waiting task was cancelled",
    WorkerLost => "a lost worker's lease ended before its time",
    DeadByAttempts => "a task lost all attempts to expiry",
    DeadByDeadline => "a task passed its deadline",
    Killed => "an operator ended a task",
    FailedForGood => "a task failed for good",
    Retried => "a failed attempt was tried again",
    ThirdAttempt => "a third attempt committed",
    Redriven => "a dead letter was done again",
    Deduplicated => "a submit found its task",
    DedupConflict => "a dedup key came with other content",
    Purged => "a final task was purged",
    Session => "a new session gave leases of the old one back",
    DelayedWake => "a delayed task was leased after its delay",
    Released => "a lease was given back",
    PollRepeated => "a repeated poll got the same lease",
    Extended => "a lease was extended",
    ForgedRefused => "a forged reference was refused",
    WrongWorker => "another worker's lease was refused",
    WaitMet => "a client waited for a task to end and got the answer",
    ExplainedRepeat => "explain said why a task ran more than once",
    ExplainedPurged => "explain covered a task that was purged",
    ExplainedTruncated => "explain covered a task whose first records were removed",
    ProjectionRepeated => "a projection received records again",
    ProjectionFailed => "a projection failed and was tried again",
    CrashInProjection => "crash while a projection was applied",
    MemoryFull => "a submit was refused because memory was full",
    PurgedEarly => "a final task was purged early because memory was short",
    KeyRotatedUnderLeases => "the key was rotated while tasks were leased",
    SnapshotInSlices => "records went on between the slices of a snapshot",
    GracefulStop => "an operator stopped the coordinator",
    StopWithBatchInFlight => "an operator stopped the coordinator with a batch on its way to the disk",
    CutOneWay => "a message was lost where one direction was cut",
    CutBothWays => "a message was lost where both directions were cut",
    Requirements => "a task with requirements was leased",
    CreatedAgain => "a repeated call created a task again after its purge",
    CreatedAgainInSnapshot => "a task was created again while a snapshot was taken",
    ExplainedRestart => "explain said that a lease outlived a restart",
} cluster {
    TookOver => "a node took over",
    SkewedTakeover => "a node took over whose wall clock was far from the owner's time",
    ColdStart => "all nodes were down at once",
    OwnerSilent => "a silent owner was replaced",
    OwnerUnlocked => "an owner without a session was replaced",
    OwnerReleased => "a handover was followed at once",
    OwnerSuspended => "an owner stood still",
    OwnerCutFromDatabase => "an owner was cut from the database",
    LinkCut => "two nodes were cut from each other",
    Compared => "a standby compared what it holds with others after a failover",
    Yielded => "a standby left the takeover to one that holds more",
    Fenced => "an owner was fenced",
    TrimmedZombie => "an owner came back after its position had been trimmed",
    HandedOver => "an owner handed over",
    CallRepeated => "a call was sent to the next owner",
    LostStatement => "the answer to a statement was lost",
    ResolvedDurable => "a batch whose answer was lost was found",
    ResolvedFree => "a batch whose answer was lost was appended again",
    LateCommit => "a commit came after its connection was lost",
    CommitOfTheDead => "a batch was stored after its writer had been killed",
    CanceledWait => "a wait for the replica was canceled",
    DeposedServer => "a server that was replaced was asked for a commit",
    DatabaseRestarted => "the database was restarted",
    FailedOver => "a replica was promoted",
    FailoverLost => "a replica was promoted that lacked commits",
    AppendedAgainByOwner => "an owner appended lost commits again",
    AppendedAgainByStandby => "a standby appended lost commits again",
    StandbyAhead => "a standby was ahead of the database",
    StandbyTrimmed => "a standby began again because its history was trimmed",
    Lost => "records were lost that no node held",
    ForkRefused => "a node refused another history",
    FedStandby => "a standby was fed by the owner",
    SnapshotOfOwner => "an owner stored a snapshot and trimmed history",
} }

/// The states and the kinds of events and answers that one history or many have reached.
#[derive(Clone, Debug)]
pub struct Coverage {
    counts: Vec<u64>,
    kinds: BTreeMap<&'static str, u64>,
}

impl Default for Coverage {
    fn default() -> Self {
        let kinds = Event::NAMES.iter().chain(EXPECTED_ANSWERS).map(|kind| (*kind, 0)).collect();
        Coverage { counts: vec![0; Covered::ALONE.len() + Covered::CLUSTER.len()], kinds }
    }
}

impl Coverage {
    pub fn bump(&mut self, what: Covered) {
        self.counts[what as usize] += 1;
    }

    /// Counts an event or an answer of the coordinator.
    pub fn count_kind(&mut self, kind: &'static str) {
        *self.kinds.entry(kind).or_default() += 1;
    }

    pub fn count(&self, what: Covered) -> u64 {
        self.counts[what as usize]
    }

    pub fn add(&mut self, other: &Coverage) {
        self.counts.iter_mut().zip(&other.counts).for_each(|(mine, theirs)| *mine += theirs);
        for (kind, count) in &other.kinds {
            *self.kinds.entry(kind).or_default() += count;
        }
    }

    /// What was expected of a cluster and has not been reached.
    pub fn never_in_cluster(&self) -> Vec<&'static str> {
        Covered::CLUSTER.iter().filter(|what| self.count(**what) == 0).map(|what| what.name()).collect()
    }

    /// What was expected of a single coordinator and has not been reached.
    pub fn never(&self) -> Vec<&'static str> {
        let unseen = Covered::ALONE.iter().filter(|what| self.count(**what) == 0).map(|what| what.name());
        unseen.chain(self.kinds.iter().filter(|(_, count)| **count == 0).map(|(kind, _)| *kind)).collect()
    }
}

impl std::fmt::Display for Coverage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let all = Covered::ALONE.iter().chain(Covered::CLUSTER);
        let seen = all.map(|what| (self.count(*what), what.name()));
        let kinds = self.kinds.iter().map(|(kind, count)| (*count, *kind));
        seen.chain(kinds).try_for_each(|(count, name)| writeln!(f, "{count:>9}  {name}"))
    }
}
