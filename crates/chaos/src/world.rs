//! What all actors of a run share: the way to the server, the book of facts, and the sign to stop.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Result, bail};
use serde_json::{Value, json};

use crate::api::{Answer, Api};
use crate::facts::{Action, At, Beat, Facts, Intent, Report, Submission, Told};
use crate::plan::Plan;

pub const QUEUE: &str = "chaos";
/// Short, so that leases run out all the time.
pub const LEASE: Duration = Duration::from_millis(500);
/// Pause after a call that was not served, before it is made again.
pub const RETRY_PAUSE: Duration = Duration::from_millis(20);
/// A worker that gets no answer to a report for so long gives up; longer than any fault lasts.
const INSIST_FOR: Duration = Duration::from_secs(20);

pub struct World {
    pub plan: Plan,
    pub api: Api,
    pub facts: Arc<Facts>,
    stop: AtomicBool,
    /// How often the server was started: answers of one start may rest on what it remembers.
    starts: AtomicU64,
}

impl World {
    pub fn new(plan: Plan, address: &str) -> Result<Self> {
        let facts = Arc::new(Facts::new());
        let api = Api::new(address, Some(facts.clone()))?;
        Ok(Self { plan, api, facts, stop: AtomicBool::new(false), starts: AtomicU64::new(1) })
    }

    pub async fn configure_queue(&self, lease: Duration) -> Result<()> {
        let body = json!({
            "leaseMs": lease.as_millis() as u64,
            "heartbeatIntervalMs": 150,
            "maxAttempts": 12,
            "cancelGracePeriodMs": 400,
            "backoff": {"initialMs": 20, "factor": 2.0, "maxMs": 200, "jitter": 0.2},
        });
        match self.api.put(&format!("/v1/queues/{QUEUE}"), &body).await {
            Answer::Told { status: 200 | 201, .. } => Ok(()),
            other => bail!("the queue could not be configured: {other:?}"),
        }
    }

    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    pub fn note_start(&self) {
        self.starts.fetch_add(1, Ordering::Relaxed);
    }

    pub fn starts(&self) -> u64 {
        self.starts.load(Ordering::Relaxed)
    }

    /// Hands in one task, and notes its id when it was told.
    pub async fn submit(&self, body: &Value) -> (Answer, Option<String>) {
        let answer = self.api.post("/v1/tasks", body).await;
        let allowed: &[u16] =
            if body["dedupKey"].is_string() { &[200, 201, 429, 503] } else { &[201, 429, 503] };
        self.facts.expect("a submit", &answer, allowed);
        let is_accepted = matches!(answer.status(), Some(200 | 201));
        let task_id = answer.body()["taskId"].as_str().filter(|_| is_accepted).map(str::to_string);
        self.note_submission(body, task_id.clone());
        (answer, task_id)
    }

    pub fn note_submission(&self, body: &Value, task_id: Option<String>) {
        let marker = body["payload"]["marker"].as_str().unwrap_or_default().to_string();
        self.facts.book().submissions.push(Submission { marker, body: body.clone(), task_id });
    }

    /// Sends a report once and notes what came back.
    pub async fn report(&self, story: &Story) -> Option<Told> {
        let sent_at = self.facts.now();
        let answer = self.api.post(&story.action.path(&story.lease_id), &story.body).await;
        let allowed: &[u16] = match (story.intent, story.action) {
            (Intent::Own, Action::Release) => &[200, 429, 503],
            (Intent::Own, _) => &[200, 409, 429, 503],
            (Intent::Conflicting, _) => &[409, 429, 503],
            (Intent::Forged, _) => &[400, 403, 404, 429, 503],
        };
        self.facts.expect(
            &format!("{:?} {:?} of {}", story.intent, story.action, story.task_id),
            &answer,
            allowed,
        );
        let told = Told::read(&answer);
        self.facts.book().reports.push(Report {
            lease_id: story.lease_id.clone(),
            task_id: story.task_id.clone(),
            action: story.action,
            body: story.body.clone(),
            intent: story.intent,
            sent_at,
            ended_at: self.facts.now(),
            told: told.clone(),
        });
        told
    }

    /// Sends a report until it is decided, as an honest worker must after a lost answer.
    pub async fn insist(&self, story: &Story) -> Option<Told> {
        let give_up_at = self.facts.now() + INSIST_FOR;
        while self.facts.now() < give_up_at {
            let told = self.report(story).await;
            if told.is_some() {
                return told;
            }
            tokio::time::sleep(RETRY_PAUSE).await;
        }
        None
    }

    /// Sends a heartbeat; false when the server says that the lease is gone.
    pub async fn beat(&self, lease_id: &str, worker_id: &str) -> bool {
        let sent_at = self.facts.now();
        let path = format!("/v1/leases/{lease_id}/heartbeat");
        let answer = self.api.post(&path, &json!({"workerId": worker_id, "progressPct": 50})).await;
        self.facts.expect("a heartbeat", &answer, &[200, 410, 429, 503]);
        let ended_at: At = self.facts.now();
        let status = answer.status();
        self.facts.book().beats.push(Beat { lease_id: lease_id.into(), sent_at, ended_at, status });
        status != Some(410)
    }
}

/// What a worker says about a lease.
#[derive(Clone)]
pub struct Story {
    pub lease_id: String,
    pub task_id: String,
    pub action: Action,
    pub body: Value,
    pub intent: Intent,
}
