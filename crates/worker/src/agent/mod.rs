//! The agent: the worker's side of the lease protocol over gRPC. It never executes anything itself.
//!
//! It takes as many tasks as there are free slots and resources, sends heartbeats for each lease, stops attempts that
//! are canceled or can no longer commit, reports each attempt once, and repeats a report after a reconnect if there was
//! no answer. When it is stopped, also by the operator of the coordinator, it takes no more tasks, waits for the running ones, releases the rest and unregisters.

mod connection;
mod health;
pub(crate) mod held_lease;
mod lease_table;
mod pool;
mod reconnecting_stream;
mod resources;
mod scheduler_agent;
mod scheduler_client;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use lessor_sdk::protocol::clock;
use tokio::sync::watch;
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::{sleep, timeout};
use tonic::codegen::BoxFuture;
use wire::grpc::LeasedTask;

use crate::action::unless;
use crate::{Config, Error, Failure, Outcome, Performer, Protocol, Stopper};
use connection::{ConnectError, Connector};
use health::Health;
use lease_table::LeaseTable;
pub use pool::Pool;
pub(crate) use pool::SlotGuard;
use reconnecting_stream::{ConnectionEvent, ReconnectingStream};
pub use resources::Resources;
use scheduler_agent::SchedulerAgent;

/// How long the last reports and releases may take after the drain timeout.
const FINAL_REPORT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long canceled work may take to clean up.
const STOP_GRACE: Duration = Duration::from_secs(10);
/// The connection counts as lost if a heartbeat is not answered by then.
const MAX_SILENCE: Duration = Duration::from_secs(30);

pub struct Agent {
    performer: Arc<dyn Performer>,
    connector: Connector,
    leases: LeaseTable,
    health: Health,
    stream: ReconnectingStream,
    running: JoinSet<Outcome>,
    /// Outputs that are uploaded again, by lease.
    uploads: JoinSet<(Arc<str>, Result<(), Failure>)>,
    /// The lease and the task of each running attempt.
    attempts: HashMap<Id, (Arc<str>, String)>,
    pool_changed: watch::Receiver<()>,
    /// The operator of the coordinator wants this worker to stop.
    is_stopped_by_operator: bool,
}

impl Agent {
    /// Works until it is stopped or refused.
    pub fn serve(config: Config, performer: Arc<dyn Performer>, stop: Stopper) -> BoxFuture<(), Error> {
        if config.protocol == Protocol::Plan {
            return Box::pin(SchedulerAgent::serve(config, performer, stop));
        }
        let pool = Pool::new(&config);
        Agent::serve_from(&pool, config, performer, stop)
    }

    /// The same for one of several agents that share a pool. Boxed, so that the agent is compiled in this crate and not in
    /// every crate that awaits it.
    pub fn serve_from(
        pool: &Arc<Pool>,
        config: Config,
        performer: Arc<dyn Performer>,
        stop: Stopper,
    ) -> BoxFuture<(), Error> {
        let pool = pool.clone();
        Box::pin(async move {
            let connector = Connector::new(&config)?;
            let mut leases = LeaseTable::new(&config, pool.join());
            leases.pool.set_fitness(performer.fitness().await);
            let mut agent = Agent {
                health: Health::new(performer.clone()),
                performer,
                connector: connector.clone(),
                pool_changed: leases.pool.watch(),
                leases,
                stream: ReconnectingStream::new(connector),
                running: JoinSet::new(),
                uploads: JoinSet::new(),
                attempts: HashMap::new(),
                is_stopped_by_operator: false,
            };
            let ended = agent.until_drained(config.drain_timeout, &stop).await;
            agent.leave().await;
            ended
        })
    }

    async fn until_drained(&mut self, drain_timeout: Duration, stop: &Stopper) -> Result<(), Error> {
        let stop_requested = stop.stop_requested();
        tokio::pin!(stop_requested);
        while !self.is_stopped_by_operator {
            tokio::select! {
                () = &mut stop_requested => break,
                ended = self.step() => ended?,
            }
        }
        tracing::info!("draining: waiting for running tasks");
        self.leases.drain();
        timeout(drain_timeout, async {
            tokio::select! {
                () = stop.immediate_stop_requested() => Ok(()),
                ended = self.until_empty() => ended,
            }
        })
        .await
        .unwrap_or(Ok(()))?;
        self.leases.release_all();
        let _ = timeout(FINAL_REPORT_TIMEOUT, self.until_empty()).await;
        Ok(())
    }

    async fn until_empty(&mut self) -> Result<(), Error> {
        while !self.leases.is_empty() {
            self.step().await?;
        }
        Ok(())
    }

