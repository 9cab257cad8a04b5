//! The worker service over gRPC, all in one stream.
//!
//! A task of its own owns the stream: it registers, sends the requests of its worker, as many at once as there are, and
//! hands out the answers. When the stream breaks, all pending requests get the answer that they are lost, and the next
//! stream begins with the same session, so that the worker keeps its leases. When the stream's node was taken down, the
//! next stream, to another node, begins with the pending requests.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use contract_clients::{LeaseRef, grpc as messages};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{timeout, timeout_at};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming};
use wire::grpc::{
    LeaseHeartbeat, LeaseTaskRequest, ReportAnswer, UpdateTaskStatusRequest, WorkRequest, WorkResponse,
};

use super::{LEASE_WAIT, Leased, grpc};
use crate::contract::Contract;
use crate::nodes::{CLUSTER_TIMEOUTS, TIMEOUTS, Visit};
use crate::recorder::{At, HeartbeatOutcome, ReportResponse, Sent};
use crate::report_request::ReportRequest;
use crate::rpc::{Answer, Rpc, RpcRequest};
use crate::world::{QUEUE, RETRY_PAUSE, World};

/// The most requests, or tasks, that may wait for the other side.
const MAX_WAITING: usize = 1_000;

/// The worker's end.
pub(super) struct StreamClient {
    world: Arc<World>,
    orders: mpsc::Sender<Order>,
    tasks: mpsc::Receiver<Leased>,
}

/// What the keeper of the stream is to do.
enum Order {
    /// Have so many tasks asked for.
    Want(u32),
    Report(Box<UpdateTaskStatusRequest>, oneshot::Sender<Answer>),
    Beat {
        worker_id: String,
        beat: LeaseHeartbeat,
        answer: oneshot::Sender<Answer>,
    },
    /// Go on as another process.
    RestartSession,
}

impl StreamClient {
    pub(super) fn open(world: &Arc<World>, worker_id: &str) -> StreamClient {
        let (orders, to_do) = mpsc::channel(MAX_WAITING);
        let (arrived, tasks) = mpsc::channel(MAX_WAITING);
        let task = StreamTask {
            world: world.clone(),
            worker_id: worker_id.to_owned(),
            session: 1,
            to_do,
            arrived,
            credit: 0,
            asked_at: At::ZERO,
            reports: VecDeque::new(),
            beats: VecDeque::new(),
            again: Vec::new(),
            visit: world.nodes.visit(),
        };
        tokio::spawn(task.run());
        StreamClient { world: world.clone(), orders, tasks }
    }

    /// What has arrived, or arrives before the wait is over.
    pub(super) async fn lease(&mut self, max_tasks: u32) -> Vec<Leased> {
        let mut leased = Vec::new();
        if self.orders.send(Order::Want(max_tasks)).await.is_ok() {
            leased.extend(timeout(LEASE_WAIT, self.tasks.recv()).await.ok().flatten());
        }
        while leased.len() < max_tasks as usize
            && let Ok(more) = self.tasks.try_recv()
        {
            leased.push(more);
        }
        leased
    }

    pub(super) async fn report(&self, request: &ReportRequest) -> Option<ReportResponse> {
        let (sender, answer) = oneshot::channel();
        let answer = self
            .answer(Order::Report(Box::new(messages::report(&request.lease, &request.kind)), sender), answer)
            .await;
        grpc::parse_report_response(&self.world, Contract::Stream, request, &answer)
    }

    pub(super) async fn beat(&self, lease: &LeaseRef) -> HeartbeatOutcome {
        let (sender, answer) = oneshot::channel();
        let (worker_id, beat) = (lease.worker_id.clone(), grpc::heartbeat(lease));
        let answer = self.answer(Order::Beat { worker_id, beat, answer: sender }, answer).await;
        grpc::heartbeat_outcome(&self.world, &answer)
    }

    pub(super) async fn restart_session(&mut self) {
        // What the old process had got, the new one knows nothing of.
        while self.tasks.try_recv().is_ok() {}
        let _ = self.orders.send(Order::RestartSession).await;
    }

    async fn answer(&self, order: Order, answer: oneshot::Receiver<Answer>) -> Answer {
        match self.orders.send(order).await {
            Ok(()) => answer.await.unwrap_or(Answer::Lost),
            Err(_) => Answer::Lost,
        }
    }
}

/// Something that was sent and is not answered yet.
struct Open {
    sent: Sent,
    sent_at: At,
    request: RpcRequest,
    answer: oneshot::Sender<Answer>,
}

struct StreamTask {
    world: Arc<World>,
    worker_id: String,
    session: u32,
    to_do: mpsc::Receiver<Order>,
    arrived: mpsc::Sender<Leased>,
    /// Tasks that were asked for and did not come yet, and when the first were asked for.
    credit: u32,
    asked_at: At,
    /// Answers come in the order of the requests.
    reports: VecDeque<Open>,
    beats: VecDeque<Open>,
    /// Requests whose node was taken down.
    again: Vec<Open>,
    /// The node of the stream.
    visit: Visit,
}

