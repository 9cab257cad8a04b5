//! Records every request and answer of clients and workers, in the order in which the answers arrived.
//!
//! An observation is never removed or changed. The server is held to all of them.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use serde_json::Value;
use wire::Verdict;

use crate::api::{Answer, Call};
use crate::contract::Contract;
use crate::nodes::Visit;
use crate::report_request::ReportRequest;
use crate::rpc::Rpc;
use crate::target::Dispatch;

/// Time since the start of the run, on this process's monotonic clock.
pub(crate) type At = Duration;

/// A request goes to so many nodes at most: to another one if the first was taken down.
const MAX_VISITS: u32 = 2;
/// How much of an unexpected answer is kept.
const MAX_BODY_CHARS: usize = 600;

pub(crate) struct Recorder {
    started: Instant,
    observations: Mutex<Observations>,
}

#[derive(Default, Debug)]
pub(crate) struct Observations {
    /// Every HTTP call, whatever it was about.
    pub calls: Vec<Call>,
    /// Every call over gRPC, and every request and answer within a stream.
    pub rpcs: Vec<Rpc>,
    /// Every task that was pushed.
    pub dispatches: Vec<Dispatch>,
    pub submissions: Vec<Submission>,
    pub grants: Vec<Grant>,
    pub beats: Vec<Beat>,
    pub reports: Vec<Report>,
    pub cancels: Vec<Cancel>,
    /// Tasks as a read, a cancel or a repeated submit showed them.
    pub readings: Vec<Value>,
    /// Answers that no contract allows, found as they came.
    pub unexpected_answers: Vec<String>,
    /// Answers to workers that never came.
    pub lost_answers: BTreeMap<Contract, u64>,
    /// Every request to a cluster, with all of its repeats.
    pub sent: Vec<Sent>,
}

/// A request to a cluster, from its first byte to its answer.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub sent_at: At,
    pub ended_at: At,
    /// How long it asked to wait.
    pub own_wait: Duration,
    /// The nodes that it was sent to.
    pub visits: u32,
    /// Why nothing was decided.
    pub failure: Option<String>,
}

impl Sent {
    pub(crate) fn new(sent_at: At, own_wait: Duration) -> Sent {
        Sent { sent_at, ended_at: sent_at, own_wait, visits: 1, failure: None }
    }

    /// Whether it may go to another node, once its node was taken down.
    pub(crate) fn may_repeat(&mut self) -> bool {
        self.visits += 1;
        self.visits <= MAX_VISITS
    }

    /// How long it took beyond what it asked to wait.
    pub(crate) fn pause(&self) -> Duration {
        (self.ended_at - self.sent_at).saturating_sub(self.own_wait)
    }
}

/// A task that a client handed in; the marker is in its payload and names it for ever.
#[derive(Clone, Debug)]
pub(crate) struct Submission {
    pub marker: String,
    pub body: Value,
    /// None when no answer arrived: the task may exist or not.
    pub task_id: Option<String>,
}

#[derive(Clone, Debug)]
pub(crate) struct Grant {
    pub contract: Contract,
    /// The proof of the lease: its id, or the task token where work is pushed.
    pub lease_id: String,
    pub task_id: String,
    pub worker_id: String,
    pub attempt: u32,
    pub fencing_token: u64,
    /// When the request that led to it was first sent: the lease cannot have begun earlier.
    pub asked_at: At,
    /// When the answer arrived: the lease cannot have begun later.
    pub answered_at: At,
}

#[derive(Clone, Debug)]
pub(crate) struct Beat {
    pub lease_id: String,
    pub sent_at: At,
    pub ended_at: At,
    pub heartbeat_outcome: HeartbeatOutcome,
}

/// The answer to a heartbeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeartbeatOutcome {
    /// The lease lives on.
    Alive,
    /// The lease is over.
    Gone,
    /// Nothing, as far as the worker knows.
    Unknown,
}

#[derive(Clone, Debug)]
pub(crate) struct Report {
    pub contract: Contract,
    pub request: ReportRequest,
    pub sent_at: At,
    pub ended_at: At,
    /// None when nothing was decided as far as the worker knows.
    pub response: Option<ReportResponse>,
}

/// The answer to a report; that to a release carries no verdict.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ReportResponse {
    /// The contract's own number: that of HTTP or of gRPC.
    pub status: u16,
    pub verdict: Option<Verdict>,
    /// What became of the task, where the contract says it.
    pub state: Option<String>,
}

#[derive(Clone, Debug)]
pub(crate) struct Cancel {
    pub task_id: String,
}

impl Report {
    pub(crate) fn verdict(&self) -> Option<Verdict> {
        self.response.as_ref().and_then(|response| response.verdict)
    }
}

impl Recorder {
    pub(crate) fn new() -> Self {
        Self { started: Instant::now(), observations: Mutex::default() }
    }

    pub(crate) fn now(&self) -> At {
        self.started.elapsed()
    }

    /// The observations, to add or to read; never held across an await.
    pub(crate) fn observations(&self) -> MutexGuard<'_, Observations> {
        self.observations.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Notes an answer that the contract of this call does not allow.
    pub(crate) fn expect(&self, call: &str, answer: &Answer, allowed: &[u16]) {
        if let Answer::Response { status, body } = answer
            && !allowed.contains(status)
        {
            let body: String = body.to_string().chars().take(MAX_BODY_CHARS).collect();
            self.record_unexpected(format!("{call} was answered {status}: {body}"));
        }
    }

    pub(crate) fn record_unexpected(&self, what: String) {
        self.observations().unexpected_answers.push(what);
    }

    /// A request to a cluster is over.
    pub(crate) fn note_sent(&self, mut sent: Sent, visit: &Visit, failure: Option<String>) {
        sent.ended_at = self.now();
        sent.failure = failure.map(|failure| {
            let text: String = failure.chars().take(MAX_BODY_CHARS).collect();
            format!("{text} by {}", visit.address())
        });
        self.observations().sent.push(sent);
    }

    /// A worker waits for an answer in vain.
    pub(crate) fn note_lost(&self, contract: Contract) {
        *self.observations().lost_answers.entry(contract).or_default() += 1;
    }
}
