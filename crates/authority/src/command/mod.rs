//! What may be asked of the authority. One command to a file: its data, its answers, and the decision.
//!
//! A decision reads the state and changes nothing. It gives the events that make it true, in order, and the
//! answer that may be told once they are durable. A refusal has no events.

mod attach_operation;
mod cancel_task;
mod configure_queue;
mod detach_operation;
mod extend_lease;
mod kill_task;
mod lease_tasks;
mod purge;
mod redrive_task;
mod release_lease;
mod report_completion;
mod report_failure;
mod rotate_token_key;
mod start_attempt;
mod start_session;
mod submit_task;
mod take_over;
mod tick;
mod verdict;

pub use attach_operation::{AttachAnswer, AttachOperation};
pub use cancel_task::{CancelTask, EndAnswer};
pub use configure_queue::{ConfigureAnswer, ConfigureQueue};
pub use detach_operation::DetachOperation;
pub use extend_lease::{ExtendAnswer, ExtendLease};
pub use kill_task::KillTask;
pub use lease_tasks::{Grant, LeaseTasks};
pub use purge::Purge;
pub use redrive_task::{RedriveAnswer, RedriveTask};
pub use release_lease::{ReleaseAnswer, ReleaseLease};
pub use report_completion::ReportCompletion;
pub use report_failure::ReportFailure;
pub use rotate_token_key::RotateTokenKey;
pub use start_attempt::{StartAnswer, StartAttempt};
pub use start_session::StartSession;
pub use submit_task::{Refusal, SubmitAnswer, SubmitTask};
pub use take_over::TakeOver;
pub use tick::Tick;
pub use verdict::Verdict;

use crate::{Event, State, Time};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    SubmitTask(Box<SubmitTask>),
    LeaseTasks(LeaseTasks),
    ExtendLease(ExtendLease),
    StartAttempt(StartAttempt),
    ReportCompletion(ReportCompletion),
    ReportFailure(ReportFailure),
    ReleaseLease(ReleaseLease),
    CancelTask(CancelTask),
    KillTask(KillTask),
    RedriveTask(RedriveTask),
    ConfigureQueue(ConfigureQueue),
    StartSession(StartSession),
    AttachOperation(AttachOperation),
    DetachOperation(DetachOperation),
    RotateTokenKey(RotateTokenKey),
    TakeOver(TakeOver),
    Tick(Tick),
    Purge(Purge),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    Submitted(SubmitAnswer),
    Leased(Vec<Grant>),
    Extended(ExtendAnswer),
    Started(StartAnswer),
    Reported(Verdict),
    Released(ReleaseAnswer),
    Ended(EndAnswer),
    Redriven(RedriveAnswer),
    Configured(ConfigureAnswer),
    Attached(AttachAnswer),
    /// Nothing to tell: the events say it all. True when there may be more to do.
    Done(bool),
}

/// What follows from a command: the events that make it true, and what to answer once they are durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision<A> {
    pub events: Vec<Event>,
    pub answer: A,
}

impl<A> Decision<A> {
    /// An answer that changes nothing.
    pub(crate) fn only(answer: A) -> Decision<A> {
        Decision { events: Vec::new(), answer }
    }

    pub(crate) fn with(event: Event, answer: A) -> Decision<A> {
        Decision { events: vec![event], answer }
    }

    fn into(self, wrap: impl FnOnce(A) -> Answer) -> Decision<Answer> {
        Decision { events: self.events, answer: wrap(self.answer) }
    }
}

impl State {
    /// Decides a command at a time, which must not lie before the newest time in the ledger.
    pub fn decide(&self, command: &Command, now: Time) -> Decision<Answer> {
        assert!(now >= self.time(), "time must not go back: {now} is before {}", self.time());
        match command {
            Command::SubmitTask(command) => command.decide(self, now).into(Answer::Submitted),
            Command::LeaseTasks(command) => command.decide(self, now).into(Answer::Leased),
            Command::ExtendLease(command) => command.decide(self, now).into(Answer::Extended),
            Command::StartAttempt(command) => command.decide(self, now).into(Answer::Started),
            Command::ReportCompletion(command) => command.decide(self, now).into(Answer::Reported),
            Command::ReportFailure(command) => command.decide(self, now).into(Answer::Reported),
            Command::ReleaseLease(command) => command.decide(self, now).into(Answer::Released),
            Command::CancelTask(command) => command.decide(self, now).into(Answer::Ended),
            Command::KillTask(command) => command.decide(self, now).into(Answer::Ended),
            Command::RedriveTask(command) => command.decide(self, now).into(Answer::Redriven),
            Command::ConfigureQueue(command) => command.decide(self).into(Answer::Configured),
            Command::StartSession(command) => command.decide(self, now).into(Answer::Done),
            Command::AttachOperation(command) => command.decide(self).into(Answer::Attached),
            Command::DetachOperation(command) => command.decide(self).into(Answer::Attached),
            Command::RotateTokenKey(command) => command.decide(self).into(Answer::Done),
            Command::TakeOver(command) => command.decide(self).into(Answer::Done),
            Command::Tick(command) => command.decide(self, now).into(Answer::Done),
            Command::Purge(command) => command.decide(self, now).into(Answer::Done),
        }
    }
}
