//! Clients that submit, claim, complete and fail jobs all the time, each at one of several nodes, never retry, and count what
//! they see.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;

use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::PATIENCE;

const SUBMITTERS: usize = 2;
const WORKERS: usize = 4;
/// The most jobs that wait or run.
const MAX_OPEN: usize = 48;

pub(super) struct Load {
    shared: Arc<Shared>,
    thread: JoinHandle<()>,
}

struct Shared {
    client: reqwest::Client,
    is_stopping: AtomicBool,
    /// Closed with the stop.
    may_open: Semaphore,
    seen: Mutex<Seen>,
    progress: Condvar,
}

#[derive(Default)]
struct Seen {
    attempts: HashSet<String>,
    messages: HashSet<String>,
    completed: HashSet<String>,
}

impl Load {
    pub(super) fn start(urls: &[String]) -> Load {
        let shared = Arc::new(Shared {
            client: reqwest::Client::builder().no_proxy().build().unwrap(),
            is_stopping: AtomicBool::new(false),
            may_open: Semaphore::new(MAX_OPEN),
            seen: Mutex::default(),
            progress: Condvar::new(),
        });
        let (running, urls) = (shared.clone(), urls.to_vec());
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let mut clients = JoinSet::new();
                let url = |n: usize| urls[n % urls.len()].clone();
                for n in 0..SUBMITTERS {
                    clients.spawn(submit(running.clone(), url(n)));
                }
                for n in 0..WORKERS {
                    clients.spawn(work(running.clone(), url(n), format!("w{n}")));
                }
                while let Some(ended) = clients.join_next().await {
                    ended.unwrap();
                }
            });
        });
        Load { shared, thread }
    }

    /// Returns once so many more jobs have been completed.
    #[track_caller]
    pub(super) fn completes(&self, more: usize) {
        let seen = self.shared.seen.lock().unwrap();
        let target = seen.completed.len() + more;
        let waits = |seen: &mut Seen| seen.completed.len() < target && !self.thread.is_finished();
        let (_seen, timeout) = self.shared.progress.wait_timeout_while(seen, PATIENCE, waits).unwrap();
        assert!(!timeout.timed_out() && !self.thread.is_finished(), "the load makes no progress");
    }

    /// Lets the clients finish what they do. Panics if a request failed.
    pub(super) fn stop(self) {
        self.shared.is_stopping.store(true, Ordering::Relaxed);
        self.shared.may_open.close();
        self.thread.join().unwrap();
    }
}

impl Shared {
    fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Relaxed)
    }

    async fn post(&self, url: &str, path: &str, body: Value) -> Value {
        let response = self.client.post(format!("{url}{path}")).json(&body).send().await.unwrap();
        let (status, text) = (response.status(), response.text().await.unwrap());
        assert!(status.is_success(), "{path}: {status} {text}");
        serde_json::from_str(&text).unwrap()
    }
}

async fn submit(load: Arc<Shared>, url: String) {
    while let Ok(permit) = load.may_open.acquire().await {
        permit.forget();
        let backoff = json!({"initialMs": 10, "maxMs": 10});
        load.post(&url, "/v1/tasks", json!({"queue": "jobs", "payload": 1, "backoff": backoff})).await;
    }
}

async fn work(load: Arc<Shared>, url: String, worker: String) {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    for n in 0.. {
        if load.is_stopping() {
            break;
        }
        let ask = json!({"worker_id": worker, "streams": ["jobs"], "max_wait_ms": 100});
        let job = load.post(&url, "/internal/worker/claim", ask).await;
        if job["claimed"] == false {
            continue;
        }
        {
            let mut seen = load.seen.lock().unwrap();
            assert!(seen.attempts.insert(text(&job["attempt_id"])), "an attempt was claimed twice: {job}");
            assert!(seen.messages.insert(text(&job["message_id"])), "a message was claimed twice: {job}");
            assert!(
                !seen.completed.contains(job["job_id"].as_str().unwrap()),
                "claimed after its end: {job}"
            );
        }
        let mut report = json!({"worker_id": worker});
        for field in ["job_id", "attempt_id", "lease_token", "stream", "message_id"] {
            report[field] = job[field].clone();
        }
        if n % 5 == 0 && job["attempt"] == 1 {
            report["error"] = json!({"code": "E", "message": "not today", "retryable": true});
            let failed = load.post(&url, "/internal/worker/fail", report).await;
            assert_eq!((&failed["ack"], &failed["requeued"]), (&json!(true), &json!(true)), "{failed}");
            continue;
        }
        report["result"] = json!(1);
        let completed = load.post(&url, "/internal/worker/complete", report).await;
        assert_eq!((&completed["ok"], &completed["ack"]), (&json!(true), &json!(true)), "{completed}");
        let mut seen = load.seen.lock().unwrap();
        assert!(seen.completed.insert(text(&job["job_id"])), "completed twice: {job}");
        load.may_open.add_permits(1);
        load.progress.notify_all();
    }
}