    /// Waits for the next event and handles it. Cancel-safe.
    async fn step(&mut self) -> Result<(), Error> {
        let now = clock::now();
        self.leases.expire(now);
        let until_due = match self.leases.next_due(now) {
            Some(due) => due - now,
            None => MAX_SILENCE,
        };
        let sender = self.stream.sender().filter(|_| self.leases.has_message_due(now));
        let send = async {
            match &sender {
                Some(sender) => sender.reserve().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            event = self.stream.next_event() => self.on_event(event)?,
            Some(ended) = self.running.join_next_with_id() => self.on_attempt_end(ended),
            Some(Ok((lease_id, uploaded))) = self.uploads.join_next() => {
                self.leases.on_uploaded_again(&lease_id, uploaded);
            }
            fitness = self.health.next_check() => self.leases.pool.set_fitness(fitness),
            // The next step sees the free slots.
            Ok(()) = self.pool_changed.changed() => {}
            permit = send => {
                // A stream that is closed says why in its next event.
                if let Ok(permit) = permit {
                    permit.send(self.leases.next_message(clock::now()));
                }
            }
            () = sleep(until_due) => {
                if self.leases.is_heartbeat_overdue(clock::now(), MAX_SILENCE) {
                    self.stream.disconnect("heartbeats are not answered");
                }
            }
        }
        Ok(())
    }

    fn on_event(&mut self, event: ConnectionEvent) -> Result<(), Error> {
        match event {
            ConnectionEvent::Connected => {
                if let Some(connection) = self.stream.connection() {
                    let held = std::mem::take(&mut connection.held);
                    self.leases.on_connected(&connection.welcome, held);
                }
            }
            ConnectionEvent::Message(message) if message.stopped_by_operator => {
                tracing::info!("the operator of the coordinator stops this worker");
                self.is_stopped_by_operator = true;
            }
            ConnectionEvent::Message(message) if message.should_shutdown => {
                return Err(self.connector.superseded());
            }
            ConnectionEvent::Message(message) => {
                for (lease_id, task) in self.leases.on_message(*message, clock::now()) {
                    self.begin(lease_id, task);
                }
                for (lease_id, permit) in self.leases.take_lacking_outputs() {
                    self.uploads.spawn(async move {
                        let uploaded = unless(permit.cancelled(), permit.upload_again()).await;
                        (lease_id, uploaded)
                    });
                }
            }
            ConnectionEvent::Disconnected => {}
            ConnectionEvent::Fatal(error) => return Err(error),
        }
        Ok(())
    }

    fn begin(&mut self, lease_id: Arc<str>, task: LeasedTask) {
        let Some(permit) = self.leases.permit_of(&lease_id) else { return };
        tracing::info!(task = task.task_id, attempt = task.attempt, "the attempt has begun");
        let (performer, task_id) = (self.performer.clone(), task.task_id.clone());
        let handle = self.running.spawn(async move { performer.perform(task, permit).await });
        self.attempts.insert(handle.id(), (lease_id, task_id));
    }

    fn on_attempt_end(&mut self, ended: Result<(Id, Outcome), JoinError>) {
        let (id, outcome) = match ended {
            Ok(ended) => ended,
            Err(error) => {
                let failure = Failure::broken(format!("the worker failed while it ran this task: {error}"));
                (error.id(), Outcome::Failed(failure))
            }
        };
        if let Some((lease_id, task)) = self.attempts.remove(&id) {
            if let Outcome::Failed(failure) = &outcome {
                let why = &failure.message;
                match failure.code {
                    Failure::CANCELLED => tracing::info!(task, "an attempt was canceled"),
                    code => tracing::error!(task, code, why, "an attempt failed"),
                }
                self.health.check_now();
            }
            self.leases.on_attempt_end(&lease_id, outcome);
        }
    }

    /// Stops the running attempts, waits until they are cleaned up, and unregisters. A newer session under the same id
    /// is not affected.
    async fn leave(&mut self) {
        self.leases.lose_all();
        self.uploads.shutdown().await;
        let finished = async { while self.running.join_next().await.is_some() {} };
        if timeout(STOP_GRACE, finished).await.is_err() {
            tracing::error!("some attempts did not stop in time and are dropped");
            self.running.shutdown().await;
        }
        self.performer.settle().await;
        if let Err(why) = self.connector.clone().unregister().await {
            tracing::warn!(?why, "the worker could not unregister; its registration will expire");
        }
    }
}

/// Checks that a worker with this configuration reaches its coordinator.
pub(crate) async fn probe(config: &Config) -> Result<String, String> {
    let connector = Connector::new(config).map_err(|error| error.to_string())?;
    let url = &config.server_url;
    match connector.probe().await {
        Ok(()) => Ok(format!("{url} answers")),
        Err(ConnectError::Transient(why)) => {
            Err(format!("{url}: {why}; is --server-url right, and is the server running?"))
        }
        Err(ConnectError::Fatal(error)) => Err(format!("{url}: {error}")),
    }
}
