//! A task with everything it remembers, and the queue it is in.

use std::sync::Arc;

use authority::{CancelCause, Position, TaskOptions, Time};
use prost::bytes::Bytes;

use super::phase::Phase;
use super::report::Report;
use crate::record::codec::{Message as _, encoded};
use crate::record::error::{DecodeError, need};
use crate::record::value::{Enumeration, Id, Property, QueueKey, TaskError, properties, shared};

#[derive(Clone, PartialEq, prost::Message)]
pub struct Task {
    #[prost(message, optional, tag = "1")]
    pub id: Option<Id>,
    #[prost(message, optional, tag = "2")]
    pub queue: Option<QueueKey>,
    #[prost(bytes = "bytes", tag = "3")]
    pub payload: Bytes,
    #[prost(sint32, tag = "4")]
    pub priority: i32,
    #[prost(uint32, tag = "5")]
    pub attempt: u32,
    #[prost(uint32, tag = "6")]
    pub releases: u32,
    #[prost(uint64, tag = "7")]
    pub created_at: u64,
    #[prost(uint64, tag = "8")]
    pub created: u64,
    #[prost(uint64, tag = "9")]
    pub last: u64,
    #[prost(oneof = "Phase", tags = "10, 11, 12, 13, 14")]
    pub phase: Option<Phase>,
    #[prost(message, optional, tag = "15")]
    pub cancel: Option<CancelRequest>,
    #[prost(message, repeated, tag = "16")]
    pub reports: Vec<Report>,
    #[prost(message, optional, tag = "17")]
    pub last_error: Option<TaskError>,
    #[prost(message, repeated, tag = "18")]
    pub properties: Vec<Property>,
    /// The encoded message.
    #[prost(bytes = "bytes", optional, tag = "19")]
    pub options: Option<Bytes>,
    #[prost(string, repeated, tag = "20")]
    pub operations: Vec<String>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct CancelRequest {
    #[prost(uint32, tag = "1")]
    pub cause: u32,
    #[prost(string, tag = "2")]
    pub reason: String,
    #[prost(uint64, tag = "3")]
    pub requested_at: u64,
    #[prost(uint64, tag = "4")]
    pub grace_until: u64,
}

impl Task {
    pub fn new(queue: &authority::QueueKey, task: &authority::Task) -> Task {
        Task {
            id: Some((&task.id).into()),
            queue: Some(queue.into()),
            payload: shared(&task.payload),
            priority: task.priority,
            attempt: task.attempt,
            releases: task.releases,
            created_at: task.created_at.0,
            created: task.created.0,
            last: task.last.0,
            phase: Some((&task.phase).into()),
            cancel: task.cancel.as_deref().map(CancelRequest::from),
            reports: task.reports.iter().map(Report::from).collect(),
            last_error: task.last_error.as_deref().map(TaskError::from),
            properties: properties::pairs(&task.properties),
            options: task.options.as_deref().map(encoded),
            operations: task.operations.iter().map(|name| name.to_string()).collect(),
        }
    }

    pub fn into_parts(self) -> Result<(authority::QueueKey, authority::Task), DecodeError> {
        // The authority subtracts and compares these without asking again.
        if self.releases > self.attempt {
            return Err(DecodeError::Invalid("a task was released more often than granted"));
        }
        if self.created > self.last {
            return Err(DecodeError::Invalid("a task's last record lies before its first"));
        }
        let task = authority::Task {
            id: need(self.id, "the task's id")?.into(),
            payload: Arc::from(&self.payload[..]),
            priority: self.priority,
            attempt: self.attempt,
            releases: self.releases,
            created_at: Time(self.created_at),
            created: Position(self.created),
            last: Position(self.last),
            phase: need(self.phase, "the task's state")?.try_into()?,
            cancel: self.cancel.map(|cancel| cancel.try_into().map(Box::new)).transpose()?,
            reports: self.reports.into_iter().map(authority::Report::try_from).collect::<Result<_, _>>()?,
            last_error: self.last_error.map(|error| error.try_into().map(Box::new)).transpose()?,
            properties: properties::from_pairs(self.properties)?,
            options: self.options.map(|bytes| TaskOptions::decode(&bytes).map(Arc::new)).transpose()?,
            operations: self.operations.into_iter().map(Arc::from).collect(),
        };
        Ok((need(self.queue, "the queue")?.into(), task))
    }
}

impl From<&authority::CancelRequest> for CancelRequest {
    fn from(cancel: &authority::CancelRequest) -> CancelRequest {
        CancelRequest {
            cause: cancel.cause.number(),
            reason: cancel.reason.to_string(),
            requested_at: cancel.requested_at.0,
            grace_until: cancel.grace_until.0,
        }
    }
}

impl TryFrom<CancelRequest> for authority::CancelRequest {
    type Error = DecodeError;

    fn try_from(cancel: CancelRequest) -> Result<authority::CancelRequest, DecodeError> {
        Ok(authority::CancelRequest {
            cause: CancelCause::from_number(cancel.cause)?,
            reason: cancel.reason.into(),
            requested_at: Time(cancel.requested_at),
            grace_until: Time(cancel.grace_until),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An element of a list takes at least two bytes, a tag and a length. A list grows by doubling, so while it
    /// moves it takes at most three times its elements: together less than a hundred bytes for each of the input.
    #[test]
    fn a_list_of_empty_elements_takes_less_than_a_hundred_times_its_bytes() {
        const SMALLEST_ELEMENT_BYTES: usize = 2;
        const GROWTH: usize = 3;
        for element in [size_of::<Report>(), size_of::<Property>(), size_of::<String>()] {
            assert!(element * GROWTH <= 100 * SMALLEST_ELEMENT_BYTES, "{element} bytes");
        }
    }
}
