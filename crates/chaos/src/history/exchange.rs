//! A request and its answer in the coordinator's types, for all contracts.

use authority::command::SubmitAnswer;
use authority::{Answer, Command, TaskId};
use coordinator::{BatchItem, Read, Reply, Request};

use crate::contract::Contract;
use crate::recorder::At;

#[derive(Clone, Debug)]
pub struct Exchange {
    pub contract: Contract,
    pub sent_at: At,
    /// When the answer had arrived, or when it was given up.
    pub ended_at: At,
    pub request: Request,
    /// None when nothing came back: it may have happened or not.
    pub reply: Option<Reply>,
}

impl Exchange {
    /// The task that it is about, where that is one.
    pub fn task(&self) -> Option<TaskId> {
        match (&self.request, &self.reply) {
            (_, Some(Reply::Leased(grants))) => grants.first().map(|grant| grant.task),
            (Request::Read(Read::Task { task, .. }) | Request::Wait { task, .. }, _) => Some(*task),
            (Request::Decide(batch), reply) => match (reply.as_ref().and_then(Reply::answer), &batch[..]) {
                (Some(Answer::Submitted(SubmitAnswer::Created(id))), _) => Some(*id),
                (Some(Answer::Submitted(SubmitAnswer::Existing(view))), _) => Some(view.task.id),
                (_, [BatchItem::Heartbeat { extend, .. }]) => Some(extend.lease.task),
                (_, [BatchItem::Command(command)]) => task_of(command),
                _ => None,
            },
            _ => None,
        }
    }
}

fn task_of(command: &Command) -> Option<TaskId> {
    match command {
        Command::SubmitTask(task) => Some(task.id),
        Command::ReportCompletion(report) => Some(report.lease.task),
        Command::ReportFailure(report) => Some(report.lease.task),
        Command::ReleaseLease(release) => Some(release.lease.task),
        Command::StartAttempt(start) => Some(start.lease.task),
        Command::CancelTask(cancel) => Some(cancel.task),
        _ => None,
    }
}
