//! The roles of a node, one after the other: a standby that follows, an owner that leads, an edge that forwards until it
//! ends.

use std::sync::Arc;
use std::time::{Duration, Instant};

use authority::{Position, Time};
use coordinator::{Failure, NodeAddress, Options, Peer, Router, Running, Standby, StartError};
use ledger::postgres::{self, Database, Membership, Observed, OwnerRow, PostgresLedger, PostgresReader};
use ledger::{ErrorKind, RecoveryError, Storage};
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};

use crate::owner_time::OwnerTime;
use crate::suspicion::{Suspicion, Watch};

/// How often a standby looks at the ledger and the owner. The database tells of handovers, not of a death.
const LOOK: Duration = Duration::from_millis(100);
/// How often an owner says that it lives.
const OWNER_BEAT: Duration = Duration::from_millis(500);
/// How often any other node does.
const BEAT: Duration = Duration::from_secs(2);
/// A node that was seen within this time can take over.
const ALIVE: Duration = Duration::from_secs(6);
/// A look that takes longer than this has failed.
const LOOK_TIMEOUT: Duration = Duration::from_secs(5);
/// Attempts to reach the end of a ledger that somebody still writes.
const MAX_ATTEMPTS: usize = 3;

/// This node.
pub struct Node {
    pub name: String,
    /// Where other nodes reach it.
    pub address: String,
    pub version: String,
    /// An owner that is silent for this long is suspected.
    pub takeover_after: Duration,
}

/// What the node is to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Own the ledger when nobody else does.
    #[default]
    Serve,
    /// Hand the ledger over if there is somebody to take it, and forward requests.
    Drain,
    End,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Failed(#[from] Failure),
    #[error("the state could not be recovered from the ledger: {0}")]
    Recovery(String),
}

/// Reaches another node.
type Connect = Box<dyn FnMut(&NodeAddress) -> Arc<dyn Peer> + Send>;

/// Runs a node. See [`Supervisor::run`].
pub struct Supervisor {
    node: Node,
    database: Database,
    membership: Membership,
    router: Router,
    connect: Connect,
    options: Box<dyn FnMut() -> Options + Send>,
    phase: watch::Receiver<Phase>,
    time: OwnerTime,
    /// The owner that requests are forwarded to.
    routed_to: Option<OwnerRow>,
    beat_at: Option<Instant>,
    /// What the standby applies next.
    applied_next: Position,
}

/// What a standby has come to.
enum Followed {
    Ended,
    Owns(Box<Running>),
}

impl Supervisor {
    /// `options` are those of a coordinator that this node starts when it takes over; `connect` reaches another node.
    pub fn new(
        node: Node,
        database: Database,
        router: Router,
        phase: watch::Receiver<Phase>,
        options: impl FnMut() -> Options + Send + 'static,
        connect: impl FnMut(&NodeAddress) -> Arc<dyn Peer> + Send + 'static,
    ) -> Supervisor {
        Supervisor {
            membership: Membership::new(database.clone()),
            node,
            database,
            router,
            connect: Box::new(connect),
            options: Box::new(options),
            phase,
            time: OwnerTime::new(),
            routed_to: None,
            beat_at: None,
            applied_next: Position::ZERO,
        }
    }

    /// Runs until the phase says to end, or until this node must not go on.
    pub async fn run(mut self) -> Result<(), Error> {
        loop {
            match self.follow().await? {
                Followed::Ended => break,
                Followed::Owns(running) => {
                    if self.lead(*running).await? {
                        break;
                    }
                }
            }
        }
        let left = async {
            let _ = self.membership.leave().await;
        };
        let _ = timeout(LOOK_TIMEOUT, left).await;
        Ok(())
    }

    fn phase(&self) -> Phase {
        *self.phase.borrow()
    }

    /// Follows the owner, and takes over when it is gone.
    async fn follow(&mut self) -> Result<Followed, Error> {
        let (mut watch, mut standby) = (Watch::new(self.node.takeover_after), None);
        let (mut news, mut phase) = (self.membership.news(), self.phase.clone());
        let (mut was_told, mut reported) = (false, String::new());
        while self.phase() != Phase::End {
            match self.look().await {
                Ok(observed) => {
                    reported.clear();
                    self.route(&observed);
                    if self.phase() == Phase::Serve {
                        standby = self.catch_up(standby, &observed).await?;
                        // A record shows the owner's time as well as its beat does.
                        let seen = standby.as_ref().map_or(Time::ZERO, Standby::time);
                        let epoch = observed.owner.as_ref().map_or(0, |owner| owner.epoch);
                        self.time.note(epoch, seen.max(Time(observed.beat)));
                        if let Some(why) = watch.judge(&observed, was_told, Instant::now()) {
                            let (running, back) = self.take_over(standby.take(), &observed, why).await?;
                            if let Some(running) = running {
                                return Ok(Followed::Owns(running));
                            }
                            standby = back;
                            watch.restart();
                        }
                    }
                }
                Err(error) => {
                    watch.restart();
                    if reported != error {
                        tracing::warn!(%error, "the database cannot be used; the node looks again and again");
                        reported = error;
                    }
                }
            }
            was_told = tokio::select! {
                changed = news.changed() => changed.is_ok(),
                _ = phase.changed() => false,
                () = sleep(LOOK) => false,
            };
        }
        Ok(Followed::Ended)
    }

