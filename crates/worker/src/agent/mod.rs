//! The agent: keeps the contract with the coordinator on behalf of whoever does the work.
//!
//! It takes as many tasks as it has slots and resources free, beats for each lease, stops what is cancelled or can no longer commit,
//! reports each attempt once, and says it again after a reconnect when there was no answer. Told to stop, it takes no
//! more, waits for what runs, gives the rest back and leaves. It never executes anything itself.

mod lease_table;
mod capacity;
mod connection;
mod health;
mod held_lease;
mod lease_clock;
mod reconnecting_stream;
mod backoff;
mod pool;
mod resources;
mod messages;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::sync::watch;
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::{sleep, timeout};
use wire::grpc::LeasedTask;

use crate::{Config, Error, Failure, Outcome, Performer, Stopper, Task, clock};
use lease_table::LeaseTable;
use connection::{Connector, NoConnection};
use health::Health;
use reconnecting_stream::{ReconnectingStream, ConnectionEvent};
pub use pool::Pool;
pub(crate) use pool::SlotGuard;

/// How long the last words may take to be answered once the grace is over.
const LAST_WORDS: Duration = Duration::from_secs(5);
/// How long stopped work may take to clean up after itself.
const STOP_GRACE: Duration = Duration::from_secs(10);
/// A heartbeat that is not answered by then means that nobody is at the other end.
const MAX_SILENCE: Duration = Duration::from_secs(30);

pub struct Agent {
    performer: Arc<dyn Performer>,
    connector: Connector,
    leases: LeaseTable,
    health: Health,
    link: ReconnectingStream,
    running: JoinSet<Outcome>,
    /// The lease and the task of what runs.
    begun: HashMap<Id, (Arc<str>, String)>,
    room: watch::Receiver<()>,
}

impl Agent {
    /// Works until it is told to stop, or is refused for good.
    pub async fn serve(config: Config, performer: Arc<dyn Performer>, stop: Stopper) -> Result<(), Error> {
        let pool = Pool::new(&config);
        Agent::serve_from(&pool, config, performer, stop).await
    }

    /// The same for one of several agents that have slots and resources in common.
    pub async fn serve_from(
        pool: &Arc<Pool>,
        config: Config,
        performer: Arc<dyn Performer>,
        stop: Stopper,
    ) -> Result<(), Error> {
        let connector = Connector::new(&config)?;
        let mut leases = LeaseTable::new(&config, pool.join());
        leases.set_fitness(performer.fitness().await);
        let mut agent = Agent {
            health: Health::new(performer.clone()),
            performer,
            connector: connector.clone(),
            room: leases.watch_room(),
            leases,
            link: ReconnectingStream::new(connector),
            running: JoinSet::new(),
            begun: HashMap::new(),
        };
        let ended = agent.until_drained(config.drain_timeout, &stop).await;
        agent.leave().await;
        ended
    }

    async fn until_drained(&mut self, drain_timeout: Duration, stop: &Stopper) -> Result<(), Error> {
        let stopped = stop.told(1);
        tokio::pin!(stopped);
        loop {
            tokio::select! {
                () = &mut stopped => break,
                ended = self.step() => ended?,
            }
        }
        tracing::info!("no more tasks are taken; waiting for those that run");
        self.leases.drain();
        timeout(drain_timeout, async {
            tokio::select! {
                () = stop.told(2) => Ok(()),
                ended = self.until_empty() => ended,
            }
        })
        .await
        .unwrap_or(Ok(()))?;
        self.leases.release_all();
        let _ = timeout(LAST_WORDS, self.until_empty()).await;
        Ok(())
    }

    async fn until_empty(&mut self) -> Result<(), Error> {
        while !self.leases.is_empty() {
            self.step().await?;
        }
        Ok(())
    }

