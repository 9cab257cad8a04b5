//! Support for the tests of push targets: a server that leases tasks as push dispatch does, and hands out their envelopes.

use std::sync::Arc;
use std::time::Duration;

use authority::Scope;
use authority::command::LeaseTasks;
use coordinator::Running;
use lessor_sdk::{Accept, Client, Submit, Target, TargetOptions, Task, TaskEnvelope, TaskInfo};
use serde_json::Value;
use server::{App, Limits};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::fixture::{Ended, QUEUE};
use crate::support::proxy::{Action, PATIENCE, Proxy, Request};

const HOLDER: &str = "push:q";

pub(crate) struct Pushing {
    pub client: Client,
    pub ended: Ended,
    pub proxy: Proxy,
    app: App,
    running: Running,
    /// Who serves, until it is dropped with the runtime.
    _serving: JoinHandle<server::Drained>,
    _directory: TempDir,
}

impl Pushing {
    /// A server, and a proxy with a rule that callbacks go through.
    pub(crate) async fn start(rule: impl Fn(&Request, usize) -> Action + Send + Sync + 'static) -> Pushing {
        let directory = tempfile::tempdir().unwrap();
        let storage = ledger::memory::MemoryStorage::default().open();
        let start = || coordinator::start(storage, coordinator::Options::default());
        let running = tokio::task::spawn_blocking(start).await.unwrap().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let app = App::new(running.handle.clone(), [7; 32]);
        let serving = tokio::spawn(server::serve_with(
            listener,
            app.clone(),
            Limits::default(),
            std::future::pending(),
        ));
        let client = Client::new(format!("http://{address}")).unwrap();
        let proxy = Proxy::start(address, rule).await;
        let ended = Ended::default();
        Pushing { client, ended, proxy, app, running, _serving: serving, _directory: directory }
    }

    pub(crate) async fn witness() -> Pushing {
        Pushing::start(|_, _| Action::Pass).await
    }

    /// Often and short, so that the answer of a heartbeat comes soon.
    pub(crate) async fn configure(&self, settings: Value) {
        let url = format!("{}/v1/queues/{QUEUE}", self.url());
        let response = reqwest::Client::new().put(url).json(&settings).send().await.unwrap();
        assert!(response.status().is_success());
    }

    pub(crate) fn url(&self) -> String {
        self.proxy.server_url()
    }

    pub(crate) async fn submit(&self, payload: Value) -> String {
        self.client.submit(Submit::new(QUEUE, &payload).unwrap()).await.unwrap().task_id
    }

    /// The envelope of the next task, as it is sent to a target; it calls back through the proxy.
    pub(crate) async fn envelope(&self) -> TaskEnvelope {
        let command = LeaseTasks {
            scope: Scope { tenant: "default".into(), workspace: "default".into() },
            worker: HOLDER.into(),
            session: None,
            queues: vec![QUEUE.into()],
            properties: Arc::default(),
            max_tasks: 1,
            request: None,
            contract: authority::Contract::Callbacks,
        };
        let grants = self.running.handle.lease(command, Duration::from_secs(30)).await.unwrap();
        let dispatch_id = format!("d_{}_{}", grants[0].task, grants[0].attempt);
        let envelope = server::task_envelope(&self.app, &grants[0], &self.proxy.url).await.unwrap();
        TaskEnvelope { dispatch_id, ..envelope }
    }

    /// Sends the next task to the target.
    pub(crate) async fn push(&self, target: &Target) {
        let envelope = self.envelope().await;
        assert_eq!(accept(target, &envelope), Accept::Accepted);
    }

    /// A target that records how its attempts end.
    pub(crate) fn target<F>(&self, handler: impl Fn(Task) -> F + Send + Sync + 'static) -> TargetOptions
    where
        F: Future<Output = Result<Value, lessor_sdk::Failure>> + Send + 'static,
    {
        let ended = self.ended.clone();
        let options = Target::with(handler).worker_id("target-1").without_signals();
        options.on_outcome(move |task, outcome| ended.record(task, outcome))
    }

    pub(crate) async fn final_task(&self, task_id: &str) -> TaskInfo {
        let task = self.client.wait(task_id, PATIENCE).await.unwrap();
        assert!(task.state.is_final(), "{task:?}");
        task
    }

    /// The task's records, heartbeats left out.
    pub(crate) async fn kinds(&self, task_id: &str) -> Vec<String> {
        let events = self.client.history(task_id).await.unwrap();
        events.into_iter().map(|event| event.kind).filter(|kind| kind != "LeaseExtended").collect()
    }

    /// What was called, in order, heartbeats left out.
    pub(crate) fn calls(&self) -> Vec<String> {
        let calls = self.proxy.exchanges().into_iter().map(|exchange| exchange.request.call().to_owned());
        calls.filter(|call| call != "heartbeat").collect()
    }

    /// The bodies of one kind of call, in order.
    pub(crate) fn bodies(&self, call: &str) -> Vec<Vec<u8>> {
        let exchanges = self.proxy.exchanges().into_iter().filter(|exchange| exchange.request.call() == call);
        exchanges.map(|exchange| exchange.request.body).collect()
    }

    pub(crate) fn last_report(&self) -> Value {
        serde_json::from_slice(self.bodies("completed").last().unwrap()).unwrap()
    }
}

pub(crate) fn accept(target: &Target, envelope: &TaskEnvelope) -> Accept {
    target.accept([("content-type", "application/json")], &serde_json::to_vec(envelope).unwrap())
}
