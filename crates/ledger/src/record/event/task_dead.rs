//! Policy or an operator ended the task.

use std::sync::Arc;

use authority::{Position, event};

use crate::record::error::{DecodeError, need};
use crate::record::value::{Id, TaskError, dead_reason};

#[derive(Clone, PartialEq, prost::Message)]
pub struct TaskDead {
    #[prost(message, optional, tag = "1")]
    pub task: Option<Id>,
    #[prost(uint32, tag = "2")]
    pub reason: u32,
    #[prost(string, optional, tag = "3")]
    pub detail: Option<String>,
    #[prost(message, optional, tag = "4")]
    pub report: Option<DeadReport>,
}

impl From<&event::TaskDead> for TaskDead {
    fn from(event: &event::TaskDead) -> TaskDead {
        TaskDead {
            task: Some(event.task.into()),
            reason: dead_reason::number(event.reason),
            detail: event.detail.as_deref().map(str::to_owned),
            report: event.report.as_ref().map(DeadReport::from),
        }
    }
}

impl TryFrom<TaskDead> for event::TaskDead {
    type Error = DecodeError;

    fn try_from(message: TaskDead) -> Result<event::TaskDead, DecodeError> {
        Ok(event::TaskDead {
            task: need(message.task, "the task's id")?.into(),
            reason: dead_reason::from_number(message.reason)?,
            detail: message.detail.map(Arc::from),
            report: message.report.map(TryInto::try_into).transpose()?,
        })
    }
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct DeadReport {
    #[prost(uint64, tag = "1")]
    pub fencing_token: u64,
    #[prost(message, optional, tag = "2")]
    pub digest: Option<Id>,
    #[prost(message, optional, tag = "3")]
    pub error: Option<TaskError>,
}

impl From<&event::DeadReport> for DeadReport {
    fn from(report: &event::DeadReport) -> DeadReport {
        DeadReport {
            fencing_token: report.fencing_token.0,
            digest: Some(report.digest.into()),
            error: Some((&report.error).into()),
        }
    }
}

impl TryFrom<DeadReport> for event::DeadReport {
    type Error = DecodeError;

    fn try_from(message: DeadReport) -> Result<event::DeadReport, DecodeError> {
        Ok(event::DeadReport {
            fencing_token: Position(message.fencing_token),
            digest: need(message.digest, "the report's digest")?.into(),
            error: need(message.error, "the error")?.try_into()?,
        })
    }
}
