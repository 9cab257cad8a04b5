//! Workers that tasks are pushed to: their envelopes, their calls, and tokens that only an insider could make.

use std::sync::Arc;
use std::time::Duration;

use authority::command::{LeaseTasks, ReleaseAnswer, ReleaseLease};
use authority::event::ReleaseCause;
use authority::{LeaseRef, Position, Scope, TaskState};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit, Mac};
use serde_json::{Value, json};
use sha2::Sha256;

use super::bad::Bad;
use super::{KEY, Served, Told, send};

/// Who holds the lease of a task that was pushed.
pub(crate) const HOLDER: &str = "push:q";

/// A task that was pushed to a worker.
pub(crate) struct Pushed {
    pub envelope: Value,
    pub task: String,
    pub token: String,
}

impl Served {
    /// Submits a task and pushes it.
    pub(crate) async fn push(&self, queue: &str) -> Pushed {
        self.submit(queue).await;
        self.push_next(queue).await
    }

    /// Pushes the next task of a queue, as soon as there is one.
    pub(crate) async fn push_next(&self, queue: &str) -> Pushed {
        let command = LeaseTasks {
            scope: Scope { tenant: "default".into(), workspace: "default".into() },
            worker: HOLDER.into(),
            session: None,
            queues: vec![queue.into()],
            properties: Arc::default(),
            max_tasks: 1,
            request: None,
            contract: authority::Contract::Callbacks,
        };
        let grants = self.running.handle.lease(command, Duration::from_secs(30)).await.unwrap();
        let url = format!("http://{}", self.address);
        let mut envelope = server::task_envelope(&self.app, &grants[0], &url).await.unwrap();
        envelope.dispatch_id = "d_1".to_owned();
        let envelope = serde_json::to_value(envelope).unwrap();
        let text = |field: &str| envelope[field].as_str().unwrap().to_owned();
        Pushed { task: text("taskId"), token: text("taskToken"), envelope }
    }

    /// The holder gives the lease of a task that was pushed back.
    pub(crate) async fn give_back(&self, pushed: &Pushed) {
        let claims = pushed.claims();
        let lease = LeaseRef {
            scope: Scope { tenant: "default".into(), workspace: "default".into() },
            worker: HOLDER.into(),
            task: server::parse_task_id(&pushed.task).unwrap(),
            attempt: pushed.attempt() as u32,
            fencing_token: Position(claims["lease"].as_u64().unwrap()),
        };
        let release = ReleaseLease { lease, cause: ReleaseCause::Worker };
        let over = self.running.handle.release(release).await.unwrap();
        assert_eq!(over, ReleaseAnswer::Over(TaskState::Waiting));
    }

    /// Calls back about a task that was pushed, with its token.
    pub(crate) async fn call(&self, pushed: &Pushed, what: &str, body: Value) -> Told {
        self.call_with(&pushed.task, &pushed.token, what, body).await
    }

    pub(crate) async fn call_with(&self, task: &str, token: &str, what: &str, body: Value) -> Told {
        let call = self.request("POST", &format!("/v1/tasks/{task}/{what}")).bearer_auth(token);
        send(call.json(&body)).await
    }
}

impl Pushed {
    pub(crate) fn attempt(&self) -> u64 {
        self.envelope["attempt"].as_u64().unwrap()
    }

    pub(crate) fn started(&self) -> Value {
        json!({"attempt": self.attempt(), "workerId": "worker-1", "startedAt": "2025-01-15T10:00:00Z"})
    }

    pub(crate) fn beat(&self) -> Value {
        json!({"attempt": self.attempt(), "workerId": "worker-1"})
    }

    pub(crate) fn succeeded(&self, output: Value) -> Value {
        json!({"attempt": self.attempt(), "workerId": "worker-1", "outcome": "SUCCEEDED", "output": output})
    }