    /// Looks at the ledger and its owner, and shows that this node lives.
    async fn look(&mut self) -> Result<Observed, String> {
        let looked = timeout(LOOK_TIMEOUT, async {
            if self.beat_at.is_none_or(|at| at.elapsed() >= BEAT) {
                self.membership.announce(&self.node.address, &self.node.version, self.applied_next).await?;
                self.beat_at = Some(Instant::now());
            }
            self.membership.observe().await
        });
        match looked.await {
            Ok(observed) => observed.map_err(|error| error.to_string()),
            Err(_) => {
                self.membership.hang_up();
                Err("PostgreSQL does not answer".to_owned())
            }
        }
    }

    /// Sends requests to the owner that has announced itself.
    fn route(&mut self, observed: &Observed) {
        let Some(owner) = &observed.owner else { return };
        if owner.node == self.node.name || self.routed_to.as_ref() == Some(owner) {
            return;
        }
        let address =
            NodeAddress { node: owner.node.as_str().into(), address: owner.address.as_str().into() };
        tracing::info!(owner = owner.node, epoch = owner.epoch, "another node owns the ledger");
        let peer = (self.connect)(&address);
        self.router.forward(owner.epoch, address, peer);
        self.routed_to = Some(owner.clone());
    }

    /// The standby with everything that was observed. A new one when there is none, or when its history is not that of the
    /// database any more.
    async fn catch_up(
        &mut self,
        standby: Option<Standby>,
        observed: &Observed,
    ) -> Result<Option<Standby>, Error> {
        let next = observed.next;
        if standby.as_ref().is_some_and(|standby| standby.next() == next) {
            return Ok(standby);
        }
        let reader = PostgresReader::new(self.database.clone());
        let caught_up = spawn_blocking(move || {
            let mut standby = match standby {
                Some(standby) if standby.next() < next => standby,
                Some(ahead) => {
                    tracing::error!(
                        applied_up_to = ahead.next().0 - 1,
                        ledger_ends_before = next.0,
                        "PostgreSQL has lost records that this standby has applied; it begins again"
                    );
                    Standby::open(&reader)?
                }
                None => Standby::open(&reader)?,
            };
            standby.catch_up(&reader)?;
            Ok(standby)
        });
        let caught_up = caught_up.await.map_err(|error| Error::Recovery(error.to_string()))?;
        match caught_up {
            Ok(standby) => {
                self.applied_next = standby.next();
                Ok(Some(standby))
            }
            Err(error) => began_again(error).map(|()| None),
        }
    }

    /// Tries to own the ledger. Gives the standby back when somebody else was faster.
    async fn take_over(
        &mut self,
        standby: Option<Standby>,
        observed: &Observed,
        why: Suspicion,
    ) -> Result<(Option<Box<Running>>, Option<Standby>), Error> {
        let Some(standby) = standby else { return Ok((None, None)) };
        // Of several standbys the one with the lock goes first. A silent owner still has it.
        let is_silent = matches!(why, Suspicion::Silent(_));
        if !is_silent {
            let locked = timeout(LOOK_TIMEOUT, self.membership.try_lock()).await;
            if !matches!(locked, Ok(Ok(true))) {
                return Ok((None, Some(standby)));
            }
        }
        let gone = observed.owner.as_ref().map_or("nobody", |owner| &owner.node).to_owned();
        tracing::warn!(owner = gone, reason = %why, "taking over the ledger");
        let began = Instant::now();
        let mut options = (self.options)();
        options.node = self.node.name.clone();
        options.metrics = self.router.metrics();
        options.time = self.time.now();
        let database = self.database.clone();
        let started = spawn_blocking(move || start(standby, database, options));
        let started = started.await.map_err(|error| Error::Recovery(error.to_string()))?;
        let running = match started {
            Ok(Some(running)) => running,
            failed => {
                // The lock must not keep others from trying.
                let _ = timeout(LOOK_TIMEOUT, self.membership.release()).await;
                failed.map_or_else(not_taken_over, |_| Ok(()))?;
                return Ok((None, None));
            }
        };
        let epoch = running.report.epoch;
        self.router.own(epoch, &running.handle);
        self.routed_to = None;
        tracing::info!(epoch, took_ms = began.elapsed().as_millis() as u64, "this node owns the ledger");
        let announced = async {
            if is_silent {
                self.membership.end_previous_owner().await?;
            }
            self.membership.try_lock().await?;
            let owner = OwnerRow { node: self.node.name.clone(), address: self.node.address.clone(), epoch };
            self.membership.record_owner(&owner, &format!("{gone}: {why}")).await
        };
        if !matches!(timeout(LOOK_TIMEOUT, announced).await, Ok(Ok(()))) {
            tracing::warn!(
                "the other nodes could not be told about the takeover; they will be told with the next beat"
            );
        }
        Ok((Some(Box::new(running)), None))
    }

