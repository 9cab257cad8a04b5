//! A worker: polls, works, sends heartbeats, reports, repeats what was not answered. By its traits it is slow, forgets
//! everything, repeats itself, or has a wrong clock.

use std::collections::BTreeMap;
use std::sync::Arc;

use authority::command::{
    ExtendAnswer, ExtendLease, Grant, LeaseTasks, ReleaseLease, ReportCompletion, ReportFailure,
    StartAttempt, StartSession,
};
use authority::event::ReleaseCause;
use authority::{Answer, Category, Command, Contract, Digest, LeaseRef, Scope, TaskError, Time};
use coordinator::{BatchItem, Reply, Request};

use super::{Actor, Out, QUEUES, digest, linux};
use crate::config::{EXECUTION_QUEUE, SimConfig};
use crate::prng::Prng;

const POLL: u64 = 0;
const BEAT: u64 = 1;
const FINISH: u64 = 2;
/// Timers of a job are its number times this, plus what is to be done.
const TIMERS: u64 = 4;

pub(crate) struct Worker {
    scope: Scope,
    name: Arc<str>,
    session: Option<u64>,
    slow: bool,
    forgetful: bool,
    repeats: bool,
    /// How long the worker's second really is, in thousandths.
    second_permille: u64,
    /// Whether its polls have a name, by which they can be repeated.
    named_polls: bool,
    /// Says when it begins, as workers do to whom work is pushed.
    says_start: bool,
    /// Offers what some tasks require.
    offers: bool,
    /// Sends its calls in batches, with heartbeats for all of its jobs.
    in_batches: bool,
    /// The contract through which it leases.
    contract: Contract,
    /// How often the coordinator wants to hear from it, whatever the queue says.
    max_silence_ms: u64,
    polling: bool,
    next: u64,
    jobs: BTreeMap<u64, Job>,
    calls: BTreeMap<u64, Call>,
}

struct Job {
    lease: LeaseRef,
    beat_ms: u64,
    reporting: bool,
}

enum Call {
    Poll { digest: Option<Digest>, tries: u64 },
    Beat { job: u64 },
    Report { job: u64, request: Request, tries: u64 },
    Session,
    Start,
    Batch(Vec<Call>),
}

