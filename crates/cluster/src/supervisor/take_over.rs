//! The takeover: a standby becomes the owner.

use std::sync::Arc;
use std::time::Instant;

use coordinator::{Clock, Failure, Options, Running, Standby, StartError};
use futures_util::FutureExt;
use ledger::postgres::{self, Database, Feed, Kept, Observed, OwnerRow, PostgresLedger, PostgresReader};
use ledger::{ErrorKind, Ledger, Storage};
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};

use super::{Error, LOOK_TIMEOUT, OWNER_BEAT, Supervisor};
use crate::fork::Fork;
use crate::owner_time::OwnerTime;
use crate::reach_end::reach_end;
use crate::suspicion::Suspicion;

/// For how many beats a node that takes over shows that it lives: a minute.
const MAX_SHOWN: usize = 120;

impl Supervisor {
    /// Tries to own the ledger. Gives the standby back when somebody else was faster.
    pub(super) async fn take_over(
        &mut self,
        standby: Option<Standby>,
        observed: &Observed,
        why: Suspicion,
    ) -> Result<(Option<Box<Running>>, Option<Standby>), Error> {
        let Some(standby) = standby else { return Ok((None, None)) };
        // Of several standbys the one with the lock goes first. A silent owner, or one that came back, still has it.
        if !observed.is_locked {
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
        options.lacks_standby = self.feed.lacks_standby();
        let database = self.database.clone();
        let (kept, feed) = (self.kept.clone(), self.feed.clone());
        let (time, clock) = (self.detector.time(), self.clock.clone());
        self.router.set_replica(None);
        let mut started =
            spawn_blocking(move || start(standby, database, &kept, feed, (time, clock), options));
        let started = tokio::select! {
            started = &mut started => started,
            () = self.show_that_it_lives() => started.await,
        };
        let started = started.map_err(|error| Error::Recovery(error.to_string()))?;
        if !matches!(started, Ok(Started::Owns(_))) {
            // The lock must not keep others from trying. They see that it is free; told of it, this node would try again at once, too.
            let _ = timeout(LOOK_TIMEOUT, self.membership.unlock()).await;
        }
        let running = match started {
            Ok(Started::Owns(running)) => running,
            Ok(Started::Follows(standby)) => {
                self.applied_next = standby.next();
                self.router.set_replica(Some(standby.replica().clone()));
                return Ok((None, Some(standby)));
            }
            Err(error) => {
                self.not_taken_over(error)?;
                return Ok((None, None));
            }
        };
        let epoch = running.report.epoch;
        self.feed.begin_to_serve();
        self.router.own(epoch, &running.handle);
        (self.routed_to, self.tail, self.has_owned) = (None, None, true);
        self.detector.owns();
        self.reachability.owns(why == Suspicion::CutOff, Instant::now());
        self.kept.clear();
        (self.shown_as_fed, self.own_row.is_hot, self.server_is_recorded) = (None, false, false);
        let may_live = !matches!(why, Suspicion::Released | Suspicion::NoOwner);
        if let Some(previous) = observed.owner.as_ref().filter(|owner| may_live && !self.is_this(owner)) {
            self.announce_to_previous_owner(previous, epoch);
        }
        tracing::info!(epoch, took_ms = began.elapsed().as_millis() as u64, "this node owns the ledger");
        let announced = async {
            if observed.is_locked {
                self.membership.end_previous_owner().await?;
            }
            self.membership.try_lock().await?;
            let owner = OwnerRow { node: self.node.name.clone(), address: self.node.address.clone(), epoch };
            let time = running.handle.now().0;
            if let Some(last) = self.database.last_durable() {
                self.membership.record_owner(&owner, &format!("{gone}: {why}"), time, last).await?;
            }
            self.membership.set_fed(false).await
        };
        if !matches!(timeout(LOOK_TIMEOUT, announced).await, Ok(Ok(()))) {
            tracing::warn!(
                "the other nodes could not be told about the takeover; they will be told with the next beat"
            );
        }
        Ok((Some(Box::new(running)), None))
    }

    /// A takeover may take long, if there is much to append again. Others wait for this node while it is seen, but not without end.
    async fn show_that_it_lives(&mut self) {
        for _ in 0..MAX_SHOWN {
            sleep(OWNER_BEAT).await;
            let phase = self.phase();
            let (membership, node) = (&mut self.membership, &self.node);
            let announced = self.own_row.announce_in_time(membership, node, self.applied_next, phase);
            let _ = timeout(LOOK_TIMEOUT, announced).await;
        }
    }

    /// Why a takeover has failed: another node was faster, the standby begins again, or this node must end.
    fn not_taken_over(&mut self, error: StartError) -> Result<(), Error> {
        let known = self.kept.known_durable();
        match error {
            StartError::Failed(Failure::Fenced(by)) => tracing::info!(%by, "another node has taken over"),
            StartError::Failed(Failure::Forked { at }) => self.refuse(Fork { at, known }),
            StartError::Recovery(error) => drop(self.failed_to_read(&error)?),
            StartError::Ledger(error) if error.kind() == ErrorKind::Forked => {
                Fork::of_ledger(&error, known).into_iter().for_each(|fork| self.refuse(fork));
            }
            error => tracing::warn!(%error, "the ledger could not be taken over; trying again"),
        }
        Ok(())
    }
}

/// What became of a standby that was to own the ledger.
enum Started {
    Owns(Running),
    /// Still a standby, with everything that it has applied.
    Follows(Standby),
}

/// Brings a standby to the end of the ledger and lets it own the ledger, unless the end cannot be reached because somebody
/// writes, or another node has taken over meanwhile.
fn start(
    mut standby: Standby,
    database: Database,
    kept: &Kept,
    feed: Feed,
    (time, clock): (OwnerTime, Clock),
    mut options: Options,
) -> Result<Started, StartError> {
    let began_at = standby.owner().map_or(0, |owner| owner.epoch);
    let reader = PostgresReader::new(database.clone()).keeping(kept.clone());
    let open = async || PostgresLedger::open_after(database.clone(), kept, feed.clone());
    let end = |ledger: &mut PostgresLedger| {
        ledger.hold(kept);
        (ledger.next(), ledger.last_link())
    };
    // PostgreSQL is waited for inside, on this thread.
    let reached = reach_end(&mut standby, kept, &reader, open, end).now_or_never();
    let Some(ledger) = reached.transpose()?.flatten() else { return Ok(Started::Follows(standby)) };
    // Another standby was faster, and nobody has suspected it yet: to replace it would be one takeover more.
    if standby.owner().is_some_and(|owner| owner.epoch > began_at) {
        return Ok(Started::Follows(standby));
    }
    let offsets = Arc::new(postgres::OffsetRows::new(database.clone()));
    let storage = Storage { ledger: Box::new(ledger), offsets };
    options.time = time.after(&standby, began_at, clock.now());
    standby.take_over(storage, options).map(Started::Owns)
}

#[cfg(test)]
mod tests {
    use authority::command::SubmitTask;
    use authority::{Properties, QueueKey, Scope, TaskId, Time};
    use ledger::ClusterId;
    use ledger::postgres::{Cluster, FeedOptions, Server};

