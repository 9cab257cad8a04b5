//! Workers of every character, from honest to hostile. Each leases tasks and does with them what it is like.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use crate::facts::{Action, At, Grant, Intent};
use crate::world::{LEASE, QUEUE, RETRY_PAUSE, Story, World};

const LEASE_WAIT_MS: u64 = 300;
/// Repeats of a lease request whose answer was lost.
const MAX_LEASE_REPEATS: usize = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Character {
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

/// The eight workers of a run.
pub const CAST: [Character; 8] = [
    Character::Honest,
    Character::Honest,
    Character::Slow,
    Character::Hostile,
    Character::Repeater,
    Character::Failer,
    Character::Heartbeater,
    Character::Releaser,
];

pub struct Worker {
    world: Arc<World>,
    id: String,
    character: Character,
    rng: fastrand::Rng,
    requests: u64,
}

impl Worker {
    pub fn new(world: Arc<World>, id: String, character: Character) -> Self {
        let rng = world.plan.rng(&id);
        Self { world, id, character, rng, requests: 0 }
    }

    pub async fn run(mut self) {
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
                continue;
            }
            for grant in grants {
                self.work_on(&grant).await;
            }
        }
    }

    /// Leases and completes honestly until nothing was left for a whole wait; gives the number of tasks seen.
    pub async fn drain(&mut self) -> usize {
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
                self.world.insist(&failure).await;
            }
            Character::Heartbeater => self.take_long(grant).await,
            Character::Releaser => self.give_back(grant).await,
        }
    }

    async fn complete(&mut self, grant: &Grant) {
        let completion = self.completion(grant);
        self.world.insist(&completion).await;
    }

    async fn be_hostile(&mut self, grant: &Grant) {
        for forged in self.forgeries(grant) {
            self.world.report(&forged).await;
        }
        let first = if self.rng.bool() { self.completion(grant) } else { self.failure(grant) };
        if self.world.insist(&first).await.is_some() {
            let mut second = if self.rng.bool() { self.completion(grant) } else { self.failure(grant) };
            second.intent = Intent::Conflicting;
            self.world.report(&second).await;
        }
    }

    async fn repeat_everything(&mut self, grant: &Grant) {
        let story = self.completion(grant);
        if self.rng.bool() {
            tokio::join!(self.world.insist(&story), self.world.insist(&story));
        } else {
            self.world.insist(&story).await;
            self.world.insist(&story).await;
        }
    }

    async fn take_long(&mut self, grant: &Grant) {
        let until: At = self.world.facts.now() + LEASE * 2;
        while self.world.facts.now() < until {
            if !self.world.beat(&grant.lease_id, &self.id).await {
                break;
            }
            tokio::time::sleep(LEASE / 5).await;
        }
        self.complete(grant).await;
    }

    async fn give_back(&mut self, grant: &Grant) {
        let release = Story {
            lease_id: grant.lease_id.clone(),
            task_id: grant.task_id.clone(),
            action: Action::Release,
            body: json!({"workerId": self.id, "taskId": grant.task_id}),
            intent: Intent::Own,
        };
        match self.rng.u32(..3) {
            0 => self.complete(grant).await,
            1 => drop(self.world.insist(&release).await),
            _ => {
                // A report after a release has no authority any more, and must not be taken for one that has.
                if self.world.insist(&release).await.is_some() {
                    let late = Story { intent: Intent::Conflicting, ..self.completion(grant) };
                    self.world.report(&late).await;
                }
            }
        }
    }

    pub fn completion(&mut self, grant: &Grant) -> Story {
        let result = json!({"by": self.id, "attempt": grant.attempt, "nonce": self.rng.u32(..)});
        self.story(
            grant,
            Action::Complete,
            json!({"workerId": self.id, "taskId": grant.task_id, "result": result}),
        )
    }

    fn failure(&mut self, grant: &Grant) -> Story {
        let categories = ["USER_CODE", "INFRASTRUCTURE", "TIMEOUT", "DATA_QUALITY", "CONFIGURATION"];
        let body = json!({
            "workerId": self.id,
            "taskId": grant.task_id,
            "reason": format!("failure {}", self.rng.u32(..)),
            "category": categories[self.rng.usize(..categories.len())],
            "retryable": self.rng.u32(..5) > 0,
        });
        self.story(grant, Action::Fail, body)
    }

    fn story(&self, grant: &Grant, action: Action, body: Value) -> Story {
        let (lease_id, task_id) = (grant.lease_id.clone(), grant.task_id.clone());
        Story { lease_id, task_id, action, body, intent: Intent::Own }
    }

    fn forgeries(&mut self, grant: &Grant) -> Vec<Story> {
        let honest = self.completion(grant);
        let forged = |change: &dyn Fn(&mut Story)| {
            let mut story = Story { intent: Intent::Forged, ..honest.clone() };
            change(&mut story);
            story
        };
        let mut stories = vec![
            forged(&|story| story.lease_id = flip_a_character(&story.lease_id)),
            forged(&|story| story.lease_id = "not-a-lease".into()),
            forged(&|story| story.body["workerId"] = json!("somebody-else")),
            forged(&|story| story.body["taskId"] = json!("00000000-0000-7000-8000-000000000000")),
        ];
        let others: Vec<Grant> = {
            let book = self.world.facts.book();
            let foreign = book.grants.iter().rev().filter(|other| other.worker_id != self.id);
            foreign.take(3).cloned().collect()
        };
        for other in others {
            // Another worker's lease under our own name, alive or not.
            let mut story = self.completion(&other);
            story.intent = Intent::Forged;
            stories.push(story);
        }
        stories
    }

    /// Asks for tasks, with the same request id again when the answer was lost.
    pub async fn lease(&mut self, max_tasks: u32) -> Vec<Grant> {
        self.requests += 1;
        let body = json!({
            "workerId": self.id,
            "queues": [QUEUE],
            "maxTasks": max_tasks,
            "waitMs": LEASE_WAIT_MS,
            "requestId": format!("{}-{}", self.id, self.requests),
        });
        let asked_at = self.world.facts.now();
        for _ in 0..MAX_LEASE_REPEATS {
            let starts = self.world.starts();
            if let Some(grants) = self.ask(&body, asked_at).await {
                if self.character == Character::Repeater && !grants.is_empty() {
                    self.ask_again(&body, asked_at, starts, &grants).await;
                }
                return grants;
            }
            tokio::time::sleep(RETRY_PAUSE).await;
        }
        Vec::new()
    }

    async fn ask(&self, body: &Value, asked_at: At) -> Option<Vec<Grant>> {
        let answer = self.world.api.post("/v1/leases", body).await;
        self.world.facts.expect("a lease request", &answer, &[200, 429, 503]);
        if answer.status() != Some(200) {
            return None;
        }
        let told_at = self.world.facts.now();
        let leases = answer.body()["leases"].as_array().map(Vec::as_slice).unwrap_or_default();
        let grants: Vec<Grant> = leases
            .iter()
            .map(|lease| Grant {
                lease_id: text(lease, "leaseId"),
                task_id: text(lease, "taskId"),
                worker_id: self.id.clone(),
                attempt: lease["attempt"].as_u64().unwrap_or_default(),
                fencing_token: number(&lease["fencingToken"]),
                asked_at,
                told_at,
            })
            .collect();
        self.world.facts.book().grants.extend(grants.iter().cloned());
        Some(grants)
    }

    /// The same request id gets the same leases while they live.
    async fn ask_again(&self, body: &Value, asked_at: At, starts: u64, first: &[Grant]) {
        let Some(second) = self.ask(body, asked_at).await else { return };
        let ids = |grants: &[Grant]| {
            let mut ids: Vec<String> = grants.iter().map(|grant| grant.lease_id.clone()).collect();
            ids.sort();
            ids
        };
        let still_live = self.world.facts.now() < asked_at + LEASE;
        if still_live && self.world.starts() == starts && ids(first) != ids(&second) {
            let message = format!("a repeated request id got other leases: {first:?} then {second:?}");
            self.world.facts.book().surprises.push(message);
        }
    }
}

fn text(value: &Value, name: &str) -> String {
    value[name].as_str().unwrap_or_default().to_string()
}

/// A number that JSON carries as a number or, where it may pass 2^53, as text.
pub fn number(value: &Value) -> u64 {
    value.as_u64().or_else(|| value.as_str()?.parse().ok()).unwrap_or_default()
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