impl Worker {
    pub(crate) fn new(scope: Scope, name: &str, rng: &mut Prng, config: &SimConfig) -> Worker {
        Worker {
            scope,
            name: Arc::from(name),
            session: rng.chance(400).then_some(1),
            slow: rng.chance(250),
            forgetful: rng.chance(350),
            repeats: rng.chance(350),
            second_permille: if config.worker_drift {
                *rng.pick(&[300, 1_000, 2_500]).unwrap_or(&1_000)
            } else {
                1_000
            },
            named_polls: rng.chance(400),
            says_start: rng.chance(300),
            offers: rng.chance(600),
            in_batches: rng.chance(350),
            contract: *rng.pick(&Contract::ALL).unwrap_or(&Contract::Leases),
            max_silence_ms: config.heartbeat_timeout_ms / 3,
            polling: false,
            next: 0,
            jobs: BTreeMap::new(),
            calls: BTreeMap::new(),
        }
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn poll(&mut self, again: Option<(Option<Digest>, u64)>, out: &mut Out) {
        self.polling = true;
        let call = self.number();
        let fresh = self.named_polls.then(|| digest(3, call ^ out.now << 8));
        let (request, tries) = again.unwrap_or((fresh, 0));
        let wait_ms = out.rng.between(0, 1_500);
        let lease = LeaseTasks {
            scope: self.scope.clone(),
            worker: self.name.clone(),
            session: self.session.map(|number| Arc::from(format!("s{number}"))),
            // Some name a queue again, which must not give its tasks again.
            queues: QUEUES
                .iter()
                .chain(QUEUES.iter().filter(|_| self.slow))
                .chain(&[EXECUTION_QUEUE])
                .map(|name| Arc::from(*name))
                .collect(),
            // In the end everything must be done by somebody.
            properties: if self.offers || out.calm { linux() } else { Default::default() },
            max_tasks: out.rng.between(1, 2) as usize,
            request,
            contract: self.contract,
        };
        self.calls.insert(call, Call::Poll { digest: request, tries });
        out.calls.push((
            call,
            Request::Poll { lease, until: Time(wait_ms) },
            wait_ms + out.rng.between(50, 900),
        ));
    }

    fn take(&mut self, grant: &Grant, out: &mut Out) {
        if self.jobs.values().any(|job| job.lease.fencing_token == grant.fencing_token) {
            return;
        }
        let job = self.number();
        let lease_ms = grant.expires_at.since_ms(grant.granted_at).max(1);
        let share = if self.slow && !out.calm { out.rng.between(5, 25) } else { out.rng.between(1, 6) };
        let work_ms = (lease_ms * share / 10).min(90_000);
        let beat_ms = if out.calm {
            grant.heartbeat_interval_ms.min(self.max_silence_ms).max(1)
        } else {
            (grant.heartbeat_interval_ms * self.second_permille / 1_000).max(1)
        };
        let lease = grant.lease_ref();
        if self.says_start {
            let call = self.number();
            let started_by = if out.rng.chance(700) { self.name.clone() } else { Arc::from("pod-1") };
            let start = StartAttempt { lease: lease.clone(), started_by };
            self.calls.insert(call, Call::Start);
            out.calls.push((call, Request::decide(Command::StartAttempt(start)), 400));
        }
        self.jobs.insert(job, Job { lease, beat_ms, reporting: false });
        out.timers.push((beat_ms, job * TIMERS + BEAT));
        out.timers.push((work_ms, job * TIMERS + FINISH));
    }

    fn report(&mut self, job: u64, cancelled: bool, out: &mut Out) {
        let Some(doing) = self.jobs.get_mut(&job) else { return };
        doing.reporting = true;
        let lease = doing.lease.clone();
        let number = out.rng.below(1_000);
        let draw = out.rng.below(1_000);
        let fails = |category, retryable| {
            Command::ReportFailure(ReportFailure {
                lease: lease.clone(),
                digest: digest(2, number),
                error: TaskError { category, code: None, message: Arc::from("it broke") },
                retryable,
                draw: 7,
                details: None,
            })
        };
        let completes = || {
            let result = Arc::from(number.to_be_bytes().as_slice());
            Command::ReportCompletion(ReportCompletion {
                lease: lease.clone(),
                digest: digest(1, number),
                result,
                details: None,
            })
        };
        let command = match draw {
            _ if cancelled => fails(Category::Cancelled, None),
            0..650 => completes(),
            650..800 => fails(Category::Infrastructure, None),
            800..900 => fails(Category::UserCode, Some(out.calm)),
            900..940 if !out.calm => fails(Category::DataQuality, None),
            940..1_000 if !out.calm => {
                Command::ReleaseLease(ReleaseLease { lease: lease.clone(), cause: ReleaseCause::Worker })
            }
            _ => completes(),
        };
        self.send(job, Request::decide(command), 0, out);
    }

    fn send(&mut self, job: u64, request: Request, tries: u64, out: &mut Out) {
        let report = Call::Report { job, request: request.clone(), tries };
        let patience_ms = out.rng.between(100, 1_200);
        self.call(job, report, request, patience_ms, out);
    }

    /// Sends a call about a job, alone or with heartbeats for the others.
    fn call(&mut self, job: u64, what: Call, request: Request, patience_ms: u64, out: &mut Out) {
        let (what, request) = if self.in_batches { self.batch(job, what, request) } else { (what, request) };
        let call = self.number();
        self.calls.insert(call, what);
        out.calls.push((call, request, patience_ms));
    }

    fn batch(&self, job: u64, what: Call, request: Request) -> (Call, Request) {
        let Request::Decide(mut batch) = request else { return (what, request) };
        let mut calls = vec![what];
        for (other, doing) in self.jobs.iter().filter(|(other, doing)| **other != job && !doing.reporting) {
            calls.push(Call::Beat { job: *other });
            let extend = ExtendLease { lease: doing.lease.clone() };
            batch.push(BatchItem::Heartbeat { extend, progress: None });
        }
        (Call::Batch(calls), Request::Decide(batch))
    }

    /// Loses everything it knew.
    fn forget(&mut self, out: &mut Out) {
        self.jobs.clear();
        self.calls.clear();
        self.polling = true;
        if let Some(session) = &mut self.session {
            *session += 1;
            let session = Arc::from(format!("s{session}"));
            let (tenant, worker) = (self.scope.tenant.clone(), self.name.clone());
            let start = StartSession { tenant, worker, session };
            let call = self.number();
            self.calls.insert(call, Call::Session);
            out.calls.push((call, Request::decide(Command::StartSession(start)), 1_000));
        } else {
            self.polling = false;
            out.timers.push((out.rng.between(100, 3_000), POLL));
        }
    }

    fn rest(&mut self, out: &mut Out) {
        self.polling = false;
        out.timers.push((out.rng.between(1, 150), POLL));
    }
}

impl Actor for Worker {
    fn wake(&mut self, timer: u64, out: &mut Out) {
        if self.forgetful && !out.calm && out.rng.chance(25) {
            return self.forget(out);
        }
        let job = timer / TIMERS;
        match timer % TIMERS {
            POLL if self.polling => {}
            POLL if self.jobs.len() < 2 => self.poll(None, out),
            POLL => self.rest(out),
            BEAT => {
                let Some(doing) = self.jobs.get(&job).filter(|doing| !doing.reporting) else { return };
                let (lease, beat_ms) = (doing.lease.clone(), doing.beat_ms);
                let beat = Request::heartbeat(ExtendLease { lease }, None);
                self.call(job, Call::Beat { job }, beat, 400, out);
                out.timers.push((beat_ms, timer));
            }
            FINISH if self.jobs.get(&job).is_some_and(|doing| !doing.reporting) => {
                self.report(job, false, out);
            }
            _ => {}
        }
    }

