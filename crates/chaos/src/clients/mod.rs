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
use crate::facts::{At, Beat, Grant, Pulse, Report, Told};
use crate::story::{Intent, Story};
use crate::world::{RETRY_PAUSE, World};

/// How long a worker waits for tasks.
const LEASE_WAIT: Duration = Duration::from_millis(300);
/// A worker that gets no answer to a report for so long gives up; longer than any fault lasts.
const INSIST_FOR: Duration = Duration::from_secs(20);

pub struct ContractClient {
    world: Arc<World>,
    worker_id: String,
    protocol: Protocol,
}

enum Protocol {
    Native,
    Claim,
    Grpc(grpc::Session),
    Stream(stream::Line),
    Callback,
}

/// A lease as a contract tells it.
struct Leased {
    lease_id: String,
    task_id: String,
    attempt: u32,
    fencing_token: u64,
    /// Where it is known better than by the call that was answered: when it was asked for, and when it was told.
    between: Option<(At, At)>,
}

impl ContractClient {
    pub fn new(world: Arc<World>, contract: Contract, worker_id: &str) -> ContractClient {
        let protocol = match contract {
            Contract::Native => Protocol::Native,
            Contract::Claim => Protocol::Claim,
            Contract::Grpc => Protocol::Grpc(grpc::Session::new(worker_id)),
            Contract::Stream => Protocol::Stream(stream::Line::open(&world, worker_id)),
            Contract::Callback => Protocol::Callback,
        };
        ContractClient { world, worker_id: worker_id.to_owned(), protocol }
    }

    pub fn contract(&self) -> Contract {
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
    pub async fn lease(&mut self, request: &str, max_tasks: u32, asked_at: At) -> Option<Vec<Grant>> {
        let (world, worker) = (&self.world, self.worker_id.as_str());
        let leased = match &mut self.protocol {
            Protocol::Native => native::lease(world, worker, request, max_tasks).await?,
            Protocol::Claim => claim::lease(world, worker, request).await?,
            Protocol::Grpc(session) => session.lease(world, request, max_tasks).await?,
            Protocol::Stream(line) => line.lease(max_tasks).await,
            Protocol::Callback => callback::take(world, worker, max_tasks).await,
        };
        let (contract, told_at) = (self.contract(), self.world.facts.now());
        let grant = |leased: Leased| {
            let (asked_at, told_at) = leased.between.unwrap_or((asked_at, told_at));
            Grant {
                contract,
                lease_id: leased.lease_id,
                task_id: leased.task_id,
                worker_id: self.worker_id.clone(),
                attempt: leased.attempt,
                fencing_token: leased.fencing_token,
                asked_at,
                told_at,
            }
        };
        let grants: Vec<Grant> = leased.into_iter().map(grant).collect();
        self.world.facts.book().grants.extend(grants.iter().cloned());
        Some(grants)
    }

    /// Sends a report once and notes what came back.
    pub async fn report(&self, story: &Story) -> Option<Told> {
        self.report_by(self.contract(), story).await
    }

    /// Sends a report until it is decided, as an honest worker must after a lost answer.
    pub async fn insist(&self, story: &Story) -> Option<Told> {
        self.insist_by(self.contract(), story).await
    }

    /// The same through another contract, where there is one that has the words.
    pub async fn insist_elsewhere(&self, story: &Story) -> Option<Told> {
        self.insist_by(self.contract().another(self.world.contracts, &story.kind), story).await
    }

    async fn insist_by(&self, contract: Contract, story: &Story) -> Option<Told> {
        let give_up_at = self.world.facts.now() + INSIST_FOR;
        while self.world.facts.now() < give_up_at {
            let told = self.report_by(contract, story).await;
            if told.is_some() {
                return told;
            }
            tokio::time::sleep(RETRY_PAUSE).await;
        }
        None
    }

    async fn report_by(&self, contract: Contract, story: &Story) -> Option<Told> {
        let (story, sent_at) = (story.clone(), self.world.facts.now());
        let told = match (&self.protocol, contract) {
            (Protocol::Stream(line), Contract::Stream) => line.report(&story).await,
            _ => say(&self.world, contract, &story).await,
        };
        let ended_at = self.world.facts.now();
        let report = Report { contract, story, sent_at, ended_at, told: told.clone() };
        self.world.facts.book().reports.push(report);
        told
    }

    /// Sends a heartbeat; false when the server says that the lease is gone.
    pub async fn beat(&self, lease: &LeaseRef) -> bool {
        let sent_at = self.world.facts.now();
        let pulse = match &self.protocol {
            Protocol::Native => native::beat(&self.world, lease).await,
            Protocol::Claim => claim::beat(&self.world, lease).await,
            Protocol::Grpc(session) => session.beat(&self.world, lease).await,
            Protocol::Stream(line) => line.beat(lease).await,
            Protocol::Callback => callback::beat(&self.world, lease).await,
        };
        let (lease_id, ended_at) = (lease.lease_id.clone(), self.world.facts.now());
        self.world.facts.book().beats.push(Beat { lease_id, sent_at, ended_at, pulse });
        pulse != Pulse::Gone
    }

    /// The worker process is another one from here on, under the same name.
    pub async fn begin_anew(&mut self) {
        match &mut self.protocol {
            Protocol::Grpc(session) => session.begin_anew(),
            Protocol::Stream(line) => line.begin_anew().await,
            Protocol::Native | Protocol::Claim | Protocol::Callback => {}
        }
    }
}

/// Sends a report once through a contract that has a call for it.
pub async fn say(world: &World, contract: Contract, story: &Story) -> Option<Told> {
    match contract {
        Contract::Native => native::report(world, story).await,
        Contract::Claim => claim::report(world, story).await,
        Contract::Grpc | Contract::Stream => grpc::report(world, story).await,
        Contract::Callback => callback::report(world, story).await,
    }
}

/// The statuses of HTTP that a report may get beside those by which nothing was decided.
fn allowed(story: &Story, forged: &[u16]) -> Vec<u16> {
    let statuses = match (story.intent, &story.kind) {
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
fn shown(contract: Contract, story: &Story) -> String {
    let Story { lease, kind, intent } = story;
    format!("{intent:?} report on {} by {} ({kind:?})", lease.task_id, contract.name())
}
