//! Judges the calls that ordinary clients do not make: starts of attempts, waiters of executions, keys, refusals for
//! lack of room, and whom a task may be given to.

use std::sync::Arc;

use authority::command::{
    AttachAnswer, AttachOperation, DetachOperation, Refusal, RotateTokenKey, StartAnswer, StartAttempt,
};
use authority::event::{AttemptStarted, TokenKeyRotated};
use authority::{Answer, Command, Contract, Event, Properties, QueueKey, Scope};

use super::model::TaskModel;
use super::{Asked, Auditor, Causes, Covered, ensure};

/// Under memory pressure a final task is kept for this long all the same.
pub(super) const MIN_RETENTION_MS: u64 = 10 * 60 * 1_000;
/// Over the limit of final tasks, a final task is kept for this long all the same.
pub(super) const MIN_FINAL_MS: u64 = 60 * 1_000;

impl Auditor {
    pub(super) fn decided_other_command(
        &mut self,
        asked: &Asked,
        command: &Command,
        answer: &Answer,
    ) -> Result<(), String> {
        match (command, answer) {
            (Command::StartAttempt(start), Answer::Started(answer)) => self.started(asked, start, answer),
            (Command::AttachOperation(attach), Answer::Attached(answer)) => {
                self.attached(asked, attach, *answer)
            }
            (Command::DetachOperation(detach), Answer::Attached(answer)) => {
                self.detached(asked, detach, *answer)
            }
            (Command::RotateTokenKey(RotateTokenKey { key_id, .. }), Answer::Done(false)) => {
                ensure(self.token_keys.contains(key_id), "no durable record makes it the key")
            }
            (Command::CreateKey(create), Answer::KeyCreated(answer)) => {
                self.answered_create_key(create, answer)
            }
            (Command::RevokeKey(revoke), Answer::KeyRevoked(answer)) => {
                self.answered_revoke_key(asked, revoke, *answer)
            }
            _ => Err("it is no answer to what was asked".into()),
        }
    }

    fn started(&mut self, asked: &Asked, start: &StartAttempt, answer: &StartAnswer) -> Result<(), String> {
        let lease = &start.lease;
        let by = self.find(lease).and_then(|(_, model)| model.started_by.clone());
        match answer {
            StartAnswer::Started => ensure(by.as_ref() == Some(&start.started_by), "no record says so"),
            StartAnswer::AlreadyStarted(other) => {
                ensure(*other != start.started_by && by.as_ref() == Some(other), "no record says so")
            }
            StartAnswer::Cancelled(_) => {
                let task = self.tasks.get(&lease.task).ok_or("there is no such task")?;
                ensure(task.cancel_grace.is_some() || !task.earlier.is_empty(), "nobody asked it to stop")
            }
            StartAnswer::Lost => {
                self.must_be_over(lease)?;
                self.not_killed_by_a_stall(asked, lease)
            }
            StartAnswer::Rejected(why) => self.rejected(asked, lease, *why),
        }
    }

    fn attached(&self, asked: &Asked, attach: &AttachOperation, answer: AttachAnswer) -> Result<(), String> {
        match answer {
            AttachAnswer::Done => {
                let task = self.tasks.get(&attach.task).ok_or("there is no such task")?;
                ensure(task.queue.scope == attach.scope, "it is another tenant's task")?;
                let ever = task.ever_waited.contains(&attach.operation) || !task.earlier.is_empty();
                ensure(ever, "no durable record attaches it")
            }
            AttachAnswer::UnknownTask => self.must_be_unknown(asked, &attach.scope, attach.task),
            AttachAnswer::TooMany => Err("so many never waited".into()),
        }
    }

    fn detached(&self, asked: &Asked, detach: &DetachOperation, answer: AttachAnswer) -> Result<(), String> {
        match answer {
            AttachAnswer::Done => {
                let task = self.tasks.get(&detach.task).ok_or("there is no such task")?;
                ensure(task.queue.scope == detach.scope, "it is another tenant's task")
            }
            AttachAnswer::UnknownTask => self.must_be_unknown(asked, &detach.scope, detach.task),
            AttachAnswer::TooMany => Err("nobody is refused to leave".into()),
        }
    }

