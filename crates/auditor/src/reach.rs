//! Counters of the states that a run must have seen: a simulator that never gets there proves nothing about them.

macro_rules! reached {
    ($($(#[$doc:meta])* $name:ident => $text:literal,)*) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Reached { $($(#[$doc])* $name,)* }

        impl Reached {
            pub const ALL: &[Reached] = &[$(Reached::$name,)*];

            pub fn name(self) -> &'static str {
                match self { $(Reached::$name => $text,)* }
            }
        }
    };
}

reached! {
    ExpiryDuringCommit => "a report found its lease expired while it travelled",
    RepeatAfterRestart => "a report was repeated after a restart and got its verdict again",
    RepeatedReport => "a report was repeated",
    ConflictingReport => "an attempt told another story and was rejected",
    LateReport => "a report without authority was discarded",
    CommitAfterRestart => "a lease granted before a restart committed after it",
    TornTail => "a torn tail was dropped at start",
    RefusedTail => "a tail of noise was refused and dropped on request",
    FlippedFrame => "a flipped bit in an acknowledged frame was refused",
    FlippedLastFrame => "a flipped bit in the last frame was refused",
    FlippedHistory => "a flipped bit in history showed when it was read",
    FlippedSnapshot => "a start passed over a snapshot with a flipped bit",
    FlippedSnapshots => "damage to every snapshot of a trimmed log was refused",
    UnacknowledgedKept => "records that nobody was told of survived a crash",
    UnacknowledgedLost => "records that nobody was told of were lost in a crash",
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
    WaitMet => "somebody waited for a task to end and was told",
}

#[derive(Clone, Debug)]
pub struct Reach(Vec<u64>);

impl Default for Reach {
    fn default() -> Self {
        Reach(vec![0; Reached::ALL.len()])
    }
}

impl Reach {
    pub fn bump(&mut self, what: Reached) {
        self.0[what as usize] += 1;
    }

    pub fn count(&self, what: Reached) -> u64 {
        self.0[what as usize]
    }

    pub fn add(&mut self, other: &Reach) {
        self.0.iter_mut().zip(&other.0).for_each(|(mine, theirs)| *mine += theirs);
    }

    pub fn never(&self) -> Vec<&'static str> {
        Reached::ALL.iter().filter(|what| self.count(**what) == 0).map(|what| what.name()).collect()
    }
}

impl std::fmt::Display for Reach {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        Reached::ALL.iter().try_for_each(|what| writeln!(f, "{:>9}  {}", self.count(*what), what.name()))
    }
}
