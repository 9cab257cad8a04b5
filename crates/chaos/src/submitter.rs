//! A client that hands in tasks, one by one and in batches, repeats itself after lost answers where a dedup key
//! makes that safe, cancels some, and makes mistakes.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use crate::recorder::Cancel;
use crate::world::{QUEUE, RETRY_PAUSE, World};

/// Repeats of a submit with a dedup key; with the pause between them, longer than a restart takes.
const MAX_REPEATS: usize = 500;
const MAX_BATCH: usize = 10;
/// Between two calls of one client: a few hundred tasks a second in all, so that the load outlasts the faults.
const PAUSE_MS: std::ops::Range<u64> = 2..25;

pub(crate) struct Submitter {
    world: Arc<World>,
    name: String,
    rng: fastrand::Rng,
    /// Tasks that this client still may hand in.
    budget: usize,
    made: usize,
    /// Accepted tasks of this client, with their bodies.
    accepted: Vec<(String, Value)>,
}

impl Submitter {
    pub(crate) fn new(world: Arc<World>, name: String, budget: usize) -> Self {
        let rng = world.plan.rng(&name);
        Self { world, name, rng, budget, made: 0, accepted: Vec::new() }
    }

    pub(crate) async fn run(mut self) {
        while !self.world.is_stopped() {
            let has_budget = self.made < self.budget;
            match self.rng.u32(..100) {
                0..40 if has_budget => self.submit_once().await,
                40..60 if has_budget => self.submit_until_accepted().await,
                60..75 if has_budget => self.submit_batch().await,
                75..80 => self.repeat_an_old_submit().await,
                80..84 => self.contradict_an_old_submit().await,
                84..90 => self.cancel_a_task().await,
                90..92 => self.submit_nonsense().await,
                _ => self.read_a_task().await,
            }
            tokio::time::sleep(Duration::from_millis(self.rng.u64(PAUSE_MS))).await;
        }
    }

    /// Without a dedup key a lost answer stays unknown: the task may exist once or not at all.
    async fn submit_once(&mut self) {
        let body = self.make(false);
        self.submit(&body).await;
    }

    async fn submit_until_accepted(&mut self) {
        let body = self.make(true);
        for _ in 0..MAX_REPEATS {
            if self.submit(&body).await || self.world.is_stopped() || !self.world.has_retries() {
                return;
            }
            tokio::time::sleep(RETRY_PAUSE).await;
        }
    }

    async fn submit_batch(&mut self) {
        let size = self.rng.usize(1..=MAX_BATCH);
        let bodies: Vec<Value> = (0..size)
            .map(|_| {
                let with_key = self.rng.bool();
                self.make(with_key)
            })
            .collect();
        let answer = self.world.api.post("/v1/tasks/batch", &json!({"tasks": bodies})).await;
        self.world.recorder.expect("a batch", &answer, &[200, 429, 503]);
        let items = answer.body()["tasks"].as_array();
        if answer.status() == Some(200) && items.is_none_or(|items| items.len() != size) {
            self.record_unexpected(format!("a batch of {size} was answered {}", answer.body()));
        }
        for (index, body) in bodies.iter().enumerate() {
            let task_id = items.and_then(|items| items.get(index)).and_then(|item| item["taskId"].as_str());
            let task_id = task_id.map(str::to_string);
            self.world.note_submission(body, task_id.clone());
            self.accepted.extend(task_id.map(|task_id| (task_id, body.clone())));
        }
    }

    async fn repeat_an_old_submit(&mut self) {
        if let Some((_, body)) = self.any_accepted(true) {
            self.submit(&body).await;
        }
    }

    async fn contradict_an_old_submit(&mut self) {
        let Some((_, mut body)) = self.any_accepted(true) else { return };
        body["payload"]["pad"] = json!("another payload");
        let answer = self.world.api.post("/v1/tasks", &body).await;
        self.world.recorder.expect("a submit with a used key and other content", &answer, &[409, 429, 503]);
        if answer.status() == Some(409) && answer.body()["code"] != "dedup_conflict" {
            self.record_unexpected(format!("a dedup conflict was answered {}", answer.body()));
        }
    }

    async fn cancel_a_task(&mut self) {
        let Some((task_id, _)) = self.any_accepted(false) else { return };
        // Noted before it is sent: also a cancel whose answer is lost may count.
        self.world.recorder.observations().cancels.push(Cancel { task_id: task_id.clone() });
        let path = format!("/v1/tasks/{task_id}/cancel");
        let answer = self.world.api.post(&path, &json!({"reason": "user_requested"})).await;
        self.world.recorder.expect("a cancel", &answer, &[200, 429, 503]);
        if answer.status() == Some(200) {
            self.world.recorder.observations().readings.push(answer.body().clone());
        }
    }

    async fn read_a_task(&mut self) {
        let Some((task_id, _)) = self.any_accepted(false) else { return };
        let answer = self.world.api.get(&format!("/v1/tasks/{task_id}")).await;
        self.world.recorder.expect("a read of an accepted task", &answer, &[200, 503]);
        if answer.status() == Some(200) {
            self.world.recorder.observations().readings.push(answer.body().clone());
        }
    }

    async fn submit_nonsense(&mut self) {
        let bodies = [
            json!({"payload": 1}),
            json!({"queue": QUEUE}),
            json!({"queue": 7, "payload": {}}),
            json!({"queue": QUEUE, "payload": {}, "delayMs": -1}),
            json!([]),
        ];
        let body = &bodies[self.rng.usize(..bodies.len())];
        let answer = self.world.api.post("/v1/tasks", body).await;
        self.world.recorder.expect("nonsense", &answer, &[400, 413, 415, 422, 429, 503]);
    }

    /// Sends one task; true when the server answered with its id.
    async fn submit(&mut self, body: &Value) -> bool {
        let (_, task_id) = self.world.submit(body).await;
        let is_accepted = task_id.is_some();
        self.accepted.extend(task_id.map(|task_id| (task_id, body.clone())));
        is_accepted
    }

    fn make(&mut self, with_key: bool) -> Value {
        self.made += 1;
        let marker = format!("{}-{}", self.name, self.made);
        let pad = "x".repeat(self.rng.usize(..1500));
        let mut body = json!({"queue": QUEUE, "payload": {"marker": marker, "pad": pad}});
        if with_key {
            body["dedupKey"] = json!(marker);
        }
        if self.rng.u32(..4) == 0 {
            body["priority"] = json!(self.rng.u32(..4));
        }
        if self.rng.u32(..8) == 0 {
            body["delayMs"] = json!(self.rng.u32(..300));
        }
        if self.rng.u32(..8) == 0 {
            body["maxAttempts"] = json!(self.rng.u32(1..4));
        }
        body
    }

    fn any_accepted(&mut self, with_key: bool) -> Option<(String, Value)> {
        // New tasks are more interesting than old ones: they are still alive.
        let recent = self.accepted.len().saturating_sub(50);
        let index =
            if self.accepted.is_empty() { return None } else { self.rng.usize(recent..self.accepted.len()) };
        let (task_id, body) = &self.accepted[index];
        (!with_key || body["dedupKey"].is_string()).then(|| (task_id.clone(), body.clone()))
    }

    fn record_unexpected(&self, what: String) {
        self.world.recorder.observations().unexpected_answers.push(what);
    }
}
