//! The push target of the suite: a small server with one path and one mailbox for each queue.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use bytes::Bytes;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::Finding;
use crate::answer::{Answer, PUSHED};

/// How long to wait for an expected push.
const PUSH_WAIT: Duration = Duration::from_secs(10);
/// More than any check leaves unread.
const MAILBOX_SIZE: usize = 64;

type Boxes = Arc<Mutex<Mailboxes>>;
type Mailboxes = HashMap<String, mpsc::Sender<Answer>>;

pub(crate) struct Target {
    url: String,
    boxes: Boxes,
}

/// The pushes of one queue, in order.
pub(crate) struct Mailbox {
    pub url: String,
    pushes: mpsc::Receiver<Answer>,
}

impl Target {
    /// Listens for as long as the runtime lives.
    pub(crate) async fn listen(address: &str, url: Option<&str>) -> io::Result<Target> {
        let listener = TcpListener::bind(address).await?;
        let url = match url {
            Some(url) => url.trim_end_matches('/').to_owned(),
            None => format!("http://{}", listener.local_addr()?),
        };
        let boxes = Boxes::default();
        let router = Router::new().route("/{queue}", post(take)).with_state(boxes.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        Ok(Target { url, boxes })
    }

    pub(crate) fn mailbox(&self, queue: &str) -> Mailbox {
        let (sender, pushes) = mpsc::channel(MAILBOX_SIZE);
        lock(&self.boxes).insert(queue.to_owned(), sender);
        Mailbox { url: format!("{}/{queue}", self.url), pushes }
    }

    /// The queues that have a mailbox.
    pub(crate) fn queues(&self) -> Vec<String> {
        lock(&self.boxes).keys().cloned().collect()
    }
}

impl Mailbox {
    /// The next push; fails if none arrives in time.
    pub(crate) async fn next(&mut self) -> Result<Answer, Finding> {
        let missing = || {
            let seconds = PUSH_WAIT.as_secs();
            let hint = "can the coordinator reach that? See --push-listen and --push-url";
            Finding::broken(format!("no task was pushed to {} within {seconds} s; {hint}", self.url))
        };
        timeout(PUSH_WAIT, self.pushes.recv()).await.ok().flatten().ok_or_else(missing)
    }
}

/// Accepts a push to a queue with a mailbox.
async fn take(
    State(boxes): State<Boxes>,
    Path(queue): Path<String>,
    headers: HeaderMap,
    body: Bytes,
) -> StatusCode {
    let sender = lock(&boxes).get(&queue).cloned();
    let raw = String::from_utf8_lossy(&body).into_owned();
    let pushed = Answer {
        call: format!("the envelope for {queue}"),
        status: PUSHED,
        headers,
        body: serde_json::from_str(&raw).unwrap_or_default(),
        raw,
    };
    match sender.map(|sender| sender.try_send(pushed).is_ok()) {
        Some(true) => StatusCode::ACCEPTED,
        Some(false) => StatusCode::TOO_MANY_REQUESTS,
        None => StatusCode::NOT_FOUND,
    }
}

/// A check that panicked with the lock held leaves the map intact.
fn lock(boxes: &Boxes) -> MutexGuard<'_, Mailboxes> {
    boxes.lock().unwrap_or_else(PoisonError::into_inner)
}