    /// Whether a submit or a redrive was refused for a reason that there was.
    pub(super) fn refused(&mut self, queue: Option<&QueueKey>, why: &Refusal) -> Result<(), String> {
        match why {
            &Refusal::QueueFull { max } => {
                let configured = self.causes.configs.iter().any(|(key, config)| {
                    queue.is_none_or(|queue| **key == *queue) && config.max_queue_size == Some(max)
                });
                let of = |name: &str| self.rules.queue_defaults.of(name).max_queue_size;
                let by_default = match queue {
                    Some(queue) => of(&queue.name) == Some(max),
                    None => self.tasks.values().any(|task| of(&task.queue.name) == Some(max)),
                };
                ensure(configured || by_default, "no such limit was ever set")
            }
            Refusal::StateFull { .. } => {
                self.mark_covered(Covered::MemoryFull);
                ensure(self.rules.memory_bound, "there is memory")
            }
            Refusal::NoSpace => Ok(()),
            Refusal::TooManyQueues { .. } | Refusal::TooManyTenants { .. } | Refusal::TooManyRequirements => {
                Err("there are not so many".into())
            }
            Refusal::UnknownQueue { .. } => Err("any queue will do".into()),
            Refusal::TenantTasks { .. } | Refusal::TenantBytes { .. } => {
                Err("no tenant has a limit of its own".into())
            }
        }
    }

    pub(super) fn rotated(&mut self, event: &TokenKeyRotated) -> Result<(), String> {
        ensure(self.causes.rotations.contains(&event.key_id), "nobody asked for this key")?;
        ensure(self.token_keys.last() != Some(&event.key_id), "it is the key already")?;
        self.token_keys.push(event.key_id.clone());
        if self.tasks.values().any(|task| task.current.is_some()) {
            self.mark_covered(Covered::KeyRotatedUnderLeases);
        }
        Ok(())
    }
}

impl Causes {
    pub(super) fn note_other_command(&mut self, command: &Command) {
        match command {
            Command::StartAttempt(start) => {
                self.starts.insert((start.lease.fencing_token, start.started_by.clone()));
            }
            Command::AttachOperation(_)
            | Command::DetachOperation(_)
            | Command::CreateKey(_)
            | Command::RevokeKey(_) => self.others.push(command.clone()),
            Command::RotateTokenKey(rotate) => {
                self.rotations.insert(rotate.key_id.clone());
            }
            _ => {}
        }
    }

    /// Whether this worker asked for work of this queue and offered what the task requires.
    pub(super) fn offered(
        &self,
        scope: &Scope,
        worker: &Arc<str>,
        task: &TaskModel,
        contract: Option<Contract>,
    ) -> bool {
        let of_worker = self.offers.get(&(scope.clone(), worker.clone()));
        of_worker.is_some_and(|offers| {
            offers.iter().any(|(queue, offered, by)| {
                *queue == task.queue.name
                    && Some(*by) == contract
                    && requirements_met(&task.properties, offered)
            })
        })
    }
}

fn requirements_met(required: &Properties, offered: &Properties) -> bool {
    required.iter().all(|pair| offered.iter().any(|other| other == pair))
}

/// Judges a start, or the coming or going of a waiter.
pub(super) fn other_record(task: &mut TaskModel, event: &Event, causes: &Causes) -> Result<(), String> {
    match event {
        Event::AttemptStarted(AttemptStarted { fencing_token: lease, worker, .. }) => {
            ensure(causes.starts.contains(&(*lease, worker.clone())), "nobody said that it begins")?;
            ensure(task.cancel_grace.is_none(), "it was to stop, not to begin")?;
            let lease = task.leases.get_mut(lease).ok_or("there is no such lease")?;
            ensure(lease.started_by.is_none(), "the attempt was begun already")?;
            lease.started_by = Some(worker.clone());
            Ok(())
        }
        Event::OperationAttached(event) => {
            let (scope, operation) = (task.queue.scope.clone(), event.operation.clone());
            let attach = AttachOperation { scope, task: event.task, operation };
            ensure(causes.others.contains(&Command::AttachOperation(attach)), "nobody asked to wait")?;
            task.ever_waited.insert(event.operation.clone());
            ensure(task.waiters.insert(event.operation.clone()), "it waits already")
        }
        Event::OperationDetached(event) => {
            let (scope, operation) = (task.queue.scope.clone(), event.operation.clone());
            let detach = DetachOperation { scope, task: event.task, operation, by: event.by.clone() };
            ensure(causes.others.contains(&Command::DetachOperation(detach)), "nobody asked to leave")?;
            ensure(task.waiters.remove(&event.operation), "it does not wait")
        }
        _ => Ok(()),
    }
}