    pub(crate) fn failed(&self, category: &str, retryable: Option<bool>) -> Value {
        let mut error = json!({"category": category, "message": "KeyError: 'missing_column'"});
        if let Some(retryable) = retryable {
            error["retryable"] = json!(retryable);
        }
        json!({"attempt": self.attempt(), "workerId": "worker-1", "outcome": "FAILED", "error": error})
    }

    pub(crate) fn cancelled(&self) -> Value {
        json!({"attempt": self.attempt(), "workerId": "worker-1", "outcome": "CANCELLED",
            "cancelledDuringPhase": "processing", "partialProgress": {"recordsProcessed": 500_000}})
    }

    /// What the token says.
    pub(crate) fn claims(&self) -> Value {
        let payload = self.token.split('.').nth(1).unwrap();
        serde_json::from_slice(&URL_SAFE_NO_PAD.decode(payload).unwrap()).unwrap()
    }

    /// The token with another claim in it, signed with the server's own key.
    pub(crate) fn with_claim(&self, claim: &str, value: Value) -> String {
        let mut claims = self.claims();
        claims[claim] = value;
        sign("k1.1", &claims)
    }
}

/// Signs as the server does, with what is known of it and its secret.
pub(crate) fn sign(kid: &str, claims: &Value) -> String {
    let secret = blake3::derive_key("lessor 2026 task token", &KEY);
    let key = blake3::keyed_hash(&secret, kid.as_bytes());
    let header = json!({"alg": "HS256", "typ": "JWT", "kid": kid});
    let encode = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let signed = format!("{}.{}", encode(&header), encode(claims));
    let mut mac = Hmac::<Sha256>::new_from_slice(key.as_bytes()).unwrap();
    mac.update(signed.as_bytes());
    format!("{signed}.{}", URL_SAFE_NO_PAD.encode(mac.finalize().into_bytes()))
}

impl Told {
    /// Asserts that this is a refusal in the words of the callback contract.
    #[track_caller]
    pub(crate) fn is_refused(&self, status: u16, error: &str) -> &Told {
        assert_eq!((self.status, self.body["error"].as_str()), (status, Some(error)), "{self:?}");
        assert_eq!(self.content_type, "application/json", "{self:?}");
        assert!(self.body["message"].is_string() && self.body["code"].is_null(), "{self:?}");
        self
    }

    #[track_caller]
    pub(crate) fn is_mismatch(&self, expected: u64, received: u64) {
        self.is_refused(409, "attempt_mismatch");
        assert_eq!(self.body["expectedAttempt"], expected, "{self:?}");
        assert_eq!(self.body["receivedAttempt"], received, "{self:?}");
    }

    #[track_caller]
    pub(crate) fn is_terminal(&self, state: &str) {
        self.is_refused(409, "task_already_terminal");
        assert_eq!(self.body["state"], state, "{self:?}");
    }

    #[track_caller]
    pub(crate) fn is_final(&self, state: &str) {
        assert_eq!(self.status, 200, "{self:?}");
        assert_eq!((&self.body["acknowledged"], &self.body["finalState"]), (&json!(true), &json!(state)));
        assert!(self.body["serverTime"].is_string(), "{self:?}");
    }
}

/// Every one of these calls is refused as malformed and changes nothing.
pub(crate) async fn refuse_callbacks(served: &Served, token: &str, list: Vec<Bad>) {
    assert!(!list.is_empty());
    for bad in list {
        let position = served.position().await;
        let call = served.request(bad.method, &bad.path).bearer_auth(token);
        let told = send(call.header("content-type", "application/json").body(bad.body)).await;
        let error = if bad.status == 400 { "invalid_argument" } else { bad.code };
        assert_eq!(
            (told.status, told.body["error"].as_str()),
            (bad.status, Some(error)),
            "{} with {}: {told:?}",
            bad.path,
            bad.why
        );
        told.is_refused(bad.status, error);
        assert_eq!(served.position().await, position, "{} with {} changed something", bad.path, bad.why);
    }
}
