//! The history of a run for the auditor: requests, records of the ledger, answers.
//!
//! Every contract notes its calls in its own words and turns them into [`Exchange`]s; from there on nothing knows a
//! contract. What an answer does not say, such as the digest of a report, is learnt from the ledger, never computed
//! with the product's code: a wrong guess can only make the auditor refuse.

mod callback;
mod claim;
mod exchange;
mod exchanges;
mod grpc;
mod http;
mod learnt;
mod log;
mod names;
mod native;
mod order;
mod refusals;
mod spoken;

use auditor::history::{Entry, Recorded};
use auditor::{Auditor, Rules};
use authority::TaskId;

pub use exchange::Exchange;
pub use log::{Cut, read_records};

use learnt::Learnt;
use names::Names;
use spoken::Spoken;

use crate::api::Call;
use crate::outside::Violation;
use crate::rpc::Rpc;
use crate::target::Dispatch;

/// Longest part of the auditor's words that is shown from either end: they quote whole payloads.
const SHOWN_CHARS: usize = 1_500;

/// All that was said in a run, in the words of each contract, and all that was recorded.
#[derive(Clone, Default)]
pub struct Testimony {
    pub calls: Vec<Call>,
    pub rpcs: Vec<Rpc>,
    pub dispatches: Vec<Dispatch>,
    /// The whole ledger.
    pub records: Vec<Recorded>,
    /// Where the ledger ended whenever the server was dead.
    pub cuts: Vec<Cut>,
}

impl Testimony {
    /// Lets the auditor judge it, wherever it ends.
    pub fn judge(&self) -> Result<Auditor, Violation> {
        let (recording, surprises) = Recording::of(self);
        match surprises.into_iter().next() {
            Some(surprise) => Err(Violation::of(None, surprise)),
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
    /// The same in the coordinator's words. Answers that no contract allows are told beside it.
    pub fn of(testimony: &Testimony) -> (Recording, Vec<String>) {
        let Testimony { calls, rpcs, dispatches, records, cuts } = testimony;
        let mut calls: Vec<_> = calls.iter().collect();
        calls.sort_by_key(|call| call.sent_at);
        let mut names = Names::new(records);
        let mut spoken: Vec<Spoken> = Vec::new();
        for call in &calls {
            spoken.extend(native::spoken(call));
            spoken.extend(claim::spoken(call));
            spoken.extend(callback::spoken(call));
        }
        spoken.extend(rpcs.iter().filter_map(grpc::spoken));
        let learnt = dispatches.iter().map(|dispatch| callback::learn(&mut names, dispatch));
        let mut surprises: Vec<String> = learnt.filter_map(Result::err).collect();
        spoken.extend(callback::dispatched(&names, &calls, dispatches, records));
        spoken.sort_by_key(|spoken| spoken.sent_at);
        let (mut exchanges, more) = exchanges::exchanges(&mut names, &spoken);
        surprises.extend(more);
        let (of_clients, more) = http::exchanges(&mut names, &calls);
        exchanges.extend(of_clients);
        surprises.extend(more);
        (Recording { records: records.clone(), exchanges, cuts: cuts.clone() }, surprises)
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
        // The contracts tell no positions but those of leases.
        let mut auditor = Auditor::new(Rules { unnamed_records: true, ..Rules::default() });
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
            Entry::Asked { ask, .. } | Entry::Told { ask, .. } | Entry::Received { ask, .. } => {
                self.exchanges.get(usize::try_from(*ask).ok()?)?.task()
            }
            Entry::Started => None,
        }
    }
}

fn shortened(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    if chars.len() <= 2 * SHOWN_CHARS {
        return text.to_owned();
    }
    let part = |chars: &[char]| chars.iter().collect::<String>();
    format!("{} … {}", part(&chars[..SHOWN_CHARS]), part(&chars[chars.len() - SHOWN_CHARS..]))
}
