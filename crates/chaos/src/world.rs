//! The state that all clients and workers of a run share: connections, the recorder, and the stop signal.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Result, bail};
use contract_clients::HttpRequest;
use serde_json::{Value, json};

use crate::api::{Answer, Api};
use crate::contract::Contract;
use crate::nodes::Nodes;
use crate::plan::Plan;
use crate::recorder::{Recorder, Sent, Submission};
use crate::rpc::{self, Rpc};
use crate::target::Target;

pub(crate) const QUEUE: &str = "chaos";
/// Short, so that leases run out all the time.
pub(crate) const LEASE: Duration = Duration::from_millis(500);
/// The attempts of a task that names no number.
pub(crate) const MAX_ATTEMPTS: u32 = 12;
/// Pause after a call that was not served, before it is made again.
pub(crate) const RETRY_PAUSE: Duration = Duration::from_millis(20);
/// Tasks that may be out at the target at once.
const PUSH_CONCURRENCY: u32 = 20;

pub(crate) struct World {
    pub plan: Plan,
    /// The contracts that workers of this run use.
    pub contracts: &'static [Contract],
    pub nodes: Arc<Nodes>,
    pub api: Api,
    /// Where tasks are pushed to, if they are.
    pub target: Option<Target>,
    pub recorder: Arc<Recorder>,
    stop: AtomicBool,
    /// How often the server was started: answers of one start may rest on what it remembers.
    starts: AtomicU64,
}

impl World {
    pub(crate) async fn new(plan: Plan, nodes: Nodes, contracts: &'static [Contract]) -> Result<Self> {
        let target = Ipv4Addr::LOCALHOST;
        Self::with_target_on(target, plan, nodes, contracts).await
    }

    /// With a target that the servers reach at this address.
    pub(crate) async fn with_target_on(
        address: Ipv4Addr,
        plan: Plan,
        nodes: Nodes,
        contracts: &'static [Contract],
    ) -> Result<Self> {
        let (recorder, nodes) = (Arc::new(Recorder::new()), Arc::new(nodes));
        let api = Api::new(nodes.clone(), Some(recorder.clone()));
        let target = if contracts.contains(&Contract::Callback) {
            Some(Target::open(address, QUEUE, recorder.clone(), plan.rng("target")).await?)
        } else {
            None
        };
        let (stop, starts) = (AtomicBool::new(false), AtomicU64::new(1));
        Ok(Self { plan, contracts, nodes, api, target, recorder, stop, starts })
    }

    /// Whether clients and workers insist after a lost answer or a refusal. Those of a cluster need not.
    pub(crate) fn has_retries(&self) -> bool {
        !self.nodes.is_cluster()
    }

    pub(crate) async fn configure_queue(&self, lease: Duration) -> Result<()> {
        let mut body = json!({
            "leaseMs": lease.as_millis() as u64,
            "heartbeatIntervalMs": 150,
            "maxAttempts": MAX_ATTEMPTS,
            "cancelGracePeriodMs": 400,
            "backoff": {"initialMs": 20, "factor": 2.0, "maxMs": 200, "jitter": 0.2},
        });
        if let Some(target) = &self.target {
            body["push"] = json!({"url": target.url(), "concurrency": PUSH_CONCURRENCY});
        }
        match self.api.put(&format!("/v1/queues/{QUEUE}"), &body).await {
            Answer::Response { status: 200 | 201, .. } => Ok(()),
            other => bail!("the queue could not be configured: {other:?}"),
        }
    }

    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    pub(crate) fn note_start(&self) {
        self.starts.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn starts(&self) -> u64 {
        self.starts.load(Ordering::Relaxed)
    }

    /// Submits one task, and records its id when the answer has one.
    pub(crate) async fn submit(&self, body: &Value) -> (Answer, Option<String>) {
        let answer = self.api.post("/v1/tasks", body).await;
        let allowed: &[u16] =
            if body["dedupKey"].is_string() { &[200, 201, 429, 503] } else { &[201, 429, 503] };
        self.recorder.expect("a submit", &answer, allowed);
        let is_accepted = matches!(answer.status(), Some(200 | 201));
        let task_id = answer.body()["taskId"].as_str().filter(|_| is_accepted).map(str::to_string);
        self.note_submission(body, task_id.clone());
        (answer, task_id)
    }

    pub(crate) fn note_submission(&self, body: &Value, task_id: Option<String>) {
        let marker = body["payload"]["marker"].as_str().unwrap_or_default().to_string();
        self.recorder.observations().submissions.push(Submission { marker, body: body.clone(), task_id });
    }

    /// A call of a worker.
    pub(crate) async fn send_for(&self, contract: Contract, request: HttpRequest) -> Answer {
        let answer = self.api.send(request).await;
        if matches!(answer, Answer::Lost) {
            self.recorder.note_lost(contract);
        }
        answer
    }

    /// A call of a worker over gRPC, noted down when it is over. A call whose node was taken down is made again, elsewhere.
    pub(crate) async fn call<F, A>(
        &self,
        contract: Contract,
        request: rpc::RpcRequest,
        own_wait: Duration,
        call: F,
    ) -> rpc::Answer
    where
        F: Fn(rpc::Client) -> A,
        A: Future<Output = Result<rpc::Answer, tonic::Status>>,
    {
        let mut sent = Sent::new(self.recorder.now(), own_wait);
        loop {
            let visit = self.nodes.visit();
            let sent_at = self.recorder.now();
            let answer = visit.unless_down(call(visit.rpc())).await;
            let (answer, status) = match answer {
                Some(Ok(answer)) => (answer, None),
                Some(Err(status)) => (rpc::Answer::of_status(&status), Some(status)),
                None => (rpc::Answer::Lost, None),
            };
            let ended_at = self.recorder.now();
            if matches!(answer, rpc::Answer::Lost) {
                self.recorder.note_lost(contract);
            }
            self.recorder.observations().rpcs.push(Rpc {
                contract,
                sent_at,
                ended_at,
                request: request.clone(),
                answer: answer.clone(),
            });
            if matches!(answer, rpc::Answer::Lost) && visit.was_taken_down() && sent.may_repeat() {
                continue;
            }
            if self.nodes.is_cluster() {
                let failure = answer.is_open().then(|| format!("{} was answered {status:?}", request.name()));
                self.recorder.note_sent(sent, &visit, failure);
            }
            return answer;
        }
    }
}
