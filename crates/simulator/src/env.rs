//! The environment that all parts of a history share: time, event queue, random numbers, auditor, network and edge.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;

use authority::{Command, LeaseRef, Position, Time};
use coordinator::engine::ReplyTo;
use coordinator::{BatchItem, Reply, Request};

use crate::bug::Bug;
use crate::cluster::ClusterEvent;
use crate::config::SimConfig;
use crate::host::HostEvent;
use crate::prng::Prng;
use crate::trace::Trace;
use auditor::Auditor;
use auditor::history::{AskId, Entry};
use auditor::{Coverage, Covered};

/// A scheduled event.
pub(crate) enum SimEvent {
    /// A request reaches the coordinator's machine.
    Arrive {
        ticket: Ticket,
        request: Request,
    },
    /// An answer reaches whoever asked.
    Answer {
        ticket: Ticket,
        reply: Reply,
    },
    /// Whoever asked stops waiting.
    GiveUp {
        ticket: Ticket,
    },
    /// An actor's own timer.
    Act {
        actor: usize,
        timer: u64,
    },
    Host(HostEvent),
    Cluster(ClusterEvent),
    /// The moment to bring about a fault of the surroundings.
    Trouble,
}

/// Where an answer goes.
#[derive(Clone)]
pub(crate) struct Ticket {
    pub ask: AskId,
    pub actor: usize,
    /// The actor's own number for the call.
    pub call: u64,
    /// The caller has hung up, and the coordinator can see it.
    pub gone: Rc<Cell<bool>>,
    /// The caller has its answer or waits no more.
    pub settled: Rc<Cell<bool>>,
}

impl ReplyTo for Ticket {
    fn is_closed(&self) -> bool {
        self.gone.get()
    }
}

/// The actor behind what the coordinator asks of itself.
pub(crate) const NOBODY: usize = usize::MAX;

pub(crate) struct Env<'a> {
    /// True time, which no clock in the world shows.
    pub now: u64,
    pub rng: Prng,
    pub config: SimConfig,
    pub coverage: Coverage,
    pub trace: &'a mut Trace,
    pub auditor: Auditor,
    /// Off in the last phase, in which everything must finish.
    pub faults: bool,
    /// The bug that is injected in this history.
    pub bug: Option<Bug>,
    /// Every lease that was ever delivered, by number. At the edge this is a MAC; nothing needs to be stored for it.
    pub issued: BTreeMap<Position, LeaseRef>,
    /// Until when a direction is cut: by actor, to the coordinator and back.
    pub cut_until: BTreeMap<(usize, bool), u64>,
    events: BTreeMap<(u64, u64), SimEvent>,
    sequence: u64,
    asks: AskId,
}

