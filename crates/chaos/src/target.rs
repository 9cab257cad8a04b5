//! The target that tasks of a queue are pushed to: a server of its own, which takes each dispatch once and hands it to
//! the next worker that asks. Now and then it has no room, or does not like a task.

use std::collections::{HashMap, VecDeque};
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use anyhow::{Context, Result};
use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use wire::TaskEnvelope;

use crate::recorder::{At, Recorder};

const PATH: &str = "/work";
/// Of so many dispatches one finds no room; rarely, because the target is then left alone for a while.
const NO_ROOM_EVERY: u32 = 100;
/// Of so many dispatches one is not acceptable.
const NOT_ACCEPTABLE_EVERY: u32 = 30;
const DISPATCH_ID: &str = "lessor-dispatch-id";

/// A task that was pushed.
#[derive(Clone, Debug)]
pub struct Dispatch {
    pub queue: String,
    pub arrived_at: At,
    pub envelope: TaskEnvelope,
    pub answer: StatusCode,
}

pub(crate) struct Target {
    url: String,
    state: Arc<TargetState>,
    server: JoinHandle<()>,
}

struct TargetState {
    queue: String,
    recorder: Arc<Recorder>,
    inbox: Mutex<Inbox>,
    arrived: Notify,
}

struct Inbox {
    waiting: VecDeque<TaskEnvelope>,
    /// Every dispatch that was taken, by its id, with the attempt that it is of.
    taken: HashMap<String, (String, u32)>,
    rng: fastrand::Rng,
}

impl Target {
    pub(crate) async fn open(
        address: Ipv4Addr,
        queue: &str,
        recorder: Arc<Recorder>,
        rng: fastrand::Rng,
    ) -> Result<Target> {
        let listener = TcpListener::bind((address, 0)).await.context("no port for the target")?;
        let url = format!("http://{}{PATH}", listener.local_addr()?);
        let inbox = Mutex::new(Inbox { waiting: VecDeque::new(), taken: HashMap::new(), rng });
        let arrived = Notify::new();
        let state = Arc::new(TargetState { queue: queue.to_owned(), recorder, inbox, arrived });
        let router = Router::new().route(PATH, post(take_in)).with_state(state.clone());
        let server = tokio::spawn(async move {
            // It serves until it is dropped; an error would show as a run in which nothing is pushed.
            let _ = axum::serve(listener, router).await;
        });
        Ok(Target { url, state, server })
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// The oldest dispatches that nobody took, waiting for the first of them.
    pub(crate) async fn take(&self, max: usize, wait: Duration) -> Vec<TaskEnvelope> {
        let some = async {
            loop {
                let arrived = self.state.arrived.notified();
                let taken = self.take_now(max);
                if !taken.is_empty() {
                    return taken;
                }
                arrived.await;
            }
        };
        tokio::time::timeout(wait, some).await.unwrap_or_default()
    }

    fn take_now(&self, max: usize) -> Vec<TaskEnvelope> {
        let mut inbox = self.state.inbox();
        let count = max.min(inbox.waiting.len());
        let taken = inbox.waiting.drain(..count).collect();
        if !inbox.waiting.is_empty() {
            self.state.arrived.notify_one();
        }
        taken
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl TargetState {
    fn inbox(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

async fn take_in(State(state): State<Arc<TargetState>>, headers: HeaderMap, body: String) -> StatusCode {
    let arrived_at = state.recorder.now();
    let envelope: TaskEnvelope = match serde_json::from_str(&body) {
        Ok(envelope) => envelope,
        Err(error) => {
            state.recorder.record_unexpected(format!("a dispatch cannot be read ({error}): {body}"));
            return StatusCode::UNPROCESSABLE_ENTITY;
        }
    };
    let id = headers.get(DISPATCH_ID).and_then(|id| id.to_str().ok());
    if id != Some(&envelope.dispatch_id) {
        state
            .recorder
            .record_unexpected(format!("the dispatch {} has the header {id:?}", envelope.dispatch_id));
    }
    let attempt = (envelope.task_id.clone(), envelope.attempt);
    let mut inbox = state.inbox();
    let known = inbox.taken.get(&envelope.dispatch_id).cloned();
    let answer = match known {
        // It came again, because the server did not hear that it was taken.
        Some(known) if known == attempt => StatusCode::ACCEPTED,
        Some(known) => {
            let id = &envelope.dispatch_id;
            state
                .recorder
                .record_unexpected(format!("the dispatch {id} was of {known:?} and is of {attempt:?}"));
            StatusCode::ACCEPTED
        }
        None if inbox.rng.u32(..NO_ROOM_EVERY) == 0 => StatusCode::SERVICE_UNAVAILABLE,
        None if inbox.rng.u32(..NOT_ACCEPTABLE_EVERY) == 0 => StatusCode::UNPROCESSABLE_ENTITY,
        None => {
            inbox.taken.insert(envelope.dispatch_id.clone(), attempt);
            inbox.waiting.push_back(envelope.clone());
            state.arrived.notify_one();
            StatusCode::ACCEPTED
        }
    };
    state.recorder.observations().dispatches.push(Dispatch {
        queue: state.queue.clone(),
        arrived_at,
        envelope,
        answer,
    });
    answer
}