    use super::*;

    fn task(id: u128) -> SubmitTask {
        let scope = Scope { tenant: "t".into(), workspace: "w".into() };
        SubmitTask {
            id: TaskId(id),
            queue: Arc::new(QueueKey { scope, name: "q".into() }),
            payload: Arc::from(&b"{}"[..]),
            priority: 0,
            delay_ms: 0,
            properties: Arc::new(Properties::default()),
            options: None,
            operation: None,
        }
    }

    /// Reading the state again may take long, and no node could take over meanwhile.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_standby_keeps_its_state_when_another_one_was_faster() {
        let cluster = Cluster { id: ClusterId([5; 16]), shards: 1, key_print: [9; 16] };
        let url = test_servers::postgres::shared().create_database();
        let server = Server { config: url.parse().unwrap(), tls: None, unsafe_no_sync: true };
        postgres::initialize(&server, cluster).unwrap();
        let options = |node: &str| postgres::Options::new(node, cluster.key_print);
        let own = async |node: &str| {
            let (server, options) = (server.clone(), options(node));
            let start = || coordinator::start(postgres::open(server, options).unwrap(), Options::default());
            spawn_blocking(start).await.unwrap().unwrap()
        };
        let owner = own("x").await;
        owner.handle.submit(task(1)).await.unwrap();
        let database = Database::connect(server.clone(), options("b")).unwrap();
        let reader = PostgresReader::new(database.clone());
        let standby = spawn_blocking(move || Standby::open(&reader).unwrap()).await.unwrap();
        owner.stop().await.unwrap();
        let faster = own("y").await;
        faster.handle.submit(task(2)).await.unwrap();
        let take_over = async |standby: Standby| {
            let (database, feed) = (database.clone(), Feed::new(FeedOptions::default()));
            let time = (OwnerTime::default(), Clock::start(Time::ZERO));
            let start = || start(standby, database, &Kept::default(), feed, time, Options::default());
            spawn_blocking(start).await.unwrap().unwrap()
        };

        let Started::Follows(standby) = take_over(standby).await else {
            panic!("it has replaced the faster one")
        };
        assert_eq!((standby.next(), standby.tasks()), (faster.handle.durable().next(), 2));
        faster.handle.submit(task(3)).await.unwrap();

        // It takes over from there when that one is gone, too.
        faster.stop().await.unwrap();
        let Started::Owns(running) = take_over(standby).await else { panic!("there is nobody else") };
        assert_eq!((running.report.epoch, running.report.tasks), (3, 3));
    }
}
