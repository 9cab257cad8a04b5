//! The client of a worker: leases, reports and heartbeats through any contract.
//!
//! Requests and answers are recorded here, for all contracts; an answer that a contract does not allow is recorded where
//! the answer is parsed. A lost answer is a value, as everywhere in this crate.

mod callback;
mod claim;
mod grpc;
mod native;
mod stream;

use std::sync::Arc;
use std::time::Duration;

use contract_clients::{LeaseRef, ReportKind};

use crate::contract::Contract;
use crate::recorder::{At, Beat, Grant, HeartbeatOutcome, Report, ReportResponse};
use crate::report_request::{Intent, ReportRequest};
use crate::world::{RETRY_PAUSE, World};

/// How long a worker waits for tasks.
const LEASE_WAIT: Duration = Duration::from_millis(300);
/// A worker that gets no answer to a report for so long gives up; longer than any fault lasts.
const RETRY_FOR: Duration = Duration::from_secs(20);

pub(crate) struct ContractClient {
    world: Arc<World>,
    worker_id: String,
    protocol: Protocol,
}

enum Protocol {
    Native,
    Claim,
    Grpc(grpc::Session),
    Stream(stream::StreamClient),
    Callback,
}

/// A lease as a contract describes it.
struct Leased {
    lease_id: String,
    task_id: String,
    attempt: u32,
    fencing_token: u64,
    /// Where it is known better than by the call that was answered: when it was requested, and when the answer arrived.
    between: Option<(At, At)>,
}

impl ContractClient {
    pub(crate) fn new(world: Arc<World>, contract: Contract, worker_id: &str) -> ContractClient {
        let protocol = match contract {
            Contract::Native => Protocol::Native,
            Contract::Claim => Protocol::Claim,
            Contract::Grpc => Protocol::Grpc(grpc::Session::new(worker_id)),
            Contract::Stream => Protocol::Stream(stream::StreamClient::open(&world, worker_id)),
            Contract::Callback => Protocol::Callback,
        };
        ContractClient { world, worker_id: worker_id.to_owned(), protocol }
    }

    pub(crate) fn contract(&self) -> Contract {
        match self.protocol {
            Protocol::Native => Contract::Native,
            Protocol::Claim => Contract::Claim,
            Protocol::Grpc(_) => Contract::Grpc,
            Protocol::Stream(_) => Contract::Stream,
            Protocol::Callback => Contract::Callback,
        }
    }

    /// Asks for tasks once; None when nothing was decided as far as we know. `asked_at` is when this request was first
    /// sent.
    pub(crate) async fn lease(&mut self, request: &str, max_tasks: u32, asked_at: At) -> Option<Vec<Grant>> {
        let (world, worker) = (&self.world, self.worker_id.as_str());
        let leased = match &mut self.protocol {
            Protocol::Native => native::lease(world, worker, request, max_tasks).await?,
            Protocol::Claim => claim::lease(world, worker, request).await?,
            Protocol::Grpc(session) => session.lease(world, request, max_tasks).await?,
            Protocol::Stream(stream) => stream.lease(max_tasks).await,
            Protocol::Callback => callback::take(world, worker, max_tasks).await,
        };
        let (contract, answered_at) = (self.contract(), self.world.recorder.now());
        let grant = |leased: Leased| {
            let (asked_at, answered_at) = leased.between.unwrap_or((asked_at, answered_at));
            Grant {
                contract,
                lease_id: leased.lease_id,
                task_id: leased.task_id,
                worker_id: self.worker_id.clone(),
                attempt: leased.attempt,
                fencing_token: leased.fencing_token,
                asked_at,
                answered_at,
            }
        };
        let grants: Vec<Grant> = leased.into_iter().map(grant).collect();
        self.world.recorder.observations().grants.extend(grants.iter().cloned());
        Some(grants)
    }

    /// Sends a report once and records the response.
    pub(crate) async fn report(&self, request: &ReportRequest) -> Option<ReportResponse> {
        self.report_by(self.contract(), request).await
    }

