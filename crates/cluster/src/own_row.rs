//! The row of this node in the list of nodes: its name, which one process holds at a time, and whether it leaves.
//!
//! The process that holds a name keeps it while it lives. Another process with the same name is refused, unless it
//! replaces the first one; then the first one leaves. A process never takes back a name that it has lost.

use std::time::{Duration, Instant};

use authority::Position;
use ledger::postgres::{self, Announcement, Membership, NameHolder};
use tokio::sync::watch;

use crate::supervisor::{Error, Node, Phase};

/// How often a node says that it lives.
pub const BEAT: Duration = Duration::from_secs(2);
/// How often a node that leaves does: somebody may look at what it still has to do.
const DRAINING_BEAT: Duration = Duration::from_millis(500);

/// What the node has come to know about itself. The process acts on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    pub name: Name,
    /// An operator wants the node to leave.
    pub is_ordered_to_drain: bool,
}

/// Whether this process has the name of its node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Name {
    #[default]
    Wanted,
    Held,
    /// Another process has taken it.
    Lost,
}

pub(crate) struct OwnRow {
    pub standing: watch::Sender<Standing>,
    pub connections: Box<dyn Fn() -> u64 + Send>,
    /// Whether this node could take over at once.
    pub is_hot: bool,
    /// When the row was written last, in which phase, and whether the node was hot.
    written: Option<(Instant, Phase, bool)>,
    /// The process that held the name at the first look: its instance, and when it had been seen.
    rival: Option<(i64, i64)>,
}

impl OwnRow {
    pub(crate) fn new() -> OwnRow {
        OwnRow {
            standing: watch::Sender::default(),
            connections: Box::new(|| 0),
            is_hot: false,
            written: None,
            rival: None,
        }
    }

    pub(crate) fn name(&self) -> Name {
        self.standing.borrow().name
    }

    /// Writes the row if it is time to.
    pub(crate) async fn announce_in_time(
        &mut self,
        membership: &mut Membership,
        node: &Node,
        applied_next: Position,
        phase: Phase,
    ) -> Result<(), Failed> {
        let beat = if phase < Phase::Drain { BEAT } else { DRAINING_BEAT };
        match self.written {
            Some((at, in_phase, hot)) if (in_phase, hot) == (phase, self.is_hot) && at.elapsed() < beat => {
                Ok(())
            }
            _ => self.announce(membership, node, applied_next, phase).await,
        }
    }

    /// Writes the row, and finds out who holds the name.
    pub(crate) async fn announce(
        &mut self,
        membership: &mut Membership,
        node: &Node,
        applied_next: Position,
        phase: Phase,
    ) -> Result<(), Failed> {
        if self.name() == Name::Lost {
            return Ok(());
        }
        let about = Announcement {
            address: node.address.clone(),
            version: node.version.clone(),
            applied_next,
            is_draining: phase >= Phase::Drain,
            connections: (self.connections)(),
            is_hot: self.is_hot,
        };
        let takes_name = phase == Phase::Replace && self.name() == Name::Wanted;
        let holder = membership.announce(&about, takes_name).await?;
        self.written = Some((Instant::now(), phase, self.is_hot));
        match (holder, self.name()) {
            (NameHolder::This, _) => self.set_name(Name::Held),
            (NameHolder::Other { address, .. }, Name::Held) => {
                // A process that is replaced leaves already.
                if phase < Phase::Drain {
                    tracing::warn!(
                        name = node.name,
                        other = address,
                        "another process has taken the name of this node, which leaves; if they are two nodes, give each its \
                         own name (cluster.node)"
                    );
                }
                self.set_name(Name::Lost);
            }
            (NameHolder::Other { address, instance, seen_us }, _) => {
                let is_alive = self.rival.is_some_and(|(known, seen)| known == instance && seen < seen_us);
                if is_alive && !node.replaces {
                    return Err(Failed::Refused(Error::NameTaken { name: node.name.clone(), address }));
                }
                if self.rival.is_none_or(|(known, _)| known != instance) {
                    tracing::warn!(
                        name = node.name,
                        at = address,
                        "the name of this node is in use; waiting for it"
                    );
                    self.rival = Some((instance, seen_us));
                }
            }
        }
        Ok(())
    }

    fn set_name(&self, name: Name) {
        self.modify(|standing| standing.name = name);
    }

    /// Notes whether an operator wants the node to leave.
    pub(crate) fn note_order(&self, is_ordered: bool) {
        self.modify(|standing| standing.is_ordered_to_drain |= is_ordered);
    }

    fn modify(&self, change: impl FnOnce(&mut Standing)) {
        self.standing.send_if_modified(|standing| {
            let before = *standing;
            change(standing);
            *standing != before
        });
    }
}

/// Why the row was not written.
pub(crate) enum Failed {
    Database(postgres::Error),
    /// This node must not go on.
    Refused(Error),
}

impl From<postgres::Error> for Failed {
    fn from(error: postgres::Error) -> Failed {
        Failed::Database(error)
    }
}
