//! Judges who a record says asked for it: one of those who did ask.

use std::collections::BTreeSet;
use std::sync::Arc;

use authority::{Actor, CancelCause, Command, DeadReason, Event, QueueKey, TaskId};

use super::ensure;

/// Everyone who asked for a change, by what they asked to change.
#[derive(Default)]
pub(super) struct Actors(BTreeSet<(Subject, Option<Arc<Actor>>)>);

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Subject {
    Task(TaskId),
    Redrive(TaskId),
    Queue(Arc<QueueKey>),
    TokenKey(Arc<str>),
}

impl Actors {
    pub(super) fn note(&mut self, command: &Command) {
        let (subject, by) = match command {
            Command::CancelTask(cancel) => (Subject::Task(cancel.task), &cancel.by),
            Command::KillTask(kill) => (Subject::Task(kill.task), &kill.by),
            Command::RedriveTask(redrive) => (Subject::Redrive(redrive.id), &redrive.by),
            Command::ConfigureQueue(configure) => (Subject::Queue(configure.queue.clone()), &configure.by),
            Command::RotateTokenKey(rotate) => (Subject::TokenKey(rotate.key_id.clone()), &rotate.by),
            _ => return,
        };
        self.0.insert((subject, by.clone()));
    }

    pub(super) fn check(&self, event: &Event) -> Result<(), String> {
        let by = event.by().cloned();
        let subject = match event {
            // A task may end by time what somebody asked for.
            Event::TaskDead(_) if by.is_none() => return Ok(()),
            Event::TaskDead(event) if matches!(event.reason, DeadReason::Cancelled | DeadReason::Killed) => {
                Subject::Task(event.task)
            }
            Event::CancelRequested(event) if event.cause == CancelCause::User => Subject::Task(event.task),
            Event::TaskCreated(event)
                if event.options.as_ref().is_some_and(|options| options.redrive_of.is_some()) =>
            {
                Subject::Redrive(event.task)
            }
            Event::QueueConfigured(event) => Subject::Queue(event.queue.clone()),
            Event::TokenKeyRotated(event) => Subject::TokenKey(event.key_id.clone()),
            // These are compared with their commands as a whole.
            Event::OperationDetached(_) | Event::KeyCreated(_) | Event::KeyRevoked(_) => return Ok(()),
            _ => return ensure(by.is_none(), "nobody asks for this"),
        };
        ensure(self.0.contains(&(subject, by)), "somebody else asked for it")
    }
}
