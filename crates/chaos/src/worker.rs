//! Workers of every character, from honest to hostile. Each leases tasks and does with them what it is like.

use std::sync::Arc;
use std::time::Duration;

use contract_clients::{Failure, LeaseRef, ReportKind};
use serde_json::json;
use wire::ErrorCategory;

use crate::clients::ContractClient;
use crate::contract::Contract;
use crate::recorder::{At, Grant};
use crate::report_request::{Intent, ReportRequest};
use crate::world::{LEASE, RETRY_PAUSE, World};

/// Repeats of a lease request whose answer was lost.
const MAX_LEASE_REPEATS: usize = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Character {
    /// Completes what it gets, and insists until it knows the verdict; but sometimes it dies at work.
    Honest,
    /// Reports long after its lease ran out.
    Slow,
    /// Forges, contradicts itself, speaks for others.
    Hostile,
    /// Sends every request twice, sometimes both at once.
    Repeater,
    /// Fails what it gets, with and without hope.
    Failer,
    /// Works for longer than a lease and keeps it by heartbeats.
    Heartbeater,
    /// Gives back what it gets, and sometimes reports on it nevertheless.
    Releaser,
}

/// The eight workers of each contract.
pub(crate) const CHARACTERS: [Character; 8] = [
    Character::Honest,
    Character::Honest,
    Character::Slow,
    Character::Hostile,
    Character::Repeater,
    Character::Failer,
    Character::Heartbeater,
    Character::Releaser,
];

const CATEGORIES: [ErrorCategory; 5] = [
    ErrorCategory::UserCode,
    ErrorCategory::Infrastructure,
    ErrorCategory::Timeout,
    ErrorCategory::DataQuality,
    ErrorCategory::Configuration,
];

pub(crate) struct Worker {
    world: Arc<World>,
    id: String,
    character: Character,
    client: ContractClient,
    rng: fastrand::Rng,
    requests: u64,
}

impl Worker {
    pub(crate) fn new(world: Arc<World>, contract: Contract, id: String, character: Character) -> Self {
        let (rng, client) = (world.plan.rng(&id), ContractClient::new(world.clone(), contract, &id));
        Self { world, id, character, client, rng, requests: 0 }
    }

    pub(crate) fn client(&self) -> &ContractClient {
        &self.client
    }

    pub(crate) async fn run(mut self) {
        while !self.world.is_stopped() {
            let max_tasks = match self.character {
                Character::Honest | Character::Slow => 8,
                _ => 3,
            };
            let grants = self.lease(max_tasks).await;
            if !grants.is_empty() {
                tokio::time::sleep(self.time_to_work()).await;
            }
            if self.character == Character::Honest && self.rng.u32(..12) == 0 {
                // The worker is gone, and another one under the same name begins anew.
                self.client.restart_session().await;
                continue;
            }
            for grant in grants {
                self.work_on(&grant).await;
            }
        }
    }

    /// Leases and completes honestly until nothing was left for a whole wait; gives the number of tasks seen.
    pub(crate) async fn drain(&mut self) -> usize {
        let grants = self.lease(16).await;
        for grant in &grants {
            self.complete(grant).await;
        }
        grants.len()
    }

    fn time_to_work(&mut self) -> Duration {
        match self.character {
            Character::Honest => Duration::from_millis(self.rng.u64(5..60)),
            Character::Slow => LEASE * 13 / 10 + Duration::from_millis(self.rng.u64(100..400)),
            _ => Duration::ZERO,
        }
    }

    async fn work_on(&mut self, grant: &Grant) {
        match self.character {
            Character::Honest | Character::Slow => self.complete(grant).await,
            Character::Hostile => self.be_hostile(grant).await,
            Character::Repeater => self.repeat_everything(grant).await,
            Character::Failer => {
                let failure = self.failure(grant);
                self.client.retry_report(&failure).await;
            }
            Character::Heartbeater => self.take_long(grant).await,
            Character::Releaser => self.give_back(grant).await,
        }
    }

    async fn complete(&mut self, grant: &Grant) {
        let completion = self.completion(grant);
        self.client.retry_report(&completion).await;
    }

    async fn be_hostile(&mut self, grant: &Grant) {
        for forged in self.forgeries(grant) {
            self.client.report(&forged).await;
        }
        let first = if self.rng.bool() { self.completion(grant) } else { self.failure(grant) };
        if self.client.retry_report(&first).await.is_some() {
            let mut second = if self.rng.bool() { self.completion(grant) } else { self.failure(grant) };
            second.intent = Intent::Conflicting;
            self.client.report(&second).await;
        }
    }

    async fn repeat_everything(&mut self, grant: &Grant) {
        let request = self.completion(grant);
        if self.rng.bool() {
            tokio::join!(self.client.retry_report(&request), self.client.retry_report(&request));
        } else {
            self.client.retry_report(&request).await;
            self.client.retry_report_elsewhere(&request).await;
        }
    }

    async fn take_long(&mut self, grant: &Grant) {
        let until: At = self.world.recorder.now() + LEASE * 2;
        while self.world.recorder.now() < until {
            if !self.client.beat(&self.lease_ref(grant)).await {
                break;
            }
            tokio::time::sleep(LEASE / 5).await;
        }
        self.complete(grant).await;
    }

