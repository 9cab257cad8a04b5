//! The worker service over gRPC, a call for each step.

use std::time::Duration;

use contract_clients::{LeaseRef, grpc};
use tonic::Code;
use wire::Verdict;
use wire::grpc::{
    HeartbeatRequest, LeaseHeartbeat, LeaseStatus, LeaseTaskRequest, LeasedTask, RegisterWorkerRequest,
    TaskState, UpdateTaskStatusResponse,
};

use super::{Leased, describe};
use crate::contract::Contract;
use crate::recorder::{HeartbeatOutcome, ReportResponse};
use crate::report_request::{Intent, ReportRequest};
use crate::rpc::{Answer, RpcRequest};
use crate::world::{QUEUE, World};

/// The shortest wait that the contract can express.
const LEASE_WAIT_S: i64 = 1;

/// A worker process as the service knows it.
pub(super) struct Session {
    worker_id: String,
    number: u32,
    is_registered: bool,
}

impl Session {
    pub(super) fn new(worker_id: &str) -> Session {
        Session { worker_id: worker_id.to_owned(), number: 1, is_registered: false }
    }

    pub(super) fn restart_session(&mut self) {
        self.number += 1;
        self.is_registered = false;
    }

    pub(super) async fn lease(
        &mut self,
        world: &World,
        request_id: &str,
        max_tasks: u32,
    ) -> Option<Vec<Leased>> {
        if !self.is_registered {
            self.is_registered = self.register(world).await;
            if !self.is_registered {
                return None;
            }
        }
        let ask = LeaseTaskRequest {
            session_id: self.id(),
            timeout_seconds: LEASE_WAIT_S,
            request_id: request_id.to_owned(),
            ..grpc::lease(&self.worker_id, QUEUE, max_tasks)
        };
        let own_wait = Duration::from_secs(LEASE_WAIT_S.unsigned_abs());
        let answer = world
            .call(Contract::Grpc, RpcRequest::Lease(ask.clone()), own_wait, |mut client| {
                let ask = ask.clone();
                async move { Ok(Answer::Leased(client.lease_task(ask).await?.into_inner().tasks)) }
            })
            .await;
        match answer {
            Answer::Leased(tasks) => Some(tasks.into_iter().map(leased).collect()),
            // The server was started again and knows no worker any more.
            Answer::Refused { reason, .. } if reason == "not_registered" => {
                self.is_registered = false;
                None
            }
            open if open.is_open() => None,
            other => {
                world.recorder.record_unexpected(format!("a lease request over gRPC was answered {other:?}"));
                None
            }
        }
    }

    async fn register(&self, world: &World) -> bool {
        let registration = registration(&self.worker_id, self.id());
        let request = RpcRequest::Register(registration.clone());
        let answer = world.call(Contract::Grpc, request, Duration::ZERO, |mut client| {
            let registration = registration.clone();
            async move {
                client.register_worker(registration).await?;
                Ok(Answer::Registered)
            }
        });
        matches!(answer.await, Answer::Registered)
    }

    pub(super) async fn beat(&self, world: &World, lease: &LeaseRef) -> HeartbeatOutcome {
        let beat = heartbeat(lease);
        let request = RpcRequest::Heartbeat { worker_id: lease.worker_id.clone(), beat: beat.clone() };
        let ask = HeartbeatRequest {
            worker_id: lease.worker_id.clone(),
            session_id: self.id(),
            leases: vec![beat],
            ..HeartbeatRequest::default()
        };
        let answer = world.call(Contract::Grpc, request, Duration::ZERO, |mut client| {
            let ask = ask.clone();
            async move {
                let response = client.report_heartbeat(ask).await?.into_inner();
                Ok(response.leases.into_iter().next().map_or(Answer::Lost, beaten))
            }
        });
        heartbeat_outcome(world, &answer.await)
    }

    fn id(&self) -> String {
        format!("{}-{}", self.worker_id, self.number)
    }
}