    /// Sends a report until it is decided, as an honest worker must after a lost answer.
    pub(crate) async fn retry_report(&self, request: &ReportRequest) -> Option<ReportResponse> {
        self.retry_report_by(self.contract(), request).await
    }

    /// The same through another contract, where one supports this report.
    pub(crate) async fn retry_report_elsewhere(&self, request: &ReportRequest) -> Option<ReportResponse> {
        self.retry_report_by(self.contract().another(self.world.contracts, &request.kind), request).await
    }

    async fn retry_report_by(&self, contract: Contract, request: &ReportRequest) -> Option<ReportResponse> {
        let give_up_at = self.world.recorder.now() + RETRY_FOR;
        while self.world.recorder.now() < give_up_at {
            let response = self.report_by(contract, request).await;
            if response.is_some() || !self.world.has_retries() {
                return response;
            }
            tokio::time::sleep(RETRY_PAUSE).await;
        }
        None
    }

    async fn report_by(&self, contract: Contract, request: &ReportRequest) -> Option<ReportResponse> {
        let (request, sent_at) = (request.clone(), self.world.recorder.now());
        let response = match (&self.protocol, contract) {
            (Protocol::Stream(stream), Contract::Stream) => stream.report(&request).await,
            _ => send_report(&self.world, contract, &request).await,
        };
        let ended_at = self.world.recorder.now();
        let report = Report { contract, request, sent_at, ended_at, response: response.clone() };
        self.world.recorder.observations().reports.push(report);
        response
    }

    /// Sends a heartbeat; false when the server says that the lease is gone.
    pub(crate) async fn beat(&self, lease: &LeaseRef) -> bool {
        let sent_at = self.world.recorder.now();
        let heartbeat_outcome = match &self.protocol {
            Protocol::Native => native::beat(&self.world, lease).await,
            Protocol::Claim => claim::beat(&self.world, lease).await,
            Protocol::Grpc(session) => session.beat(&self.world, lease).await,
            Protocol::Stream(stream) => stream.beat(lease).await,
            Protocol::Callback => callback::beat(&self.world, lease).await,
        };
        let (lease_id, ended_at) = (lease.lease_id.clone(), self.world.recorder.now());
        self.world.recorder.observations().beats.push(Beat {
            lease_id,
            sent_at,
            ended_at,
            heartbeat_outcome,
        });
        heartbeat_outcome != HeartbeatOutcome::Gone
    }

    /// The worker process is another one from here on, under the same name.
    pub(crate) async fn restart_session(&mut self) {
        match &mut self.protocol {
            Protocol::Grpc(session) => session.restart_session(),
            Protocol::Stream(stream) => stream.restart_session().await,
            Protocol::Native | Protocol::Claim | Protocol::Callback => {}
        }
    }
}

/// Sends a report once through a contract that has a call for it.
pub(crate) async fn send_report(
    world: &World,
    contract: Contract,
    request: &ReportRequest,
) -> Option<ReportResponse> {
    match contract {
        Contract::Native => native::report(world, request).await,
        Contract::Claim => claim::report(world, request).await,
        Contract::Grpc | Contract::Stream => grpc::report(world, request).await,
        Contract::Callback => callback::report(world, request).await,
    }
}

/// The statuses of HTTP that a report may get beside those by which nothing was decided.
fn allowed(request: &ReportRequest, forged: &[u16]) -> Vec<u16> {
    let statuses = match (request.intent, &request.kind) {
        (Intent::Own, ReportKind::Released) => &[200][..],
        (Intent::Own, _) => &[200, 409],
        (Intent::Conflicting, _) => &[409],
        (Intent::Forged, _) => forged,
    };
    statuses.iter().copied().chain(OPEN).collect()
}

/// The statuses of HTTP by which nothing was decided: full, and not serving.
const OPEN: [u16; 2] = [429, 503];

/// Describes a report that got an unexpected answer.
fn describe(contract: Contract, request: &ReportRequest) -> String {
    let ReportRequest { lease, kind, intent } = request;
    format!("{intent:?} report on {} by {} ({kind:?})", lease.task_id, contract.name())
}
