//! The fixture of most SDK tests: a server, a client, workers that must end well, and the outcomes of their attempts.

use std::sync::{Arc, Mutex};

use lessor_sdk::{Client, Error, Outcome, Submit, Task, TaskInfo, Worker};
use serde_json::Value;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use crate::support::Server;
use crate::support::proxy::{Action, PATIENCE, Proxy, Request};

pub(crate) const QUEUE: &str = "q";

pub(crate) struct Fixture {
    pub server: Server,
    pub client: Client,
    pub ended: Ended,
}

impl Fixture {
    pub(crate) fn start() -> Fixture {
        Fixture::with(Server::start())
    }

    /// A server that pushes to targets on this machine.
    pub(crate) fn start_pushing() -> Fixture {
        let directory = tempfile::tempdir().unwrap();
        Fixture::with(Server::start_in(directory, "127.0.0.1:0", &["--allow-private-push-targets"]))
    }

    fn with(server: Server) -> Fixture {
        let client = Client::new(server.url()).unwrap();
        Fixture { server, client, ended: Ended::default() }
    }

    pub(crate) async fn proxy(
        &self,
        rule: impl Fn(&Request, usize) -> Action + Send + Sync + 'static,
    ) -> Arc<Proxy> {
        Arc::new(Proxy::start(self.server.address(), rule).await)
    }

    /// A proxy that only writes down.
    pub(crate) async fn witness(&self) -> Arc<Proxy> {
        self.proxy(|_, _| Action::Pass).await
    }

    /// A worker of this server that records how its attempts end.
    pub(crate) fn worker(&self) -> Worker {
        let ended = self.ended.clone();
        let worker = Worker::new().url(self.server.url()).worker_id("w").without_signals();
        worker.on_outcome(move |task, outcome| ended.record(task, outcome))
    }

    pub(crate) async fn submit(&self, payload: Value) -> String {
        let task = Submit::new(QUEUE, &payload).unwrap();
        self.client.submit(task).await.unwrap().task_id
    }

    /// Sets the queue's leases and the like.
    pub(crate) async fn configure(&self, settings: Value) {
        self.configure_queue(QUEUE, settings).await;
    }

    pub(crate) async fn configure_queue(&self, queue: &str, settings: Value) {
        let url = format!("{}/v1/queues/{queue}", self.server.url());
        ask(reqwest::Client::new().put(url).json(&settings)).await;
    }

    /// Returns once a worker's poll has reached the server.
    pub(crate) async fn until_it_polls(&self) {
        let workers = format!("{}/v1/workers", self.server.url());
        while !reqwest::get(&workers).await.unwrap().text().await.unwrap().contains("\"w\"") {}
    }

    /// Calls the server directly, past the SDK and past any proxy.
    pub(crate) fn direct_calls(&self) -> DirectCalls {
        DirectCalls { url: self.server.url() }
    }

    pub(crate) async fn final_task(&self, task_id: &str) -> TaskInfo {
        let task = self.client.wait(task_id, PATIENCE).await.unwrap();
        assert!(task.state.is_final(), "{task:?}");
        task
    }

    /// The result of a task that must become COMPLETED.
    pub(crate) async fn result(&self, task_id: &str) -> Value {
        let task = self.final_task(task_id).await;
        let result = task.result.as_ref().unwrap_or_else(|| panic!("{task:?}"));
        result.read().unwrap()
    }

    /// The task's records, heartbeats left out.
    pub(crate) async fn kinds(&self, task_id: &str) -> Vec<String> {
        let events = self.client.history(task_id).await.unwrap();
        events.into_iter().map(|event| event.kind).filter(|kind| kind != "LeaseExtended").collect()
    }
}

#[derive(Clone)]
pub(crate) struct DirectCalls {
    url: String,
}

impl DirectCalls {
    pub(crate) async fn send(&self, task: &Task, call: &str, body: Value) -> Value {
        let url = format!("{}/v1/leases/{}/{call}", self.url, task.lease_id());
        ask(reqwest::Client::new().post(url).json(&body)).await
    }
}

async fn ask(request: reqwest::RequestBuilder) -> Value {
    let response = request.send().await.unwrap();
    let (status, text) = (response.status(), response.text().await.unwrap());
    assert!(status.is_success(), "{status} {text}");
    serde_json::from_str(&text).unwrap()
}

/// A worker that runs until the test stops it.
pub(crate) struct Working {
    stopper: lessor_sdk::Stopper,
    running: JoinHandle<Result<(), Error>>,
}

impl Working {
    pub(crate) fn start(worker: Worker) -> Working {
        Working { stopper: worker.stopper(), running: tokio::spawn(worker.run()) }
    }

    /// It must end, and well.
    pub(crate) async fn end(self) {
        self.stopper.stop();
        tokio::time::timeout(PATIENCE, self.running).await.expect("it did not end").unwrap().unwrap();
    }
}

/// How attempts ended, in order.
#[derive(Clone, Default)]
pub(crate) struct Ended {
    recorded: Arc<(Mutex<Vec<End>>, Notify)>,
}

#[derive(Clone)]
pub(crate) struct End {
    pub task: Task,
    pub verdict: &'static str,
    /// The code of the problem that was the answer.
    pub code: Option<String>,
}

impl Ended {
    pub(crate) fn record(&self, task: &Task, outcome: &Outcome) {
        let (verdict, error) = match outcome {
            Outcome::Committed(_) => ("COMMITTED", None),
            Outcome::Cancelled => ("CANCELLED", None),
            Outcome::Rejected(error) => ("REJECTED", Some(error)),
            Outcome::Lost => ("LOST", None),
            Outcome::Unknown(error) => ("UNKNOWN", Some(error)),
            Outcome::Released(_) => ("RELEASED", None),
        };
        let code = error.and_then(Error::problem).map(|problem| problem.code.clone());
        self.recorded.0.lock().unwrap().push(End { task: task.clone(), verdict, code });
        self.recorded.1.notify_waiters();
    }

    /// Waits until so many have ended.
    pub(crate) async fn wait(&self, count: usize) -> Vec<End> {
        let enough = async {
            loop {
                let notified = self.recorded.1.notified();
                let ends = self.recorded.0.lock().unwrap().clone();
                if ends.len() >= count {
                    return ends;
                }
                notified.await;
            }
        };
        tokio::time::timeout(PATIENCE, enough).await.expect("too few attempts ended")
    }

    pub(crate) async fn verdicts(&self, count: usize) -> Vec<&'static str> {
        self.wait(count).await.iter().map(|end| end.verdict).collect()
    }
}
