//! Reads many records one after the other, faster than each alone.
//!
//! Most records of a long log are plain tasks: an id, a queue and a payload, many for the same few queues. Those share
//! their queue's name in memory. Every other record goes the general way; the outcome is the same.

use std::sync::Arc;

use authority::{Event, TaskId, Time, event};

use super::codec::{Fields, Value};
use super::queue_keys::QueueKeys;
use super::value::no_properties;
use super::{DecodeError, Record, decode};

#[derive(Debug, Default)]
pub struct Reader {
    queues: QueueKeys,
}

impl Reader {
    /// Reads one record that fills `bytes`, as [`decode`] does.
    pub fn decode(&mut self, bytes: &[u8]) -> Result<Record, DecodeError> {
        match self.plain_task(bytes) {
            Ok(Some(record)) => Ok(record),
            _ => decode(bytes),
        }
    }

    /// The record of a task without optional fields; anything else is `None` or an error.
    fn plain_task(&mut self, bytes: &[u8]) -> Result<Option<Record>, DecodeError> {
        const TASK_CREATED: u32 = 3;
        let mut record = Fields(bytes);
        let Some(at @ 1..) = record.varint(1)? else { return Ok(None) };
        let Some(body) = record.block(TASK_CREATED)? else { return Ok(None) };
        record.finish()?;
        let mut fields = Fields(body);
        let (Some(task), Some(queue), Some(payload @ [_, ..])) =
            (TaskId::read(1, &mut fields)?, fields.block(2)?, fields.block(3)?)
        else {
            return Ok(None);
        };
        fields.finish()?;
        let event = event::TaskCreated {
            task,
            queue: self.queues.decode(queue)?,
            payload: Arc::from(payload),
            priority: 0,
            not_before: None,
            properties: no_properties(),
            options: None,
            operation: None,
            by: None,
        };
        Ok(Some(Record { at: Time(at), prev: None, event: Event::TaskCreated(Box::new(event)) }))
    }
}
