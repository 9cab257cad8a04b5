//! Feeds the blocks of a snapshot into a state.

use authority::{InvalidTransition, Position, Restore, State};

use super::{FORMAT, SnapshotEntry};
use crate::record::DecodeError;

/// Why a snapshot cannot be loaded. The state begun from it must be dropped.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    #[error("a snapshot entry cannot be read: {0}")]
    Decode(#[from] DecodeError),
    #[error("the snapshot contradicts itself: {0}")]
    InvalidTransition(#[from] InvalidTransition),
    #[error("the snapshot has format {found}, but this version reads at most {FORMAT}")]
    NewerFormat { found: u32 },
    #[error("the snapshot does not begin with its one header")]
    Header,
    #[error("the snapshot ends at {end}, but holds what record {newest} did")]
    BeyondEnd { newest: Position, end: Position },
}

#[derive(Default)]
pub struct Loader {
    restore: Option<Restore>,
    /// The newest record that an entry has seen.
    newest: Position,
}

impl Loader {
    pub fn new() -> Loader {
        Loader::default()
    }

    pub fn entry(&mut self, entry: SnapshotEntry) -> Result<(), LoadError> {
        let Some(restore) = &mut self.restore else { return self.header(entry) };
        let seen = match entry {
            SnapshotEntry::Header { .. } => return Err(LoadError::Header),
            SnapshotEntry::Task { queue, task } => {
                let last = task.last;
                restore.task(&queue, *task)?;
                last
            }
            SnapshotEntry::Queue { key, config, configured } => {
                restore.queue(&key, config, configured);
                configured
            }
            SnapshotEntry::Owner(owner) => {
                let since = owner.since;
                restore.owner(owner);
                since
            }
            SnapshotEntry::TokenKey(key) => {
                let since = key.since;
                restore.token_key(key);
                since
            }
            SnapshotEntry::Key(key) => {
                let since = key.since;
                restore.key(key)?;
                since
            }
        };
        self.newest = self.newest.max(seen);
        Ok(())
    }

    /// The state, to which the records after the begin are to be applied. `end` is where the snapshot's last
    /// slice was taken; until there the state may be ahead of its position.
    pub fn finish(self, end: Position) -> Result<State, LoadError> {
        let restore = self.restore.ok_or(LoadError::Header)?;
        if self.newest > end {
            return Err(LoadError::BeyondEnd { newest: self.newest, end });
        }
        Ok(restore.finish(end))
    }

    fn header(&mut self, entry: SnapshotEntry) -> Result<(), LoadError> {
        match entry {
            SnapshotEntry::Header { format: found, .. } if found > FORMAT => {
                Err(LoadError::NewerFormat { found })
            }
            SnapshotEntry::Header { begin, time, .. } => {
                self.restore = Some(Restore::new(begin, time));
                self.newest = begin;
                Ok(())
            }
            _ => Err(LoadError::Header),
        }
    }
}
