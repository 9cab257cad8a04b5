//! The events of a run: what happens to nodes, to the database and to the network between them.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;

use super::Cluster;
use super::report::Happened;

/// How long an owner stays cut off, or stopped, after another node has taken over.
const STALE_FOR: Duration = Duration::from_millis(500);
/// A partition between nodes. Longer than the time for which a node holds a request without an owner.
const CUT_FOR: Duration = Duration::from_secs(12);
/// How long the replica stands still while waits for it are canceled: shorter than the time after which new work is refused.
const CANCEL_FOR: Duration = Duration::from_millis(1_500);
const CANCEL_INTERVAL: Duration = Duration::from_millis(50);
/// How long the replica is gone: longer than the time after which new work is refused.
const WITHOUT_REPLICA: Duration = Duration::from_secs(3);

const AT_A_KILL: Duration = Duration::from_secs(1);
const AT_A_SILENCE: Duration = Duration::from_secs(5);
/// Beyond the time until the new primary takes writes.
const AFTER_A_FAILOVER: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// SIGKILL of the owner, which starts again later.
    KillOwner,
    /// SIGKILL of a node that does not own the ledger.
    KillEdge,
    /// SIGSTOP of the owner until another node owns the ledger, then SIGCONT.
    StopOwner,
    /// SIGTERM of the owner, which hands over; it starts again.
    HandOver,
    /// The owner cannot reach the other nodes for a while. Another node owns the ledger by then.
    CutNodes,
    /// The owner cannot reach the database until another node owns the ledger.
    CutDatabase,
    /// SIGKILL of the primary; the synchronous replica is promoted.
    Promote,
    /// The same after waits for the replica were canceled, so that the replica lacks what the primary has committed.
    PromoteUnreplicated,
    /// The replica stands still, and waits for it are canceled.
    CancelWaits,
    /// The synchronous replica is gone for a while.
    LoseReplica,
    /// All sessions with the database are ended.
    CutSessions,
    /// SIGKILL of the primary, which starts again.
    RestartDatabase,
}

impl Event {
    pub(super) const ALL: [Event; 12] = [
        Event::KillOwner,
        Event::CutSessions,
        Event::StopOwner,
        Event::KillEdge,
        Event::CancelWaits,
        Event::HandOver,
        Event::CutNodes,
        Event::Promote,
        Event::CutDatabase,
        Event::LoseReplica,
        Event::RestartDatabase,
        Event::PromoteUnreplicated,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Event::KillOwner => "kill-owner",
            Event::KillEdge => "kill-edge",
            Event::StopOwner => "stop-owner",
            Event::HandOver => "hand-over",
            Event::CutNodes => "cut-nodes",
            Event::CutDatabase => "cut-database",
            Event::Promote => "promote",
            Event::PromoteUnreplicated => "promote-unreplicated",
            Event::CancelWaits => "cancel-waits",
            Event::LoseReplica => "lose-replica",
            Event::CutSessions => "cut-sessions",
            Event::RestartDatabase => "restart-database",
        }
    }
}

impl Event {
    /// The longest pause of a request that is promised.
    pub(super) fn longest_pause(self, outage: Option<Duration>) -> Duration {
        match self {
            Event::KillOwner | Event::KillEdge | Event::HandOver | Event::CutSessions => AT_A_KILL,
            Event::StopOwner | Event::CutNodes | Event::CutDatabase => AT_A_SILENCE,
            Event::CancelWaits => CANCEL_FOR + AFTER_A_FAILOVER,
            Event::Promote | Event::PromoteUnreplicated | Event::LoseReplica | Event::RestartDatabase => {
                outage.unwrap_or_default() + AFTER_A_FAILOVER
            }
        }
    }
}