    async fn give_back(&mut self, grant: &Grant) {
        if !self.client.contract().has_releases() {
            return self.complete(grant).await;
        }
        let release =
            ReportRequest { lease: self.lease_ref(grant), kind: ReportKind::Released, intent: Intent::Own };
        match self.rng.u32(..3) {
            0 => self.complete(grant).await,
            1 => drop(self.client.retry_report(&release).await),
            _ => {
                // A report after a release has no authority any more, and must not be taken for one that has.
                if self.client.retry_report(&release).await.is_some() {
                    let late = ReportRequest { intent: Intent::Conflicting, ..self.completion(grant) };
                    self.client.report(&late).await;
                }
            }
        }
    }

    pub(crate) fn completion(&mut self, grant: &Grant) -> ReportRequest {
        let result = json!({"by": self.id, "attempt": grant.attempt, "nonce": self.rng.u32(..)});
        ReportRequest {
            lease: self.lease_ref(grant),
            kind: ReportKind::Completed(result),
            intent: Intent::Own,
        }
    }

    fn failure(&mut self, grant: &Grant) -> ReportRequest {
        let message = format!("failure {}", self.rng.u32(..));
        let category = CATEGORIES[self.rng.usize(..CATEGORIES.len())];
        let category =
            if self.client.contract().has_categories() { category } else { ErrorCategory::UserCode };
        let failure = Failure { category, message, retryable: self.rng.u32(..5) > 0 };
        ReportRequest { lease: self.lease_ref(grant), kind: ReportKind::Failed(failure), intent: Intent::Own }
    }

    /// How this worker names a lease, be it its own or not.
    fn lease_ref(&self, grant: &Grant) -> LeaseRef {
        LeaseRef {
            lease_id: grant.lease_id.clone(),
            task_id: grant.task_id.clone(),
            worker_id: self.id.clone(),
            attempt: grant.attempt,
        }
    }

    fn forgeries(&mut self, grant: &Grant) -> Vec<ReportRequest> {
        let honest = self.completion(grant);
        let forged = |change: &dyn Fn(&mut LeaseRef)| {
            let mut request = ReportRequest { intent: Intent::Forged, ..honest.clone() };
            change(&mut request.lease);
            request
        };
        let mut requests = vec![
            forged(&|lease| lease.lease_id = flip_a_character(&lease.lease_id)),
            forged(&|lease| lease.lease_id = "not-a-lease".into()),
            forged(&|lease| lease.task_id = "00000000-0000-7000-8000-000000000000".into()),
        ];
        if !self.client.contract().has_lease_ids() {
            // A task token is good for whoever bears it.
            return requests;
        }
        requests.push(forged(&|lease| lease.worker_id = "somebody-else".into()));
        let others: Vec<Grant> = {
            let observations = self.world.recorder.observations();
            let foreign = observations.grants.iter().rev().filter(|other| other.worker_id != self.id);
            foreign.take(3).cloned().collect()
        };
        for other in others {
            // Another worker's lease under our own name, alive or not.
            let mut request = self.completion(&other);
            request.intent = Intent::Forged;
            requests.push(request);
        }
        requests
    }

    /// Asks for tasks, with the same request id again when the answer was lost.
    pub(crate) async fn lease(&mut self, max_tasks: u32) -> Vec<Grant> {
        self.requests += 1;
        let request = format!("{}-{}", self.id, self.requests);
        let asked_at = self.world.recorder.now();
        for _ in 0..if self.world.has_retries() { MAX_LEASE_REPEATS } else { 1 } {
            let starts = self.world.starts();
            if let Some(grants) = self.client.lease(&request, max_tasks, asked_at).await {
                let may_repeat = self.client.contract().has_request_ids();
                if self.character == Character::Repeater && may_repeat && !grants.is_empty() {
                    self.ask_again(&request, max_tasks, asked_at, starts, &grants).await;
                }
                return grants;
            }
            tokio::time::sleep(RETRY_PAUSE).await;
        }
        Vec::new()
    }

    /// The same request id gets the same leases while they live.
    async fn ask_again(&mut self, request: &str, max_tasks: u32, asked_at: At, starts: u64, first: &[Grant]) {
        let Some(second) = self.client.lease(request, max_tasks, asked_at).await else { return };
        let ids = |grants: &[Grant]| {
            let mut ids: Vec<String> = grants.iter().map(|grant| grant.lease_id.clone()).collect();
            ids.sort();
            ids
        };
        // A node that finds no owner in time answers a poll with nothing.
        if second.is_empty() && !self.world.has_retries() {
            return;
        }
        let still_live = self.world.recorder.now() < asked_at + LEASE;
        if still_live && self.world.starts() == starts && ids(first) != ids(&second) {
            let message = format!("a repeated request id got other leases: {first:?} then {second:?}");
            self.world.recorder.record_unexpected(message);
        }
    }
}

/// Changes one character in the middle, where a careless check would look last.
fn flip_a_character(text: &str) -> String {
    let middle = text.chars().count() / 2;
    let flip = |(index, c): (usize, char)| match (index == middle, c) {
        (true, 'A') => 'B',
        (true, _) => 'A',
        (false, c) => c,
    };
    text.chars().enumerate().map(flip).collect()
}