impl<'a> Env<'a> {
    pub(crate) fn new(rng: Prng, config: SimConfig, auditor: Auditor, trace: &'a mut Trace) -> Env<'a> {
        Env {
            now: 1_700_000_000_000,
            rng,
            config,
            coverage: Coverage::default(),
            trace,
            auditor,
            faults: true,
            bug: None,
            issued: BTreeMap::new(),
            cut_until: BTreeMap::new(),
            events: BTreeMap::new(),
            sequence: 0,
            asks: 0,
        }
    }

    pub(crate) fn after(&mut self, delay_ms: u64, event: SimEvent) {
        self.sequence += 1;
        self.events.insert((self.now + delay_ms, self.sequence), event);
    }

    pub(crate) fn at(&mut self, time: u64, event: SimEvent) {
        self.after(time.saturating_sub(self.now), event);
    }

    /// Advances to the next event.
    pub(crate) fn next(&mut self) -> Option<SimEvent> {
        let ((time, _), event) = self.events.pop_first()?;
        self.now = self.now.max(time);
        Some(event)
    }

    pub(crate) fn injected(&self, bug: Bug) -> bool {
        self.bug == Some(bug)
    }

    /// Whether a fault of this kind strikes now.
    pub(crate) fn strikes(&mut self, on: bool, permille: u64) -> bool {
        self.rng.chance(permille) && on && self.faults
    }

    pub(crate) fn note(&mut self, values: &[u64], text: impl FnOnce() -> String) {
        let now = self.now;
        self.trace.note(&[&[now], values].concat(), || format!("{now} {}", text()));
    }

    /// Sends a request on its way, and plans the moment at which the caller stops waiting.
    pub(crate) fn ask(
        &mut self,
        actor: usize,
        call: u64,
        request: Request,
        patience_ms: u64,
    ) -> Result<(), String> {
        self.asks += 1;
        let ask = self.asks;
        self.note(&[1, ask, actor as u64], || format!("ask {ask} by actor {actor}: {}", short(&request)));
        self.auditor.read(&Entry::Asked { ask, request: request.clone() })?;
        let ticket = Ticket { ask, actor, call, gone: Rc::default(), settled: Rc::default() };
        let twice = self.strikes(true, self.config.duplicate_permille);
        for copy in 0..=u64::from(twice) {
            if self.is_lost(actor, true) {
                continue;
            }
            let mut ticket = ticket.clone();
            if copy == 1 {
                self.coverage.bump(Covered::DuplicateRequest);
                // The second copy is a connection of its own, on which nobody hangs up.
                ticket.gone = Rc::default();
            }
            let delay = self.delay();
            self.after(delay, SimEvent::Arrive { ticket, request: request.clone() });
        }
        self.after(patience_ms, SimEvent::GiveUp { ticket });
        Ok(())
    }

    /// Sends an answer. From here on the answer must stay true.
    pub(crate) fn send_reply(
        &mut self,
        ticket: Ticket,
        reply: Reply,
        durable: Option<Position>,
    ) -> Result<(), String> {
        if ticket.actor == NOBODY {
            return Ok(());
        }
        let ask = ticket.ask;
        self.note(&[2, ask], || format!("answer {ask}: {}", short(&reply)));
        self.auditor.read(&Entry::Answered { ask, reply: reply.clone(), durable })?;
        if let Reply::Leased(grants) = &reply {
            self.issued.extend(grants.iter().map(|grant| (grant.fencing_token, grant.lease_ref())));
        }
        if self.is_lost(ticket.actor, false) {
            self.coverage.bump(Covered::LostAnswer);
            return Ok(());
        }
        let delay = self.delay();
        self.after(delay, SimEvent::Answer { ticket, reply });
        Ok(())
    }

    /// What the edge lets through: a lease reference must be one that was issued. Of many steps those go on that may,
    /// as a request of the edge's own.
    pub(crate) fn through_the_edge(
        &mut self,
        ticket: &mut Ticket,
        request: Request,
    ) -> Result<Option<Request>, String> {
        let (request, refused) = match request {
            Request::Decide(mut batch) => {
                let asked = batch.len();
                batch.retain(|item| match item {
                    BatchItem::Command(command) => self.is_issued(leased(command)),
                    BatchItem::Heartbeat { extend, .. } => self.is_issued(Some(&extend.lease)),
                });
                let refused = asked - batch.len();
                (Some(Request::Decide(batch)).filter(|_| refused < asked), refused)
            }
            request => (Some(request), 0),
        };
        if refused == 0 {
            return Ok(request);
        }
        self.coverage.bump(Covered::ForgedRefused);
        if let Some(request) = &request {
            self.asks += 1;
            let (before, ask) = (ticket.ask, self.asks);
            self.note(&[9, before, ask], || format!("of ask {before} the edge makes ask {ask}"));
            self.auditor.read(&Entry::Asked { ask, request: request.clone() })?;
            ticket.ask = ask;
        }
        Ok(request)
    }

    fn is_issued(&self, lease: Option<&LeaseRef>) -> bool {
        self.config.edge_broken
            || lease.is_none_or(|lease| self.issued.get(&lease.fencing_token) == Some(lease))
    }

    fn is_lost(&mut self, actor: usize, to_coordinator: bool) -> bool {
        let is_cut =
            |direction| self.cut_until.get(&(actor, direction)).is_some_and(|until| self.now < *until);
        let (cut, other_too) = (is_cut(to_coordinator) && self.faults, is_cut(!to_coordinator));
        if cut {
            self.coverage.bump(if other_too { Covered::CutBothWays } else { Covered::CutOneWay });
        }
        self.strikes(true, self.config.loss_permille) || cut
    }

    fn delay(&mut self) -> u64 {
        let most = if self.faults { self.config.max_delay_ms } else { 5 };
        self.rng.between(0, most)
    }
}

/// The lease that a worker's command names.
fn leased(command: &Command) -> Option<&LeaseRef> {
    match command {
        Command::ReportCompletion(report) => Some(&report.lease),
        Command::ReportFailure(report) => Some(&report.lease),
        Command::ReleaseLease(release) => Some(&release.lease),
        Command::StartAttempt(start) => Some(&start.lease),
        _ => None,
    }
}

fn short(what: &impl std::fmt::Debug) -> String {
    const MAX_CHARS: usize = 700;
    let mut text = format!("{what:?}");
    if text.len() > MAX_CHARS {
        let end = (0..=MAX_CHARS).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        text.truncate(end);
        text.push('…');
    }
    text
}

/// The coordinator's time for a true time, as the process that began at `zero` with `base` sees it.
pub(crate) fn clock(base: Time, zero: u64, now: u64) -> Time {
    base.plus_ms(now.saturating_sub(zero))
}
