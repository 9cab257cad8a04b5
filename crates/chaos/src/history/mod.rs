//! The history of a run for the auditor: requests, records of the ledger, answers.
//!
//! The calls of every contract are converted to [`Exchange`]s; from there on nothing depends on a contract. What an
//! answer does not say, such as the digest of a report, is taken from the ledger, never computed
//! with the product's code: a wrong guess can only make the auditor refuse.

mod callback;
mod claim;
mod exchange;
mod exchanges;
mod grpc;
mod http;
mod ledger_index;
mod log;
mod names;
mod native;
mod order;
mod refusals;
mod worker_call;

use auditor::history::{Entry, Recorded};
use auditor::{Auditor, Rules};
use authority::command::ConfigureQueue;
use authority::{Command, Event, QueueConfig, QueueDefaults, TaskId};
use coordinator::Request;

pub use exchange::Exchange;
pub(crate) use log::{Cut, read_database, read_records};

use ledger_index::LedgerIndex;
use names::Names;
use worker_call::WorkerCall;

use crate::api::Call;
use crate::checks::Violation;
use crate::contract::Contract;
use crate::recorder::At;
use crate::rpc::Rpc;
use crate::target::Dispatch;

/// The default of the servers under test.
const HEARTBEAT_TIMEOUT_MS: u64 = 120_000;

/// The queue of executions.
const EXECUTIONS: &str = "exec";

/// How much of the auditor's message is printed from either end: messages quote whole payloads.
const MAX_CHARS: usize = 1_500;

/// All calls of a run, as each contract has them, and all records.
#[derive(Clone, Default)]
pub struct RawRecording {
    pub calls: Vec<Call>,
    pub rpcs: Vec<Rpc>,
    pub dispatches: Vec<Dispatch>,
    /// The whole ledger.
    pub records: Vec<Recorded>,
    /// Where the ledger ended whenever the server was dead.
    pub cuts: Vec<Cut>,
}

impl RawRecording {
    /// Lets the auditor judge it, wherever it ends.
    pub fn judge(&self) -> Result<Auditor, Violation> {
        let (recording, unexpected_answers) = Recording::of(self);
        match unexpected_answers.into_iter().next() {
            Some(unexpected) => Err(Violation::of(None, unexpected)),
            None => recording.judge(),
        }
    }
}

/// All that is known of a run, in no common order yet.
#[derive(Clone, Default)]
pub struct Recording {
    /// The whole ledger.
    pub records: Vec<Recorded>,
    pub exchanges: Vec<Exchange>,
    /// Where the ledger ended whenever the server was dead.
    pub cuts: Vec<Cut>,
}

impl Recording {
    /// Converts the calls to the coordinator's types. Also returns the answers that no contract allows.
    pub fn of(raw_recording: &RawRecording) -> (Recording, Vec<String>) {
        let RawRecording { calls, rpcs, dispatches, records, cuts } = raw_recording;
        let mut calls: Vec<_> = calls.iter().collect();
        calls.sort_by_key(|call| call.sent_at);
        let mut names = Names::new(records);
        let mut worker_calls: Vec<WorkerCall> = Vec::new();
        for call in &calls {
            worker_calls.extend(native::parse_call(call));
            worker_calls.extend(claim::parse_call(call));
            worker_calls.extend(callback::parse_calls(call));
        }
        worker_calls.extend(rpcs.iter().filter_map(grpc::parse_rpc));
        let results = dispatches.iter().map(|dispatch| callback::record_dispatch(&mut names, dispatch));
        let mut unexpected_answers: Vec<String> = results.filter_map(Result::err).collect();
        worker_calls.extend(callback::dispatched(&names, &calls, dispatches, records));
        worker_calls.sort_by_key(|call| call.sent_at);
        let (mut exchanges, more) = exchanges::exchanges(&mut names, &worker_calls);
        unexpected_answers.extend(more);
        let (of_clients, more) = http::exchanges(&mut names, &calls);
        exchanges.extend(of_clients);
        unexpected_answers.extend(more);
        (Recording { records: records.clone(), exchanges, cuts: cuts.clone() }, unexpected_answers)
    }

