//! The lease contract of workers that poll; messages name the lease.

use std::sync::Arc;

use wire::{
    Heartbeat, HeartbeatAnswer, Json, ReleaseLease, Released, ReportAnswer, ReportCompletion, Verdict,
};

use crate::contract::{Cancel, Contract, LeaseAnswer};
use crate::task::Progress;
use crate::transport::{Answer, Request, Transport};
use crate::{Error, Failure, Metrics, Outcome};

pub(crate) struct LeaseContract {
    pub transport: Transport,
    pub worker_id: Arc<str>,
    pub lease_id: String,
    pub task_id: String,
}

impl Contract for LeaseContract {
    fn transport(&self) -> &Transport {
        &self.transport
    }

    fn heartbeat(&self, progress: Option<Progress>) -> Result<Request, Error> {
        let (progress_pct, message) =
            progress.map_or((None, None), |progress| (progress.pct, progress.message));
        let (worker_id, task_id) = self.names();
        let body = Heartbeat { worker_id, task_id: Some(task_id), progress_pct, message };
        self.transport.post(&self.path("heartbeat"), &body)
    }

    fn parse_heartbeat_answer(&self, answer: &Answer) -> LeaseAnswer {
        match answer.parse::<HeartbeatAnswer>() {
            Ok(answer) => LeaseAnswer::Live {
                expires_at: Some(answer.expires_at),
                cancel: Cancel::new(answer.should_cancel, answer.cancel_reason, None),
            },
            Err(Error::Refused(problem)) if problem.status == 410 => {
                LeaseAnswer::Over("the coordinator says that the lease is over".to_owned())
            }
            Err(error @ Error::Refused(_)) => {
                tracing::error!(%error, "a heartbeat was rejected");
                LeaseAnswer::Over(format!("a heartbeat was rejected: {error}"))
            }
            Err(error) => LeaseAnswer::Foreign(error),
        }
    }

    fn report(&self, ended: Result<Json, Failure>, metrics: Option<Metrics>) -> Result<Request, Error> {
        let (worker_id, task_id) = self.names();
        let metrics = metrics.and_then(|metrics| Json::from_value(&metrics).ok());
        match ended {
            Ok(result) => {
                let body =
                    ReportCompletion { worker_id, task_id: Some(task_id), result: Some(result), metrics };
                self.transport.post(&self.path("complete"), &body)
            }
            Err(failure) => {
                let body = failure.into_report(worker_id, task_id, metrics);
                self.transport.post(&self.path("fail"), &body)
            }
        }
    }

    fn parse_verdict(&self, answer: &Answer) -> Outcome {
        match answer.parse::<ReportAnswer>() {
            Ok(answer) => Outcome::Committed(answer.state),
            Err(Error::Refused(problem)) if problem.verdict == Some(Verdict::Cancelled) => Outcome::Cancelled,
            Err(error) => Outcome::refused(error),
        }
    }

    fn release(&self) -> Result<Request, Error> {
        let (worker_id, task_id) = self.names();
        self.transport.post(&self.path("release"), &ReleaseLease { worker_id, task_id: Some(task_id) })
    }

    fn parse_release_answer(&self, answer: &Answer) -> Outcome {
        answer.parse::<Released>().map_or_else(Outcome::refused, |released| Outcome::Released(released.state))
    }
}

impl LeaseContract {
    fn names(&self) -> (String, String) {
        (self.worker_id.to_string(), self.task_id.clone())
    }

    fn path<'a>(&'a self, call: &'a str) -> [&'a str; 3] {
        ["leases", &self.lease_id, call]
    }
}