/// Why a stream is over.
enum End {
    /// It broke, or the worker begins anew.
    Again,
    /// The worker is gone.
    Done,
}

impl StreamTask {
    async fn run(mut self) {
        loop {
            self.visit = self.world.nodes.visit();
            let end = match self.connect().await {
                Some((out, incoming)) => self.serve(out, incoming).await,
                None if self.visit.was_taken_down() => End::Again,
                None => self.refuse_all(),
            };
            self.lose_all();
            match end {
                End::Done => return,
                End::Again => tokio::time::sleep(RETRY_PAUSE).await,
            }
        }
    }

    /// Says hello and waits for the welcome.
    async fn connect(&mut self) -> Option<(mpsc::Sender<WorkRequest>, Streaming<WorkResponse>)> {
        let session = format!("{}-{}", self.worker_id, self.session);
        let registration = grpc::registration(&self.worker_id, session);
        let hello = messages::hello(registration.clone(), QUEUE, 0);
        let (out, outgoing) = mpsc::channel(MAX_WAITING);
        let mut client = self.visit.rpc();
        let mut stream = None;
        let welcome = async {
            let _ = out.send(hello).await;
            let mut incoming = client.work(ReceiverStream::new(outgoing)).await?.into_inner();
            let first = incoming.message().await?;
            stream = Some(incoming);
            Ok(first.and_then(|first| first.welcome).map_or(Answer::Lost, |_| Answer::Registered))
        };
        let welcome = async {
            timeout(self.answer_timeout(), welcome)
                .await
                .unwrap_or_else(|_| Err(Status::deadline_exceeded("")))
        };
        let (sent_at, welcomed) = (self.world.recorder.now(), self.visit.unless_down(welcome).await);
        let answer = welcomed
            .map_or(Answer::Lost, |welcomed| welcomed.unwrap_or_else(|status| Answer::of_status(&status)));
        let open = Open {
            sent: Sent::new(sent_at, Duration::ZERO),
            sent_at,
            request: RpcRequest::Register(registration),
            answer: oneshot::channel().0,
        };
        if matches!(answer, Answer::Lost) && self.visit.was_taken_down() {
            self.lose(open);
        } else {
            self.close(Some(open), answer.clone());
        }
        let stream = stream.filter(|_| matches!(answer, Answer::Registered))?;
        (self.credit, self.asked_at) = (0, self.world.recorder.now());
        // Whatever is granted to this stream without an answer was requested here.
        self.note(Rpc {
            contract: Contract::Stream,
            sent_at: self.asked_at,
            ended_at: self.asked_at,
            request: self.ask(),
            answer: Answer::Lost,
        });
        Some((out, stream))
    }

    async fn serve(&mut self, out: mpsc::Sender<WorkRequest>, mut incoming: Streaming<WorkResponse>) -> End {
        if !self.again.is_empty() {
            let again = self.take_again();
            let _ = out.send(again).await;
        }
        loop {
            let answer_by = self.answer_by();
            let request = tokio::select! {
                order = self.to_do.recv() => match order {
                    None => return End::Done,
                    Some(order) => self.collect(order),
                },
                message = timeout_at(answer_by, self.visit.unless_down(incoming.message())) => match message {
                    Ok(Some(Ok(Some(message)))) => {
                        if let Err(end) = self.handle_message(message).await {
                            return end;
                        }
                        continue;
                    }
                    // Silence is no fault while nothing is asked.
                    Err(_) if self.reports.is_empty() && self.beats.is_empty() => continue,
                    _ => return End::Again,
                },
            };
            let Some(message) = request else { return End::Again };
            if out.send(message).await.is_err() {
                return End::Again;
            }
        }
    }

    /// Everything that there is to say now, in one message; None when the worker begins anew.
    fn collect(&mut self, first: Order) -> Option<WorkRequest> {
        let mut message = WorkRequest::default();
        let mut next = Some(first);
        while let Some(order) = next {
            let sent_at = self.world.recorder.now();
            let sent = Sent::new(sent_at, Duration::ZERO);
            match order {
                Order::Want(wanted) => {
                    message.credit += wanted.saturating_sub(self.credit);
                    if self.credit == 0 {
                        self.asked_at = sent_at;
                    }
                    self.credit = self.credit.max(wanted);
                }
                Order::Report(report, answer) => {
                    message.reports.push((*report).clone());
                    self.reports.push_back(Open {
                        sent,
                        sent_at,
                        request: RpcRequest::Report(report),
                        answer,
                    });
                }
                Order::Beat { worker_id, beat, answer } => {
                    message.heartbeats.push(beat.clone());
                    self.beats.push_back(Open {
                        sent,
                        sent_at,
                        request: RpcRequest::Heartbeat { worker_id, beat },
                        answer,
                    });
                }
                Order::RestartSession => {
                    self.session += 1;
                    return None;
                }
            }
            next = self.to_do.try_recv().ok();
        }
        Some(message)
    }

