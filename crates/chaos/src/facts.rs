//! Everything that clients and workers asked and were told, in the order in which they learnt it.
//!
//! A fact is never removed or changed. The server is held to all of them.

use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::api::{Answer, Call};

/// Time since the start of the run, on this process's monotonic clock.
pub type At = Duration;

/// How much of an unexpected answer is kept.
const SHOWN_CHARS: usize = 600;

pub struct Facts {
    started: Instant,
    book: Mutex<Book>,
}

#[derive(Default, Debug)]
pub struct Book {
    /// Every call, whatever it was about.
    pub calls: Vec<Call>,
    pub submissions: Vec<Submission>,
    pub grants: Vec<Grant>,
    pub beats: Vec<Beat>,
    pub reports: Vec<Report>,
    pub cancels: Vec<Cancel>,
    /// Tasks as a read, a cancel or a repeated submit showed them.
    pub readings: Vec<Value>,
    /// Answers that no contract allows, found as they came.
    pub surprises: Vec<String>,
    pub lost_answers: u64,
}

/// A task that a client handed in; the marker is in its payload and names it for ever.
#[derive(Clone, Debug)]
pub struct Submission {
    pub marker: String,
    pub body: Value,
    /// None when no answer arrived: the task may exist or not.
    pub task_id: Option<String>,
}

#[derive(Clone, Debug)]
pub struct Grant {
    pub lease_id: String,
    pub task_id: String,
    pub worker_id: String,
    pub attempt: u64,
    pub fencing_token: u64,
    /// When the request that led to it was first sent: the lease cannot have begun earlier.
    pub asked_at: At,
    /// When the answer arrived: the lease cannot have begun later.
    pub told_at: At,
}

#[derive(Clone, Debug)]
pub struct Beat {
    pub lease_id: String,
    pub sent_at: At,
    pub ended_at: At,
    pub status: Option<u16>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Action {
    Complete,
    Fail,
    Release,
}

impl Action {
    pub fn path(self, lease_id: &str) -> String {
        let verb = match self {
            Self::Complete => "complete",
            Self::Fail => "fail",
            Self::Release => "release",
        };
        format!("/v1/leases/{lease_id}/{verb}")
    }
}

/// What the sender of a report knows about it beforehand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Intent {
    /// The holder's own first story, or a repeat of it: never REJECTED.
    Own,
    /// A second, different story after the first was answered: never COMMITTED.
    Conflicting,
    /// A forged lease, another's worker id or another task: always REJECTED.
    Forged,
}

#[derive(Clone, Debug)]
pub struct Report {
    pub lease_id: String,
    pub task_id: String,
    pub action: Action,
    pub body: Value,
    pub intent: Intent,
    pub sent_at: At,
    pub ended_at: At,
    /// None when nothing was decided as far as the worker knows.
    pub told: Option<Told>,
}

/// The answer to a report; that to a release carries no verdict.
#[derive(Clone, Debug, PartialEq)]
pub struct Told {
    pub status: u16,
    pub verdict: String,
    pub state: Option<String>,
}

#[derive(Clone, Debug)]
pub struct Cancel {
    pub task_id: String,
}

impl Report {
    /// Two reports with the same key say the same about the same lease.
    pub fn key(&self) -> (String, Action, String) {
        (self.lease_id.clone(), self.action, self.body.to_string())
    }

    pub fn verdict(&self) -> Option<&str> {
        self.told.as_ref().map(|told| told.verdict.as_str())
    }
}

impl Told {
    pub fn read(answer: &Answer) -> Option<Self> {
        if answer.is_open() {
            return None;
        }
        let text = |name: &str| answer.body()[name].as_str().map(str::to_string);
        Some(Self {
            status: answer.status()?,
            verdict: text("verdict").unwrap_or_default(),
            state: text("state"),
        })
    }
}

impl Facts {
    pub fn new() -> Self {
        Self { started: Instant::now(), book: Mutex::default() }
    }

    pub fn now(&self) -> At {
        self.started.elapsed()
    }

    /// The book, for adding a fact or reading some; never held across an await.
    pub fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Notes an answer that the contract of this call does not allow, and counts lost ones.
    pub fn expect(&self, call: &str, answer: &Answer, allowed: &[u16]) {
        match answer.status() {
            None => self.book().lost_answers += 1,
            Some(status) if allowed.contains(&status) => {}
            Some(status) => {
                let body: String = answer.body().to_string().chars().take(SHOWN_CHARS).collect();
                self.book().surprises.push(format!("{call} was answered {status}: {body}"));
            }
        }
    }
}
