//! Workers of the claim contract: what they claim, and their calls about it.

use serde_json::{Value, json};

use super::{Served, Told};

impl Served {
    /// Claims a job without waiting.
    pub(crate) async fn claim(&self, worker: &str, streams: &[&str]) -> Value {
        let body = json!({"worker_id": worker, "streams": streams, "max_wait_ms": 0});
        let told = self.post("/internal/worker/claim", body).await;
        assert_eq!(told.status, 200, "{told:?}");
        told.body
    }

    /// Submits a job and claims it.
    pub(crate) async fn claimed(&self, worker: &str, stream: &str) -> Value {
        self.submit(stream).await;
        let job = self.claim(worker, &[stream]).await;
        assert_eq!(job["claimed"], true, "{job}");
        job
    }

    pub(crate) async fn worker_call(&self, what: &str, body: Value) -> Told {
        self.post(&format!("/internal/worker/{what}"), body).await
    }
}

pub(crate) fn beat(job: &Value, worker: &str) -> Value {
    json!({"worker_id": worker, "job_id": job["job_id"], "lease_token": job["lease_token"]})
}

fn report(job: &Value, worker: &str) -> Value {
    let mut body = beat(job, worker);
    for field in ["attempt_id", "stream", "message_id"] {
        body[field] = job[field].clone();
    }
    body
}

pub(crate) fn done(job: &Value, worker: &str, result: Value) -> Value {
    let mut body = report(job, worker);
    body["result"] = result;
    body
}

pub(crate) fn broken(job: &Value, worker: &str, retryable: bool) -> Value {
    let mut body = report(job, worker);
    body["error"] =
        json!({"code": "E1", "message": "bad luck", "stack": "at line 1", "retryable": retryable});
    body
}

impl Told {
    /// Asserts that a claim call was refused, and whether its message may be acknowledged all the same.
    #[track_caller]
    pub(crate) fn is_unclaimed(&self, status: u16, code: &str, ack: bool) -> &Told {
        self.is_problem(status, code);
        assert_eq!((&self.body["ok"], &self.body["ack"]), (&json!(false), &json!(ack)), "{self:?}");
        self
    }
}