    /// Nodes configure the queue of executions at their start, as their files say; no client asked for that.
    pub(crate) fn add_configuration_of_nodes(&mut self) {
        let configured = self.records.iter().filter_map(|record| match &record.event {
            Event::QueueConfigured(event) if *event.queue.name == *EXECUTIONS && event.by.is_none() => {
                Some(ConfigureQueue { queue: event.queue.clone(), config: event.config.clone(), by: None })
            }
            _ => None,
        });
        let exchange = |configure| Exchange {
            contract: Contract::Native,
            sent_at: At::ZERO,
            ended_at: At::ZERO,
            request: Request::decide(Command::ConfigureQueue(configure)),
            reply: None,
        };
        self.exchanges.extend(configured.map(exchange).collect::<Vec<_>>());
    }

    /// Lets the auditor judge it; in the end all tasks must have ended.
    pub fn audit(&self) -> Result<Auditor, Violation> {
        let auditor = self.judge()?;
        match auditor.unfinished() {
            Some(task) => Err(Violation::of(Some(task), "is not final after everything was drained")),
            None => Ok(auditor),
        }
    }

    /// Lets the auditor judge it, wherever it ends.
    pub fn judge(&self) -> Result<Auditor, Violation> {
        for cut in &self.cuts {
            self.still_holds(cut)?;
        }
        // The contracts expose no positions but those of leases.
        let queue_defaults = documented_queue_defaults();
        let mut auditor = Auditor::new(Rules {
            unnamed_records: true,
            queue_defaults,
            heartbeat_timeout_ms: HEARTBEAT_TIMEOUT_MS,
            ..Rules::default()
        });
        for entry in self.entries() {
            if let Err(what) = auditor.read(&entry) {
                return Err(Violation::of(self.task_of(&entry), shortened(&what)));
            }
        }
        Ok(auditor)
    }

    /// In the order in which it happened, as far as that can be known.
    pub fn entries(&self) -> Vec<Entry> {
        order::entries(self)
    }

    /// What a dead server left behind, the next one takes over as it is.
    fn still_holds(&self, cut: &Cut) -> Result<(), Violation> {
        let Some(last) = &cut.last else { return Ok(()) };
        let now = self.records.iter().find(|record| record.position == last.position);
        if now.is_some_and(|now| log::same(now, last)) {
            Ok(())
        } else {
            let what = format!("record {} was there when the server was dead: {last:?}", last.position);
            Err(Violation::of(last.event.task(), shortened(&format!("{what}, and now it is {now:?}"))))
        }
    }

    fn task_of(&self, entry: &Entry) -> Option<TaskId> {
        match entry {
            Entry::Recorded(recorded) => recorded.event.task(),
            Entry::Applied { event, .. } => event.task(),
            Entry::Asked { ask, .. } | Entry::Answered { ask, .. } | Entry::Received { ask, .. } => {
                self.exchanges.get(usize::try_from(*ask).ok()?)?.task()
            }
            // Only a simulated cluster is seen from so close.
            _ => None,
        }
    }
}

fn shortened(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    if chars.len() <= 2 * MAX_CHARS {
        return text.to_owned();
    }
    let part = |chars: &[char]| chars.iter().collect::<String>();
    format!("{} … {}", part(&chars[..MAX_CHARS]), part(&chars[chars.len() - MAX_CHARS..]))
}

/// The defaults of the execution queue as docs/contracts.md has them, written out so that a wrong default is found.
fn documented_queue_defaults() -> QueueDefaults {
    let config = QueueConfig {
        lease_ms: Some(300_000),
        heartbeat_interval_ms: Some(30_000),
        max_queue_size: Some(10_000),
        ..QueueConfig::default()
    };
    QueueDefaults::default().with(EXECUTIONS, config)
}