    /// The requests whose node was taken down, in one message.
    fn take_again(&mut self) -> WorkRequest {
        let mut message = WorkRequest::default();
        for open in std::mem::take(&mut self.again) {
            let open = Open { sent_at: self.world.recorder.now(), ..open };
            match &open.request {
                RpcRequest::Report(report) => {
                    message.reports.push((**report).clone());
                    self.reports.push_back(open);
                }
                RpcRequest::Heartbeat { beat, .. } => {
                    message.heartbeats.push(beat.clone());
                    self.beats.push_back(open);
                }
                RpcRequest::Register(_) | RpcRequest::Lease(_) => {}
            }
        }
        message
    }

    async fn handle_message(&mut self, message: WorkResponse) -> Result<(), End> {
        if message.should_shutdown {
            self.world
                .recorder
                .record_unexpected(format!("{} got a shutdown request, and has no rival", self.worker_id));
            return Err(End::Again);
        }
        for ReportAnswer { answer, problem, .. } in message.reports {
            let response = match (problem, answer) {
                (Some(problem), _) => Answer::of_problem(&problem),
                (None, Some(answer)) => Answer::Reported(answer),
                (None, None) => Answer::Lost,
            };
            let open = self.reports.pop_front();
            self.close(open, response);
        }
        for status in message.leases {
            let open = self.beats.pop_front();
            self.close(open, grpc::beaten(status));
        }
        if !message.tasks.is_empty() {
            let answered_at = self.world.recorder.now();
            self.credit = self.credit.saturating_sub(message.tasks.len() as u32);
            self.note(Rpc {
                contract: Contract::Stream,
                sent_at: self.asked_at,
                ended_at: answered_at,
                request: self.ask(),
                answer: Answer::Leased(message.tasks.clone()),
            });
            for task in message.tasks {
                let leased = Leased { between: Some((self.asked_at, answered_at)), ..grpc::leased(task) };
                let _ = self.arrived.try_send(leased);
            }
        }
        Ok(())
    }

    /// The request for work that this stream makes by giving credit.
    fn ask(&self) -> RpcRequest {
        RpcRequest::Lease(LeaseTaskRequest {
            session_id: format!("{}-{}", self.worker_id, self.session),
            ..messages::lease(&self.worker_id, QUEUE, 0)
        })
    }

    fn answer_by(&self) -> tokio::time::Instant {
        let first = [self.reports.front(), self.beats.front()].into_iter().flatten().map(|open| open.sent_at);
        let waited = first.min().map_or(Duration::ZERO, |sent_at| self.world.recorder.now() - sent_at);
        tokio::time::Instant::now() + self.answer_timeout().saturating_sub(waited)
    }

    /// Longest time to the welcome, and from a request to its answer.
    fn answer_timeout(&self) -> Duration {
        if self.world.nodes.is_cluster() { CLUSTER_TIMEOUTS.call } else { TIMEOUTS.call }
    }

    /// There is no stream: requests are as good as lost on the way.
    fn refuse_all(&mut self) -> End {
        loop {
            match self.to_do.try_recv() {
                Ok(Order::Report(_, answer) | Order::Beat { answer, .. }) => drop(answer.send(Answer::Lost)),
                Ok(Order::RestartSession) => self.session += 1,
                Ok(Order::Want(_)) => {}
                Err(mpsc::error::TryRecvError::Empty) => return End::Again,
                Err(mpsc::error::TryRecvError::Disconnected) => return End::Done,
            }
        }
    }

    fn lose_all(&mut self) {
        let open: Vec<Open> = self.reports.drain(..).chain(self.beats.drain(..)).collect();
        for mut open in open {
            if self.visit.was_taken_down() && open.sent.may_repeat() {
                let open = self.lose(open);
                self.again.push(open);
            } else {
                self.close(Some(open), Answer::Lost);
            }
        }
    }

    /// Notes that an answer is lost, and keeps the request.
    fn lose(&self, open: Open) -> Open {
        self.note_answer(&open, Answer::Lost);
        open
    }

    fn close(&self, open: Option<Open>, response: Answer) {
        let Some(open) = open else {
            return self
                .world
                .recorder
                .record_unexpected(format!("an answer to nothing came in a stream: {response:?}"));
        };
        self.note_answer(&open, response.clone());
        if self.world.nodes.is_cluster() {
            let failure = response
                .is_open()
                .then(|| format!("{}, in a stream, was answered {response:?}", open.request.name()));
            self.world.recorder.note_sent(open.sent, &self.visit, failure);
        }
        // Whoever waited may have given up.
        let _ = open.answer.send(response);
    }

    fn note_answer(&self, open: &Open, answer: Answer) {
        if matches!(answer, Answer::Lost) {
            self.world.recorder.note_lost(Contract::Stream);
        }
        let (sent_at, request, ended_at) = (open.sent_at, open.request.clone(), self.world.recorder.now());
        self.note(Rpc { contract: Contract::Stream, sent_at, ended_at, request, answer });
    }

    fn note(&self, rpc: Rpc) {
        self.world.recorder.observations().rpcs.push(rpc);
    }
}
