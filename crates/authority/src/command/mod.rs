//! The commands of the authority. One command to a file: its data, its answers, and the decision.
//!
//! A decision reads the state and changes nothing. It has the events that make it true, in order, and the answer to send
//! once they are durable. A refusal has no events.

mod admission;
mod attach_operation;
mod cancel_task;
mod configure_queue;
mod create_key;
mod detach_operation;
mod end_worker;
mod extend_lease;
mod kill_task;
mod lease_tasks;
mod purge;
mod redrive_task;
mod release_lease;
mod report_completion;
mod report_failure;
mod revoke_key;
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
pub use create_key::{CreateKey, CreateKeyAnswer, EXPIRED};
pub use detach_operation::DetachOperation;
pub use end_worker::EndWorker;
pub use extend_lease::{ExtendAnswer, ExtendLease};
pub use kill_task::KillTask;
pub use lease_tasks::{Grant, LeaseTasks};
pub use purge::Purge;
pub use redrive_task::{RedriveAnswer, RedriveTask};
pub use release_lease::{ReleaseAnswer, ReleaseLease};
pub use report_completion::ReportCompletion;
pub use report_failure::ReportFailure;
pub use revoke_key::{RevokeKey, RevokeKeyAnswer};
pub use rotate_token_key::RotateTokenKey;
pub use start_attempt::{StartAnswer, StartAttempt};
pub use start_session::StartSession;
pub use submit_task::{Refusal, SubmitAnswer, SubmitTask};
pub use take_over::TakeOver;
pub use tick::Tick;
pub use verdict::Verdict;

use crate::{Event, State, Time};

/// Hands the commands to `$callback`: each with its answer and, for a command that callers send, the name of the call.
///
/// The enum of commands, their dispatch and the calls of the coordinator's handle are derived from this list.
#[macro_export]
macro_rules! command_table {
    ($callback:ident) => {
        $callback! {
            SubmitTask(Box<SubmitTask>) => Submitted(SubmitAnswer), call submit;
            LeaseTasks(LeaseTasks) => Leased(Vec<Grant>);
            ExtendLease(ExtendLease) => Extended(ExtendAnswer);
            StartAttempt(StartAttempt) => Started(StartAnswer), call start;
            ReportCompletion(ReportCompletion) => Reported(Verdict), call complete;
            ReportFailure(ReportFailure) => Reported(Verdict), call fail;
            ReleaseLease(ReleaseLease) => Released(ReleaseAnswer), call release;
            CancelTask(CancelTask) => Ended(EndAnswer), call cancel;
            KillTask(KillTask) => Ended(EndAnswer), call kill;
            RedriveTask(RedriveTask) => Redriven(RedriveAnswer), call redrive;
            ConfigureQueue(ConfigureQueue) => Configured(ConfigureAnswer), call configure;
            StartSession(StartSession) => Done(bool),
                /// Gives back what earlier sessions of the worker hold.
                call start_session;
            EndWorker(EndWorker) => Done(bool);
            AttachOperation(AttachOperation) => Attached(AttachAnswer), call attach;
            DetachOperation(DetachOperation) => Attached(AttachAnswer), call detach;
            RotateTokenKey(RotateTokenKey) => Done(bool), call rotate_token_key;
            CreateKey(CreateKey) => KeyCreated(CreateKeyAnswer), call create_key;
            RevokeKey(RevokeKey) => KeyRevoked(RevokeKeyAnswer), call revoke_key;
            TakeOver(TakeOver) => Done(bool);
            Tick(Tick) => Done(bool);
            Purge(Purge) => Done(bool);
        }
    };
}

macro_rules! define_commands {
    ($($Name:ident($payload:ty) => $answer:ident($type:ty) $(, $(#[$doc:meta])* call $call:ident)?;)*) => {
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum Command { $($Name($payload),)* }

        impl State {
            /// Decides a command at a time, which must not lie before the newest time in the ledger.
            pub fn decide(&self, command: &Command, now: Time) -> Decision<Answer> {
                assert!(now >= self.time(), "time must not go back: {now} is before {}", self.time());
                match command { $(Command::$Name(command) => command.decide(self, now).into(Answer::$answer),)* }
            }
        }
    };
}

command_table!(define_commands);

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
    KeyCreated(CreateKeyAnswer),
    KeyRevoked(RevokeKeyAnswer),
    /// The events say it all. True when there may be more to do.
    Done(bool),
}

/// The decision on a command: the events that make it true, and the answer to send once they are durable.
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
