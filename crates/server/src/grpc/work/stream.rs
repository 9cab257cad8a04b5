//! The event loop of one worker's stream: what it waits for, in which order, and how it ends.

use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use authority::command::{Grant, LeaseTasks};
use authority::limits::MAX_GRANTS;
use authority::{Contract, Scope};
use coordinator::{Activity, Liveness, Registration, Unavailable};
use tokio::time::{Instant, sleep_until, timeout_at};
use tonic::{Status, Streaming};
use wire::grpc::{RegisterWorkerResponse, WorkRequest, WorkResponse};

use super::batch::Batch;
use super::outbox::{Closed, Outbox};
use crate::app::App;
use crate::convert::names::name;
use crate::convert::{Problem, grpc_status};
use crate::edge::auth::Caller;
use crate::edge::grpc_guard::BodyBudget;
use crate::grpc::session::{Session, SessionState};
use crate::grpc::values::{optional_name, parse_queues, worker_status};
use crate::grpc::{lease, leased_task, register};

/// Most tasks that a worker may have asked for and not got.
const MAX_CREDIT: usize = 1_000;
/// Shortest wait of a stream for tasks, also when calls may not wait at all: it asks again when the wait is over.
const MIN_WAIT: Duration = Duration::from_secs(1);
/// Longest time from the beginning of a stream to its hello.
const MAX_HELLO: Duration = Duration::from_secs(10);

enum End {
    /// The worker said all it had to say, or is gone.
    Quietly,
    With(Status),
}

impl From<Status> for End {
    fn from(status: Status) -> End {
        End::With(status)
    }
}

impl From<Problem> for End {
    fn from(problem: Problem) -> End {
        End::With(problem.into())
    }
}

impl From<Closed> for End {
    fn from(_: Closed) -> End {
        End::Quietly
    }
}

type Deciding = Pin<Box<dyn Future<Output = WorkResponse> + Send>>;
type Polling = Pin<Box<dyn Future<Output = Result<Vec<Grant>, Unavailable>> + Send>>;

enum Next {
    Decided(WorkResponse),
    Leased(Result<Vec<Grant>, Unavailable>),
    Said(Result<Option<WorkRequest>, Status>),
    Gone,
    Ordered,
    Draining,
    Late,
    Silent,
}

pub(super) struct Stream {
    session: Session,
    caller: Caller,
    outbox: Outbox,
    /// How the worker registered, and the epoch of the owner that it is registered at.
    registration: Arc<Registration>,
    epoch: u64,
    /// What every poll of this stream asks for.
    poll: LeaseTasks,
    credit: usize,
    /// The worker wants nothing more.
    draining: bool,
    /// Reports and heartbeats that are being decided, and a wait for tasks.
    deciding: Option<Deciding>,
    polling: Option<Polling>,
    heard_at: Instant,
}

impl Stream {
    pub(super) async fn run(
        app: App,
        (scope, caller, peer): (Scope, Caller, Option<IpAddr>),
        mut incoming: Streaming<WorkRequest>,
        budget: Option<Arc<BodyBudget>>,
        outbox: Outbox,
        deadline: Option<Instant>,
    ) {
        let hello_by = Instant::now() + MAX_HELLO;
        let hello_by = deadline.map_or(hello_by, |deadline| hello_by.min(deadline));
        let hello = match timeout_at(hello_by, incoming.message()).await {
            Ok(Ok(Some(hello))) => hello,
            Ok(Ok(None)) => return,
            Ok(Err(status)) => return outbox.end(status).await,
            Err(_) => return outbox.end(Status::deadline_exceeded("the hello came too slowly")).await,
        };
        let epoch = app.handle.epoch();
        let (session, registration, poll, welcome) = match register(app, (scope, &caller, peer), &hello).await
        {
            Ok(registered) => registered,
            Err(status) => return outbox.end(status).await,
        };
        // When nobody takes the welcome, the first look at the outbox ends the stream.
        let _ = outbox.send(WorkResponse { welcome: Some(welcome), ..WorkResponse::default() }).await;
        let (draining, deciding, polling) = (false, None, None);
        let heard_at = Instant::now();
        let mut stream = Stream {
            session,
            caller,
            outbox,
            registration,
            epoch,
            poll,
            credit: 0,
            draining,
            deciding,
            polling,
            heard_at,
        };
        if let Err(End::With(status)) = stream.serve(incoming, hello, budget, deadline).await {
            stream.outbox.end(status).await;
        }
    }

