//! Records calls of the worker service over gRPC and the messages of its streams.
//!
//! A stream has no calls. Each request in it is noted with the answer that belongs to it, or with none when the stream
//! broke before; tasks that arrive are the answer to the credit that was given last.

use anyhow::{Context, Result};
pub use contract_clients::grpc::Client;
use contract_clients::{Timeouts, grpc};
use tonic::Status;
use tonic_types::StatusExt;
use wire::grpc::worker_scheduler_client::WorkerSchedulerClient;
use wire::grpc::{
    LeaseHeartbeat, LeaseStatus, LeaseTaskRequest, LeasedTask, Problem, RegisterWorkerRequest,
    UpdateTaskStatusRequest, UpdateTaskStatusResponse,
};

use crate::contract::Contract;
use crate::recorder::At;

/// A request that is over.
#[derive(Clone, Debug)]
pub struct Rpc {
    /// By call or by stream.
    pub contract: Contract,
    pub sent_at: At,
    pub ended_at: At,
    pub request: RpcRequest,
    pub answer: Answer,
}

#[derive(Clone, Debug)]
pub enum RpcRequest {
    Register(RegisterWorkerRequest),
    Lease(LeaseTaskRequest),
    Report(Box<UpdateTaskStatusRequest>),
    Heartbeat { worker_id: String, beat: LeaseHeartbeat },
}

impl RpcRequest {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            RpcRequest::Register(_) => "a registration over gRPC",
            RpcRequest::Lease(_) => "a lease request over gRPC",
            RpcRequest::Report(_) => "a report over gRPC",
            RpcRequest::Heartbeat { .. } => "a heartbeat over gRPC",
        }
    }
}

#[derive(Clone, Debug)]
pub enum Answer {
    Registered,
    Leased(Vec<LeasedTask>),
    Reported(UpdateTaskStatusResponse),
    Beaten(LeaseStatus),
    Refused {
        /// gRPC's number of the status.
        status: u16,
        /// The stable name of the problem.
        reason: String,
    },
    /// No answer: the call may have happened or not.
    Lost,
}

/// A client that connects when it is first used, and again when the server was away.
pub fn client(address: &str, timeouts: Timeouts) -> Result<Client> {
    let endpoint =
        grpc::endpoint(&format!("http://{address}"), timeouts).context("cannot name the server")?;
    Ok(WorkerSchedulerClient::new(endpoint.connect_lazy()))
}

impl Answer {
    /// Every refusal by the server has a reason; a status without one was made on this side of the wire.
    pub fn of_status(status: &Status) -> Answer {
        match status.get_error_details().error_info() {
            Some(info) => Answer::Refused { status: status.code() as u16, reason: info.reason.clone() },
            None => Answer::Lost,
        }
    }

    pub fn of_problem(problem: &Problem) -> Answer {
        let status = u16::try_from(problem.status).unwrap_or_default();
        Answer::Refused { status, reason: problem.code.clone() }
    }

    /// Nothing was decided as far as we know: lost, not serving, or full. The caller may ask again.
    pub fn is_open(&self) -> bool {
        match self {
            Answer::Lost => true,
            Answer::Refused { status, .. } => {
                [tonic::Code::Unavailable as u16, tonic::Code::ResourceExhausted as u16].contains(status)
            }
            _ => false,
        }
    }
}