    /// Waits for the next thing to happen, and does what follows from it. Nothing is lost when this is dropped.
    async fn step(&mut self) -> Result<(), Error> {
        let now = clock::now();
        self.leases.expire(now);
        let until_due = match self.leases.next_due(now) {
            Some(due) => due - now,
            None => MAX_SILENCE,
        };
        let to = self.stream.to().filter(|_| self.leases.has_message_due(now));
        let send = async {
            match &to {
                Some(to) => to.reserve().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            news = self.stream.next_event() => self.take(news)?,
            Some(ended) = self.running.join_next_with_id() => self.ended(ended),
            found = self.health.found() => self.leases.set_fitness(found),
            // The look for news that follows sees the room.
            Ok(()) = self.room.changed() => {}
            permit = send => {
                // A stream that takes nothing more is about to say why.
                if let Ok(permit) = permit {
                    permit.send(self.leases.next_message(clock::now()));
                }
            }
            () = sleep(until_due) => {
                if self.leases.is_heartbeat_overdue(clock::now(), MAX_SILENCE) {
                    self.stream.down("heartbeats are not answered");
                }
            }
        }
        Ok(())
    }

    fn take(&mut self, news: ConnectionEvent) -> Result<(), Error> {
        match news {
            ConnectionEvent::Connected => {
                if let Some(connection) = self.stream.connection() {
                    let held = std::mem::take(&mut connection.held);
                    self.leases.on_connected(&connection.welcome, held);
                }
            }
            ConnectionEvent::Message(message) if message.should_shutdown => return Err(self.connector.superseded()),
            ConnectionEvent::Message(message) => {
                for (lease_id, task) in self.leases.on_message(*message, clock::now()) {
                    self.begin(lease_id, task);
                }
            }
            ConnectionEvent::Disconnected => {}
            ConnectionEvent::Fatal(error) => return Err(error),
        }
        Ok(())
    }

    fn begin(&mut self, lease_id: Arc<str>, task: LeasedTask) {
        let Some(permit) = self.leases.permit_of(&lease_id) else { return };
        tracing::info!(task = task.task_id, attempt = task.attempt, "begun");
        let task_id = task.task_id.clone();
        let task = Task {
            task_id: task.task_id,
            attempt: task.attempt,
            queue: task.queue,
            payload: task.payload,
            timeout: task.timeout.and_then(|timeout| Duration::try_from(timeout).ok()),
            created_at: task.created_at.and_then(|time| SystemTime::try_from(time).ok()),
            fencing_token: task.fencing_token,
        };
        let performer = self.performer.clone();
        let handle = self.running.spawn(async move { performer.perform(task, permit).await });
        self.begun.insert(handle.id(), (lease_id, task_id));
    }

    fn ended(&mut self, ended: Result<(Id, Outcome), JoinError>) {
        let (id, outcome) = match ended {
            Ok(ended) => ended,
            Err(error) => {
                let failure = Failure::broken(format!("the worker failed at this task: {error}"));
                (error.id(), Outcome::Failed(failure))
            }
        };
        if let Some((lease_id, task)) = self.begun.remove(&id) {
            if let Outcome::Failed(failure) = &outcome {
                let why = &failure.message;
                match failure.code {
                    Failure::CANCELLED => tracing::info!(task, "an attempt was cancelled"),
                    code => tracing::error!(task, code, why, "an attempt failed"),
                }
                self.health.look_now();
            }
            self.leases.ended(&lease_id, outcome);
        }
    }

    /// Stops whatever still runs, waits until it is cleaned up, and says goodbye. That touches nothing of another session
    /// that has taken this one's place.
    async fn leave(&mut self) {
        self.leases.lose_all();
        let finished = async { while self.running.join_next().await.is_some() {} };
        if timeout(STOP_GRACE, finished).await.is_err() {
            tracing::error!("some work did not stop in time and is dropped");
            self.running.shutdown().await;
        }
        self.performer.settle().await;
        if let Err(why) = self.connector.clone().unregister().await {
            tracing::warn!(?why, "the worker could not say goodbye; its registration runs out");
        }
    }
}

/// Whether a worker with this configuration would find its coordinator.
pub async fn probe(config: &Config) -> Result<String, String> {
    let connector = Connector::new(config).map_err(|error| error.to_string())?;
    let url = &config.server_url;
    match connector.probe().await {
        Ok(()) => Ok(format!("{url} answers")),
        Err(NoConnection::Fault(why)) => {
            Err(format!("{url}: {why}; is --server-url right, and does it run?"))
        }
        Err(NoConnection::Final(error)) => Err(format!("{url}: {error}")),
    }
}
