//! A lease that a worker holds, and what it says of it through whichever contract.

use std::sync::Arc;

use authority::command::ReleaseLease;
use authority::event::ReleaseCause;
use authority::{LeaseRef, Position, Scope};
use serde_json::{Value, json};

use crate::grpc;
use crate::support::callback::HOLDER;
use crate::support::{Served, Told, send};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Contract {
    Native,
    Claim,
    Callback,
    Grpc,
    Stream,
}

pub(crate) const CONTRACTS: [Contract; 5] =
    [Contract::Native, Contract::Claim, Contract::Callback, Contract::Grpc, Contract::Stream];

/// What a worker says.
#[derive(Clone, Debug)]
pub(crate) enum Say {
    Beat,
    Complete(Value),
    /// A failure, and whether another attempt may help.
    Fail(bool),
}

/// A lease as its worker knows it; a hostile one changes parts of it.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    pub task: String,
    /// What the report calls its attempt.
    pub attempt: u32,
    pub lease: u64,
    /// Whom the lease was granted to.
    pub holder: &'static str,
    /// Who says it.
    pub worker: String,
    /// The lease id, or the lease token.
    pub lease_id: String,
    /// The task token.
    pub token: String,
    /// A scope other than its own, to say it in.
    pub scope: Option<(&'static str, &'static str)>,
}

impl Contract {
    /// Who holds leases in this contract: a worker, or the queue that pushes to it.
    pub(crate) fn holder(self) -> &'static str {
        if self == Contract::Callback { HOLDER } else { "w" }
    }

    /// Leases the next task of the queue `q`.
    pub(crate) async fn lease(self, served: &Served) -> Held {
        let (holder, text) = (self.holder(), |value: &Value| value.as_str().unwrap_or_default().to_owned());
        let number = |value: &Value| value.as_u64().unwrap();
        match self {
            Contract::Native => {
                let lease = served.lease(holder, "q").await;
                let (attempt, number) = (number(&lease["attempt"]), number(&lease["fencingToken"]));
                Held::new(self, text(&lease["taskId"]), attempt, number, text(&lease["leaseId"]))
            }
            Contract::Claim => {
                let job = served.claim(holder, &["q"]).await;
                let (attempt, number) = (number(&job["attempt"]), number(&job["fencing_token"]));
                Held::new(self, text(&job["job_id"]), attempt, number, text(&job["lease_token"]))
            }
            Contract::Callback => {
                let pushed = served.push_next("q").await;
                let number = number(&pushed.claims()["lease"]);
                let held = Held::new(self, pushed.task.clone(), pushed.attempt(), number, String::new());
                Held { token: pushed.token, worker: "worker-1".to_owned(), ..held }
            }
            Contract::Grpc | Contract::Stream => {
                let task = match self {
                    Contract::Grpc => grpc::lease(served, holder).await,
                    _ => grpc::lease_by_stream(served, holder).await,
                };
                Held::new(self, task.task_id, task.attempt.into(), task.fencing_token, task.lease_id)
            }
        }
    }

    /// Says it, and gives the answer in short.
    pub(crate) async fn say(self, served: &Served, held: &Held, say: Say) -> String {
        match self {
            Contract::Native => short(&native(served, held, say).await, "verdict"),
            Contract::Claim => {
                let told = claim(served, held, say).await;
                let acknowledged = told.status != 200 && told.body["ack"] == true;
                format!("{}{}", short(&told, "verdict"), if acknowledged { ", acknowledged" } else { "" })
            }
            Contract::Callback => short(&callback(served, held, say).await, "none"),
            Contract::Grpc => grpc::say(served, held, say).await,
            Contract::Stream => grpc::say_by_stream(served, held, say).await,
        }
    }
}

impl Held {
    fn new(contract: Contract, task: String, attempt: u64, lease: u64, lease_id: String) -> Held {
        let holder = contract.holder();
        let (worker, token) = (holder.to_owned(), String::new());
        Held { task, attempt: attempt as u32, lease, holder, worker, lease_id, token, scope: None }
    }

    /// The same, by a proof that was tampered with.
    pub(crate) fn forged(&self, tamper: fn(&str) -> String) -> Held {
        Held { lease_id: tamper(&self.lease_id), token: tamper(&self.token), ..self.clone() }
    }

    /// The lease is given back behind the worker's back.
    pub(crate) async fn release(&self, served: &Served) {
        let lease = LeaseRef {
            scope: Scope { tenant: "default".into(), workspace: "default".into() },
            worker: Arc::from(self.holder),
            task: server::parse_task_id(&self.task).unwrap(),
            attempt: self.attempt,
            fencing_token: Position(self.lease),
        };
        served.running.handle.release(ReleaseLease { lease, cause: ReleaseCause::Worker }).await.unwrap();
    }
}

async fn post(served: &Served, held: &Held, path: &str, body: Value) -> Told {
    let mut call = served.request("POST", path).json(&body);
    if let Some((header, name)) = held.scope {
        call = call.header(header, name);
    }
    if !held.token.is_empty() {
        call = call.bearer_auth(&held.token);
    }
    send(call).await
}

async fn native(served: &Served, held: &Held, say: Say) -> Told {
    let mut body = json!({"workerId": held.worker, "taskId": held.task});
    let what = match say {
        Say::Beat => "heartbeat",
        Say::Complete(result) => {
            body["result"] = result;
            "complete"
        }
        Say::Fail(retryable) => {
            body["reason"] = json!("bad luck");
            body["code"] = json!("E1");
            body["retryable"] = json!(retryable);
            "fail"
        }
    };
    let path = format!("/v1/leases/{}/{what}", held.lease_id);
    post(served, held, &path, body).await
}

async fn claim(served: &Served, held: &Held, say: Say) -> Told {
    let mut body = json!({"worker_id": held.worker, "job_id": held.task, "lease_token": held.lease_id});
    let what = match say {
        Say::Beat => "heartbeat",
        Say::Complete(result) => {
            body["result"] = result;
            "complete"
        }
        Say::Fail(retryable) => {
            body["error"] = json!({"code": "E1", "message": "bad luck", "retryable": retryable});
            "fail"
        }
    };
    if what != "heartbeat" {
        body["attempt_id"] = json!(format!("{}:{}", held.task, held.attempt));
    }
    post(served, held, &format!("/internal/worker/{what}"), body).await
}

async fn callback(served: &Served, held: &Held, say: Say) -> Told {
    let mut body = json!({"workerId": held.worker, "attempt": held.attempt});
    let what = match say {
        Say::Beat => "heartbeat",
        Say::Complete(result) => {
            body["outcome"] = json!("SUCCEEDED");
            body["output"] = result;
            "completed"
        }
        Say::Fail(retryable) => {
            let error =
                json!({"category": "USER_CODE", "code": "E1", "message": "bad luck", "retryable": retryable});
            body["outcome"] = json!("FAILED");
            body["error"] = error;
            "completed"
        }
    };
    post(served, held, &format!("/v1/tasks/{}/{what}", held.task), body).await
}

/// An answer over HTTP in short: COMMITTED or OK, or the verdict where there is one, the status and the code.
fn short(told: &Told, verdict: &str) -> String {
    let is_report = ["finalState", "verdict", "ack"].iter().any(|field| !told.body[*field].is_null());
    if told.status == 200 {
        return if is_report { "COMMITTED" } else { "OK" }.to_owned();
    }
    let code = told.body["code"].as_str().or(told.body["error"].as_str()).unwrap_or("?");
    let verdict = told.body[verdict].as_str().map(|verdict| format!("{verdict} ")).unwrap_or_default();
    format!("{verdict}{} {code}", told.status)
}