pub(super) async fn report(world: &World, request: &ReportRequest) -> Option<ReportResponse> {
    let ask = grpc::report(&request.lease, &request.kind);
    let report = RpcRequest::Report(Box::new(ask.clone()));
    let answer = world.call(Contract::Grpc, report, Duration::ZERO, |mut client| {
        let ask = ask.clone();
        async move { Ok(Answer::Reported(client.update_task_status(ask).await?.into_inner())) }
    });
    parse_report_response(world, Contract::Grpc, request, &answer.await)
}

pub(super) fn registration(worker_id: &str, session_id: String) -> RegisterWorkerRequest {
    RegisterWorkerRequest { session_id, ..grpc::registration(worker_id) }
}

pub(super) fn leased(task: LeasedTask) -> Leased {
    Leased {
        lease_id: task.lease_id,
        task_id: task.task_id,
        attempt: task.attempt,
        fencing_token: task.fencing_token,
        between: None,
    }
}

pub(super) fn heartbeat(lease: &LeaseRef) -> LeaseHeartbeat {
    LeaseHeartbeat { progress_pct: Some(50.0), ..grpc::heartbeat(&lease.lease_id) }
}

/// A lease with a problem was not answered.
pub(super) fn beaten(status: LeaseStatus) -> Answer {
    match &status.problem {
        Some(problem) => Answer::of_problem(problem),
        None => Answer::Beaten(status),
    }
}

pub(super) fn heartbeat_outcome(world: &World, answer: &Answer) -> HeartbeatOutcome {
    match answer {
        Answer::Beaten(status) if status.lost => HeartbeatOutcome::Gone,
        Answer::Beaten(_) => HeartbeatOutcome::Alive,
        open if open.is_open() => HeartbeatOutcome::Unknown,
        other => {
            world.recorder.record_unexpected(format!("a heartbeat over gRPC was answered {other:?}"));
            HeartbeatOutcome::Unknown
        }
    }
}

/// The verdict of an answer. A rejection is a status, or the problem of an item in a stream.
pub(super) fn parse_report_response(
    world: &World,
    contract: Contract,
    request: &ReportRequest,
    answer: &Answer,
) -> Option<ReportResponse> {
    let response = match answer {
        Answer::Reported(answer) => ReportResponse { status: Code::Ok as u16, ..accepted(answer) },
        open if open.is_open() => return None,
        Answer::Refused { status, .. } => {
            ReportResponse { status: *status, verdict: Some(Verdict::Rejected), state: None }
        }
        _ => return None,
    };
    let codes = match request.intent {
        Intent::Own => &[Code::Ok][..],
        Intent::Conflicting => &[Code::Ok, Code::FailedPrecondition],
        Intent::Forged => &[Code::PermissionDenied, Code::NotFound, Code::InvalidArgument],
    };
    if !codes.iter().any(|code| *code as u16 == response.status) {
        world.recorder.record_unexpected(format!("{} was answered {answer:?}", describe(contract, request)));
    }
    Some(response)
}

fn accepted(answer: &UpdateTaskStatusResponse) -> ReportResponse {
    let verdict = match answer.verdict() {
        wire::grpc::Verdict::Unspecified => None,
        wire::grpc::Verdict::Committed => Some(Verdict::Committed),
        wire::grpc::Verdict::Cancelled => Some(Verdict::Cancelled),
        wire::grpc::Verdict::Rejected => Some(Verdict::Rejected),
    };
    let state = match answer.task_state() {
        TaskState::Unspecified => None,
        TaskState::Waiting => Some("WAITING"),
        TaskState::Leased => Some("LEASED"),
        TaskState::Completed => Some("COMPLETED"),
        TaskState::Failed => Some("FAILED"),
        TaskState::Dead => Some("DEAD"),
    };
    ReportResponse { status: 0, verdict, state: state.map(str::to_owned) }
}
