//! A hot standby: the state of a ledger that another node writes, ready to own it.
//!
//! It has no thread and no clock, so that production and a simulator drive the same code.

use std::ops::ControlFlow;
use std::time::Instant;

use authority::{Position, State, Time};
use ledger::postgres::Kept;
use ledger::{Link, Reader, Recovery, RecoveryError, Storage, Visit};

use crate::Replica;
use crate::driver::{Options, Recovered, Running, StartError, start_with};

pub struct Standby {
    replica: Replica,
    /// The end of the snapshot that it began with.
    snapshot: Option<Position>,
    /// Stands for everything that was applied.
    link: Option<Link>,
}

/// The owner that the ledger names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    pub node: String,
    pub epoch: u64,
}

impl Standby {
    /// Begins with the newest snapshot and every record after it.
    pub fn open(reader: &dyn Reader) -> Result<Standby, RecoveryError> {
        let (recovery, snapshot) = match reader.snapshots()?.last() {
            Some(newest) => (Recovery::from_snapshot(&mut *reader.load_snapshot(newest)?)?, Some(newest.end)),
            None => (Recovery::new(), None),
        };
        let mut standby = Standby { replica: Replica::new(recovery), snapshot, link: None };
        standby.catch_up(reader)?;
        Ok(standby)
    }

    /// Applies every record that the ledger has gained, and returns how many there were.
    pub fn catch_up(&mut self, reader: &dyn Reader) -> Result<u64, RecoveryError> {
        self.follow(|from, after, visit| reader.follow(from, after, visit))
    }

    /// Applies every durable record that was received from the owner, and returns how many there were.
    pub fn apply_received(&mut self, kept: &Kept) -> Result<u64, RecoveryError> {
        self.follow(|from, after, visit| Ok(kept.follow(from, after, visit)))
    }

    fn follow(
        &mut self,
        follow: impl FnOnce(Position, Option<Link>, &mut Visit<'_>) -> Result<Option<Link>, ledger::Error>,
    ) -> Result<u64, RecoveryError> {
        let (before, mut failed) = (self.records(), None);
        let (next, link) = (self.next(), self.link);
        let followed = follow(next, link, &mut |position, bytes| {
            // Readers wait for one record at most.
            match self.replica.recovery_mut().as_mut().map(|recovery| recovery.apply(position, bytes)) {
                Some(Err(error)) => {
                    failed = Some(error);
                    ControlFlow::Break(())
                }
                _ => ControlFlow::Continue(()),
            }
        });
        self.replica.publish();
        self.link = followed?;
        failed.map_or(Ok(self.records() - before), Err)
    }

    /// For reads that may be behind the owner.
    pub fn replica(&self) -> &Replica {
        &self.replica
    }

    fn with<T: Default>(&self, look: impl FnOnce(&Recovery) -> T) -> T {
        // It is there until this standby takes over.
        self.replica.recovery().as_ref().map(look).unwrap_or_default()
    }

    fn records(&self) -> u64 {
        self.with(Recovery::records)
    }

    /// The position of the record that comes next.
    pub fn next(&self) -> Position {
        self.with(Recovery::next)
    }

    /// The time of the newest record.
    pub fn time(&self) -> Time {
        self.with(|recovery| recovery.state().time())
    }

    pub fn tasks(&self) -> usize {
        self.with(|recovery| recovery.state().len())
    }

    pub fn owner(&self) -> Option<Owner> {
        self.with(|recovery| {
            let owner = recovery.state().owner()?;
            Some(Owner { node: owner.node.to_string(), epoch: owner.epoch })
        })
    }

    /// Whether this standby has what a ledger holds that ends here: everything, and nothing else.
    pub fn is_at(&self, next: Position, link: Option<Link>) -> bool {
        let is_same = self.link.zip(link).is_none_or(|(own, last)| own == last);
        self.next() == next && is_same
    }

    /// The state that it has, for whoever owns the ledger from here on.
    pub fn into_state(self) -> State {
        self.replica.recovery_mut().take().unwrap_or_default().into_state()
    }

    /// Owns the ledger from here on, if nobody has appended since it was opened: otherwise the start is fenced. The
    /// standby must be at its end.
    pub fn take_over(self, storage: Storage, options: Options) -> Result<Running, StartError> {
        let began = Instant::now();
        let Standby { replica, snapshot, .. } = self;
        let recovery = replica.recovery_mut().take().unwrap_or_default();
        let (replayed, replayed_bytes) = (recovery.records(), recovery.bytes());
        let recovered = Recovered {
            state: recovery.into_state(),
            snapshot,
            replayed,
            replayed_bytes,
            took: began.elapsed(),
        };
        start_with(storage, recovered, options)
    }
}