    fn answered(&mut self, call: u64, reply: Reply, out: &mut Out) {
        if let Some(was) = self.calls.remove(&call) {
            self.handle_reply(was, reply, out);
        }
    }

    fn unanswered(&mut self, call: u64, out: &mut Out) {
        if let Some(was) = self.calls.remove(&call) {
            self.miss(was, out);
        }
    }
}

impl Worker {
    fn handle_reply(&mut self, was: Call, reply: Reply, out: &mut Out) {
        match (was, reply) {
            (Call::Batch(calls), Reply::Decided(answers)) => {
                for (was, answer) in calls.into_iter().zip(answers) {
                    self.handle_reply(was, Reply::decided(answer), out);
                }
            }
            (Call::Batch(calls), reply) => {
                calls.into_iter().for_each(|was| self.handle_reply(was, reply.clone(), out));
            }
            (Call::Poll { .. }, Reply::Leased(grants)) => {
                grants.iter().for_each(|grant| self.take(grant, out));
                self.rest(out);
            }
            (Call::Poll { .. } | Call::Session, _) => self.rest(out),
            (Call::Beat { job }, reply) => match reply.answer() {
                Some(Answer::Extended(ExtendAnswer::Extended { cancel: Some(_), .. }))
                    if out.rng.chance(600) && self.jobs.get(&job).is_some_and(|doing| !doing.reporting) =>
                {
                    self.report(job, true, out);
                }
                // The worker may not notice; the answer to its report will tell.
                Some(Answer::Extended(ExtendAnswer::Lost | ExtendAnswer::Rejected(_)))
                    if out.rng.chance(500) =>
                {
                    self.jobs.remove(&job);
                }
                _ => {}
            },
            (Call::Start, _) => {}
            (Call::Report { job, request, tries }, Reply::Unavailable(_)) => {
                self.send(job, request, tries, out)
            }
            (Call::Report { job, request, tries }, _) => {
                self.jobs.remove(&job);
                if self.repeats && tries < 2 && !out.calm && out.rng.chance(500) {
                    self.send(job, request, tries + 1, out);
                }
            }
        }
    }

    /// No answer came to this.
    fn miss(&mut self, was: Call, out: &mut Out) {
        match was {
            Call::Poll { digest, tries } if digest.is_some() && tries < 3 => {
                self.poll(Some((digest, tries + 1)), out);
            }
            Call::Poll { .. } | Call::Session => self.rest(out),
            Call::Report { job, request, tries } if tries < 6 || out.calm => {
                self.send(job, request, tries + 1, out);
            }
            Call::Report { job, .. } => drop(self.jobs.remove(&job)),
            Call::Batch(calls) => calls.into_iter().for_each(|was| self.miss(was, out)),
            Call::Beat { .. } | Call::Start => {}
        }
    }
}
