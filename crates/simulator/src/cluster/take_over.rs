//! A takeover under way: the way to the end of the ledger, with the production code.

use std::future::Future;
use std::pin::Pin;

use cluster::{Suspicion, reach_end};
use coordinator::{Standby, StartError};
use ledger::ErrorKind;
use ledger::RecoveryError;
use ledger::postgres::Appender;

use super::NodeId;
use super::owner::poll_once;
use super::reader::NodeReader;
use super::statement::Table;
use super::world::ClusterWorld;
use auditor::Covered;

type Reached = Result<Option<Appender<Table>>, StartError>;

/// The way, and the epoch of the owner that is to be replaced.
pub(crate) struct TakingOver(Pin<Box<dyn Future<Output = (Standby, Reached)>>>, u64);

impl ClusterWorld<'_> {
    /// Tries to own the ledger.
    pub(super) fn take_over(&mut self, id: NodeId, why: Suspicion, is_locked: bool) -> Result<(), String> {
        let life = self.nodes[id].life;
        // Of several standbys the one with the lock goes first. A silent owner, or one that came back, still has it.
        if !is_locked && !self.database.lock().try_lock(id, life) {
            self.look_at(id, self.env.now + 100);
            return Ok(());
        }
        self.env.coverage.bump(match why {
            Suspicion::Silent(_) | Suspicion::CameBack => Covered::OwnerSilent,
            Suspicion::Released => Covered::OwnerReleased,
            _ => Covered::OwnerUnlocked,
        });
        self.env.note(&[130, id as u64], || format!("node {id} takes over: {why}"));
        let Some(mut standby) = self.nodes[id].standby.take() else { return Ok(()) };
        self.nodes[id].decided_at = self.env.now;
        let began_at = standby.owner().map_or(0, |owner| owner.epoch);
        let (kept, feed) = (self.nodes[id].kept.clone(), self.nodes[id].feed.clone());
        let reader = NodeReader { database: self.database.clone(), node: id, kept: kept.clone() };
        let table = Table { pipe: self.pipe.clone(), node: id, life };
        let way = async move {
            let open = || async {
                let last = table.last().await?;
                let mut appender = Appender::new(table.clone(), last);
                appender.set_feed(feed.clone());
                appender.restore(&kept).await?;
                Ok(appender)
            };
            let end = |appender: &mut Appender<Table>| {
                appender.hold(&kept);
                (appender.last().next, Some(appender.last().link))
            };
            let reached = reach_end(&mut standby, &kept, &reader, open, end).await;
            (standby, reached)
        };
        self.nodes[id].taking_over = Some(TakingOver(Box::pin(way), began_at));
        self.step_takeover(id)
    }

    /// Goes on with a takeover as far as it can.
    pub(super) fn step_takeover(&mut self, id: NodeId) -> Result<(), String> {
        let Some(TakingOver(way, began_at)) = &mut self.nodes[id].taking_over else { return Ok(()) };
        let reached = poll_once(way.as_mut());
        let began_at = *began_at;
        self.note_reads()?;
        self.dispatch()?;
        let Some((standby, reached)) = reached else { return Ok(()) };
        self.nodes[id].taking_over = None;
        if let Ok(Some(appender)) = reached {
            return self.own(id, (standby, began_at), appender);
        }
        let life = self.nodes[id].life;
        self.database.lock().unlock(id, life);
        self.nodes[id].detector.restart();
        self.look_at(id, self.env.now + 100);
        match reached {
            Ok(_) => Ok(()),
            Err(StartError::Recovery(error)) => self.failed_to_read(id, &error),
            Err(StartError::Ledger(error)) if error.kind() == ErrorKind::Forked => {
                self.failed_to_read(id, &RecoveryError::Ledger(error))
            }
            Err(StartError::Ledger(error)) if error.kind() == ErrorKind::Unavailable => Ok(()),
            Err(error) => Err(format!("node {id} cannot take over: {error}")),
        }
    }
}