impl Cluster {
    /// Lets an event happen, and returns once everything works again.
    pub(super) async fn happen(&mut self, event: Event) -> Result<Happened> {
        self.world.note_start();
        let (owner, epoch) = self.databases.known_owner().await?;
        let at = self.processes.iter().position(|node| node.name == owner);
        let at = at.with_context(|| format!("the owner is {owner:?}"))?;
        let mut happened = Happened { event, began: self.now(), owned_again: None, outage: None };
        let result = match event {
            Event::KillOwner => self.kill(at, Some(epoch), &mut happened).await,
            Event::KillEdge => self.kill((at + 1) % self.processes.len(), None, &mut happened).await,
            Event::StopOwner => self.stop_owner(at, epoch, &mut happened).await,
            Event::HandOver => self.hand_over(at, epoch, &mut happened).await,
            Event::CutNodes => self.cut_nodes(at, epoch, &mut happened).await,
            Event::CutDatabase => self.cut_database(at, epoch, &mut happened).await,
            Event::Promote => self.promote(&mut happened).await,
            Event::PromoteUnreplicated => {
                self.databases.stop_replica();
                ensure!(self.cancel_waits().await > 0, "nobody waited for the replica");
                self.promote(&mut happened).await
            }
            Event::CancelWaits => {
                self.databases.stop_replica();
                let canceled = self.cancel_waits().await;
                self.databases.continue_replica();
                ensure!(canceled > 0, "nobody waited for the replica");
                Ok(())
            }
            Event::LoseReplica => self.lose_replica(&mut happened).await,
            Event::CutSessions => {
                let cut = self.databases.cut_sessions().await?;
                ensure!(cut > 0, "there were no sessions");
                Ok(())
            }
            Event::RestartDatabase => {
                let restarted = self.databases.restart().await;
                happened.outage = Some((happened.began, self.now()));
                restarted
            }
        };
        result.with_context(|| format!("{event:?} with {owner} as the owner at epoch {epoch}"))?;
        for node in &mut self.processes {
            node.check_that_it_runs()?;
        }
        Ok(happened)
    }

    async fn kill(&mut self, at: usize, epoch: Option<u64>, happened: &mut Happened) -> Result<()> {
        let process = &mut self.processes[at];
        self.world.nodes.node(at).down(|| process.kill())?;
        if let Some(epoch) = epoch {
            self.databases.wait_for_owner_after(epoch).await?;
            happened.owned_again = Some(self.now());
        }
        self.start_node(at).await
    }

    async fn stop_owner(&mut self, at: usize, epoch: u64, happened: &mut Happened) -> Result<()> {
        let process = &mut self.processes[at];
        self.world.nodes.node(at).down(|| process.signal(Signal::STOP))?;
        let owner = self.databases.wait_for_owner_after(epoch).await;
        happened.owned_again = Some(self.now());
        if owner.is_ok() {
            tokio::time::sleep(STALE_FOR).await;
        }
        self.processes[at].signal(Signal::CONT)?;
        owner?;
        self.processes[at].wait_until_ready().await?;
        self.world.nodes.node(at).up()
    }

    async fn hand_over(&mut self, at: usize, epoch: u64, happened: &mut Happened) -> Result<()> {
        self.world.nodes.node(at).leave();
        self.processes[at].terminate().await?;
        self.databases.wait_for_owner_after(epoch).await?;
        happened.owned_again = Some(self.now());
        self.start_node(at).await
    }

    async fn cut_nodes(&mut self, at: usize, epoch: u64, happened: &mut Happened) -> Result<()> {
        let (host, others) = self.split(at);
        let heals_at = self.now() + CUT_FOR;
        // Its clients leave it: it refuses what it cannot forward.
        let node = self.world.nodes.node(at).clone();
        node.down(|| {
            others.iter().for_each(|other| host.cut(other));
            Ok(())
        })?;
        let owner = self.databases.wait_for_owner_after(epoch).await;
        happened.owned_again = Some(self.now());
        tokio::time::sleep(heals_at.saturating_sub(self.now())).await;
        others.iter().for_each(|other| host.heal(other));
        owner?;
        self.processes[at].wait_until_ready().await?;
        node.up()
    }

    async fn cut_database(&mut self, at: usize, epoch: u64, happened: &mut Happened) -> Result<()> {
        let host = self.processes[at].host.clone();
        self.database_hosts.iter().for_each(|database| host.cut(database));
        let owner = self.databases.wait_for_owner_after(epoch).await;
        happened.owned_again = Some(self.now());
        if owner.is_ok() {
            tokio::time::sleep(STALE_FOR).await;
        }
        self.database_hosts.iter().for_each(|database| host.heal(database));
        owner?;
        self.processes[at].wait_until_ready().await
    }

    async fn promote(&mut self, happened: &mut Happened) -> Result<()> {
        let promoted = self.databases.fail_over().await;
        happened.outage = Some((happened.began, self.now()));
        promoted?;
        self.databases.rebuild_replica().await
    }

    /// Cancels every wait for the replica, again and again.
    async fn cancel_waits(&self) -> usize {
        let until = self.now() + CANCEL_FOR;
        let mut canceled = 0;
        while self.now() < until {
            canceled += self.databases.cancel_waits().await;
            tokio::time::sleep(CANCEL_INTERVAL).await;
        }
        canceled
    }

    async fn lose_replica(&mut self, happened: &mut Happened) -> Result<()> {
        self.databases.kill_replica();
        tokio::time::sleep(WITHOUT_REPLICA).await;
        self.databases.restart_replica();
        let followed = self.databases.wait_until_synchronous().await;
        happened.outage = Some((happened.began, self.now()));
        followed
    }
}