    /// Owns the ledger until another node does, or until the node ends. Says whether it ends.
    async fn lead(&mut self, mut running: Running) -> Result<bool, Error> {
        let epoch = running.report.epoch;
        let (mut phase, mut ended) = (self.phase.clone(), self.membership.ended());
        loop {
            let time = running.handle.now();
            tokio::select! {
                failure = running.failed() => {
                    self.router.no_owner(epoch);
                    let _ = timeout(LOOK_TIMEOUT, self.membership.release()).await;
                    return match failure {
                        Failure::Fenced(by) => {
                            tracing::warn!(%by, "another node has taken over; this node follows it");
                            Ok(false)
                        }
                        failure => Err(failure.into()),
                    };
                }
                _ = phase.changed() => {}
                is_replaced = self.beat(time, epoch, &mut ended) => {
                    if is_replaced {
                        // A read is confirmed first, which shows whether it is true.
                        let _ = timeout(LOOK_TIMEOUT, running.handle.status()).await;
                    }
                }
            }
            let is_over = match self.phase() {
                Phase::Serve => false,
                Phase::Drain => self.has_successor().await,
                Phase::End => true,
            };
            if is_over {
                // Requests that come now wait for the next owner.
                self.router.no_owner(epoch);
                running.stop().await?;
                let _ = timeout(LOOK_TIMEOUT, self.membership.release()).await;
                tracing::info!("the ledger was handed over");
                return Ok(self.phase() == Phase::End);
            }
        }
    }

    /// Shows that the owner lives, and keeps its lock, which is lost with its session. Says whether another node claims to
    /// be the owner.
    async fn beat(&mut self, time: Time, epoch: u64, ended: &mut watch::Receiver<u64>) -> bool {
        tokio::select! {
            _ = ended.changed() => {}
            () = sleep(OWNER_BEAT) => {}
        }
        let beat = async {
            self.membership.try_lock().await?;
            self.membership.beat(time.0).await?;
            let announced = self.membership.observe().await?.owner.map_or(0, |owner| owner.epoch);
            if announced < epoch {
                let owner =
                    OwnerRow { node: self.node.name.clone(), address: self.node.address.clone(), epoch };
                self.membership.record_owner(&owner, "announced late").await?;
            }
            Ok::<_, postgres::Error>(announced > epoch)
        };
        // The ledger's own session shows whether the database works; nothing depends on this one.
        match timeout(LOOK_TIMEOUT, beat).await {
            Ok(beaten) => beaten.unwrap_or(false),
            Err(_) => {
                self.membership.hang_up();
                false
            }
        }
    }

    /// Whether another node could take over now.
    async fn has_successor(&mut self) -> bool {
        let nodes = timeout(LOOK_TIMEOUT, self.membership.list()).await;
        let Ok(Ok((nodes, _))) = nodes else { return false };
        let alive = ALIVE.as_millis() as u64;
        nodes.iter().any(|node| node.node != self.node.name && node.seen_ms < alive)
    }
}

/// Brings a standby to the end of the ledger and lets it own the ledger. None when the end cannot be reached because
/// somebody writes, or when the database has lost what the standby has applied.
fn start(mut standby: Standby, database: Database, options: Options) -> Result<Option<Running>, StartError> {
    let reader = PostgresReader::new(database.clone());
    for _ in 0..MAX_ATTEMPTS {
        standby.catch_up(&reader)?;
        let ledger = PostgresLedger::open(database.clone())?;
        if standby.is_at_end_of(&ledger) {
            let offsets = Arc::new(postgres::OffsetRows::new(database));
            let storage = Storage { ledger: Box::new(ledger), offsets };
            return standby.take_over(storage, options).map(Some);
        }
    }
    Ok(None)
}

/// Why a takeover did not succeed: another node was faster, the standby begins again, or this node must end.
fn not_taken_over(error: StartError) -> Result<(), Error> {
    match error {
        StartError::Failed(Failure::Fenced(by)) => tracing::info!(%by, "another node has taken over"),
        StartError::Failed(failure @ Failure::Forked { .. }) => return Err(failure.into()),
        StartError::Recovery(error) => began_again(error)?,
        error => tracing::warn!(%error, "the ledger could not be taken over; trying again"),
    }
    Ok(())
}

/// A standby whose history was trimmed or replaced begins again; anything else is final.
fn began_again(error: RecoveryError) -> Result<(), Error> {
    match &error {
        RecoveryError::Ledger(cause)
            if matches!(cause.kind(), ErrorKind::Trimmed | ErrorKind::Unavailable) =>
        {
            tracing::warn!(%error, "the standby begins again");
            Ok(())
        }
        RecoveryError::Ledger(cause) if cause.kind() == ErrorKind::Forked => {
            tracing::error!(%error, "PostgreSQL has lost records that this standby has applied; it begins again");
            Ok(())
        }
        _ => Err(Error::Recovery(error.to_string())),
    }
}