    async fn serve(
        &mut self,
        mut incoming: Streaming<WorkRequest>,
        first: WorkRequest,
        budget: Option<Arc<BodyBudget>>,
        deadline: Option<Instant>,
    ) -> Result<(), End> {
        let app = self.session.app.clone();
        let mut orders = app.handle.watch_orders();
        // The operator may have asked this session to stop before the stream began.
        orders.mark_changed();
        let mut server_stops = Box::pin(app.draining());
        let silence = app.grpc.settings.heartbeat_timeout;
        let mut silent = Box::pin(sleep_until(self.heard_at + silence));
        let late = async {
            if let Some(at) = deadline { sleep_until(at).await } else { std::future::pending().await }
        };
        let mut late = Box::pin(late);
        // Set once nothing more comes in; what is being decided is still answered.
        let mut ending = self.take(WorkRequest { hello: None, ..first }).await?;
        loop {
            if self.deciding.is_none()
                && let Some(end) = ending.take()
            {
                return Err(end);
            }
            if ending.is_none() {
                self.poll_for_tasks().await?;
            }
            let open = ending.is_none();
            let next = tokio::select! {
                biased;
                decided = ready(&mut self.deciding) => Next::Decided(decided),
                leased = ready(&mut self.polling) => Next::Leased(leased),
                // Before its messages: a worker that gets no more answers, because its key ended, is not heard either.
                () = self.outbox.closed() => Next::Gone,
                said = incoming.message(), if open && self.deciding.is_none() => Next::Said(said),
                Ok(()) = orders.changed(), if open => Next::Ordered,
                () = &mut server_stops, if open => Next::Draining,
                () = &mut late, if open => Next::Late,
                // Nobody is silent whose messages are not being read (C25).
                () = &mut silent, if open && self.deciding.is_none() => Next::Silent,
            };
            match next {
                Next::Decided(answers) => {
                    self.deciding = None;
                    self.outbox.send(answers).await?;
                }
                Next::Leased(grants) => {
                    self.polling = None;
                    self.send_tasks(grants.map_err(Problem::from)?).await?;
                }
                Next::Said(Ok(Some(message))) => {
                    if let Some(budget) = &budget {
                        budget.give_back();
                    }
                    self.heard_at = Instant::now();
                    ending = self.take(message).await?.map(|end| self.no_more(end));
                }
                Next::Said(Ok(None)) => ending = Some(self.no_more(End::Quietly)),
                Next::Said(Err(status)) => ending = Some(self.no_more(End::With(status))),
                Next::Gone => return Err(End::Quietly),
                Next::Ordered => self.pass_on_stop().await?,
                Next::Draining => {
                    let status = Status::unavailable("the server is about to stop: connect again");
                    ending = Some(self.no_more(End::With(status)));
                }
                Next::Late => {
                    let status = Status::deadline_exceeded("the stream's deadline has come");
                    ending = Some(self.no_more(End::With(status)));
                }
                Next::Silent => {
                    let heard_until = self.heard_at + silence;
                    if heard_until <= Instant::now() {
                        ending =
                            Some(self.no_more(End::With(grpc_status::not_registered(&self.session.worker))));
                    } else {
                        silent.as_mut().reset(heard_until);
                    }
                }
            }
        }
    }

    /// Passes on that the operator wants the worker to stop. The stream goes on, so that the worker can report what it runs.
    async fn pass_on_stop(&mut self) -> Result<(), End> {
        let is_stopping = matches!(self.session.state().await?, SessionState::Current(registered) if registered.is_stopping);
        if is_stopping {
            let stop =
                WorkResponse { should_shutdown: true, stopped_by_operator: true, ..WorkResponse::default() };
            self.outbox.send(stop).await?;
        }
        Ok(())
    }

    /// Nothing more is leased; leases of a wait that is dropped are given back by the coordinator.
    fn no_more(&mut self, end: End) -> End {
        self.polling = None;
        end
    }

    /// Takes in what a message says. The answer is why it is the last one, if it is.
    async fn take(&mut self, message: WorkRequest) -> Result<Option<End>, End> {
        if message.hello.is_some() {
            return Err(Problem::field("hello", "belongs into the first message only").into());
        }
        let said = worker_status(message.state, message.stats.as_ref());
        self.draining = said.activity == Activity::Draining;
        if self.draining {
            // Otherwise what the same message gives back could come straight back.
            self.polling = None;
        }
        let Session { app, scope, worker, id, .. } = &self.session;
        let recorded = app.handle.record_status(scope, worker, id.as_ref(), said);
        let liveness = recorded.await.map_err(Problem::from)?;
        self.credit = self.credit.saturating_add(message.credit as usize).min(MAX_CREDIT);
        let batch = Batch { reports: message.reports, heartbeats: message.heartbeats };
        batch.check()?;
        if !batch.is_empty() {
            self.deciding = Some(Box::pin(batch.decide(self.session.clone(), self.caller.clone())));
        }
        // Its reports are still answered: a session that was replaced may learn what became of its work.
        Ok((liveness == Liveness::Superseded).then(|| grpc_status::superseded(&self.session.worker).into()))
    }

    async fn poll_for_tasks(&mut self) -> Result<(), End> {
        if self.polling.is_some() || self.credit == 0 || self.draining {
            return Ok(());
        }
        let state = self.session.renewed_state(&self.registration, &mut self.epoch).await?;
        self.session.check(state)?;
        let lease = LeaseTasks { max_tasks: self.credit.min(MAX_GRANTS), ..self.poll.clone() };
        let app = &self.session.app;
        let (handle, wait) = (app.handle.clone(), app.grpc.settings.long_poll_timeout.max(MIN_WAIT));
        self.polling = Some(Box::pin(async move { handle.lease(lease, wait).await }));
        Ok(())
    }

    /// Sends tasks in messages that clients can read. What cannot be sent is given back.
    async fn send_tasks(&mut self, grants: Vec<Grant>) -> Result<(), End> {
        let state = self.session.renewed_state(&self.registration, &mut self.epoch).await?;
        if !matches!(state, SessionState::Current(_)) {
            lease::give_back(&self.session.app, &grants).await?;
        }
        match state {
            SessionState::Current(_) => {}
            SessionState::Replaced => {
                let stop = WorkResponse { should_shutdown: true, ..WorkResponse::default() };
                let _ = self.outbox.send(stop).await;
                return Err(grpc_status::superseded(&self.session.worker).into());
            }
            // It comes back and goes on with what it holds.
            SessionState::Unknown => return Err(grpc_status::not_registered(&self.session.worker).into()),
        }
        self.credit = self.credit.saturating_sub(grants.len());
        self.session.app.note_grants(&self.caller, &grants).await;
        let mut rest = &grants[..];
        while !rest.is_empty() {
            let (now, later) = rest.split_at(leased_task::how_many_fit(rest));
            let tasks = now.iter().map(|grant| leased_task::to_proto(&self.session.app, grant));
            let message = WorkResponse { tasks: tasks.collect(), ..WorkResponse::default() };
            if self.outbox.send(message).await.is_err() {
                lease::give_back(&self.session.app, rest).await?;
                return Err(End::Quietly);
            }
            rest = later;
        }
        Ok(())
    }
}

/// Registers the worker, and makes the command of its polls.
async fn register(
    app: App,
    (scope, caller, peer): (Scope, &Caller, Option<IpAddr>),
    first: &WorkRequest,
) -> Result<(Session, Arc<Registration>, LeaseTasks, RegisterWorkerResponse), Status> {
    let missing = || Problem::field("hello", "is missing in the first message");
    let hello = first.hello.as_ref().ok_or_else(missing)?;
    let said = hello.worker.clone().unwrap_or_default();
    let queues = parse_queues(&hello.queues)?;
    let worker = name("hello.worker.worker_id", &said.worker_id)?;
    caller.check_queues(queues.iter().map(|queue| &**queue))?;
    let welcome = register::register(&app, &scope, caller, &said, peer, Contract::Stream).await?;
    let id = optional_name("hello.worker.session_id", &said.session_id)?;
    let owner = caller.identity().map(|identity| identity.id().clone());
    let mut session = Session { app, scope, worker, id, owner };
    // Another session may have come in between, whose registration is not this one's.
    let registered = session.registered().await?.registration;
    session.id = registered.session.clone();
    let poll = LeaseTasks {
        scope: session.scope.clone(),
        worker: session.worker.clone(),
        session: registered.session.clone(),
        queues,
        properties: registered.properties.clone(),
        max_tasks: 0,
        request: None,
        contract: Contract::Stream,
    };
    Ok((session, registered, poll, welcome))
}

async fn ready<T>(future: &mut Option<Pin<Box<dyn Future<Output = T> + Send>>>) -> T {
    match future {
        Some(future) => future.await,
        None => std::future::pending().await,
    }
}
