//! Reads many records one after the other, faster than each alone.
//!
//! Most records of a long log are plain tasks: an id, a queue and a payload, many in a row for the same queue. Those
//! are read without the messages in between, and share their queue's name in memory. Everything else, and everything
//! that is not written exactly as we write it, goes the general way; the outcome is the same.

use std::sync::Arc;

use authority::{Event, QueueKey, TaskId, Time, event};

use super::value::{self, properties};
use super::{DecodeError, Record, decode, decode_whole};

#[derive(Debug, Default)]
pub struct Reader {
    /// The queue of the last plain task, as it was stored and as it is.
    queue: Option<(Vec<u8>, Arc<QueueKey>)>,
}

impl Reader {
    /// Reads one record that fills `bytes`, as [`decode`] does.
    pub fn decode(&mut self, bytes: &[u8]) -> Result<Record, DecodeError> {
        self.plain_task(bytes).map_or_else(|| decode(bytes), Ok)
    }

    fn plain_task(&mut self, bytes: &[u8]) -> Option<Record> {
        let mut envelope = Fields(bytes);
        let at = Time(envelope.varint(1)?);
        let mut task = Fields(envelope.last_block(3)?);
        let id = id(task.block(1)?)?;
        let queue = self.queue(task.block(2)?)?;
        let payload = Arc::from(task.last_block(3)?);
        let event = event::TaskCreated {
            task: id,
            queue,
            payload,
            priority: 0,
            not_before: None,
            properties: properties::nothing(),
            options: None,
            operation: None,
        };
        Some(Record { at, prev: None, event: Event::TaskCreated(Box::new(event)) })
    }

    fn queue(&mut self, stored: &[u8]) -> Option<Arc<QueueKey>> {
        match &self.queue {
            Some((same, queue)) if same == stored => Some(queue.clone()),
            _ => {
                let queue: Arc<QueueKey> = Arc::new(decode_whole::<value::QueueKey>(stored).ok()?.into());
                self.queue = Some((stored.to_vec(), queue.clone()));
                Some(queue)
            }
        }
    }
}

/// Both halves, which are left out when they are zero.
fn id(stored: &[u8]) -> Option<TaskId> {
    let (&[HIGH_KEY], rest) = stored.split_first_chunk()? else { return None };
    let (high, rest) = rest.split_first_chunk()?;
    let (&[LOW_KEY], rest) = rest.split_first_chunk()? else { return None };
    let (high, low) = (u64::from_le_bytes(*high), u64::from_le_bytes(rest.try_into().ok()?));
    (high != 0 && low != 0).then_some(TaskId(u128::from(high) << 64 | u128::from(low)))
}

/// A field's number and, in the lowest three bits, its type: eight bytes.
const HIGH_KEY: u8 = 1 << 3 | 1;
const LOW_KEY: u8 = 2 << 3 | 1;

/// Fields in rising order, none of them empty, as the encoder writes them. All keys used here take one byte.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn varint(&mut self, field: u8) -> Option<u64> {
        self.key(field << 3)?;
        self.number().filter(|value| *value != 0)
    }

    fn block(&mut self, field: u8) -> Option<&'a [u8]> {
        self.key(field << 3 | 2)?;
        let length = usize::try_from(self.number()?).ok()?;
        let (block, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        (!block.is_empty()).then_some(block)
    }

    /// A block with nothing behind it.
    fn last_block(mut self, field: u8) -> Option<&'a [u8]> {
        self.block(field).filter(|_| self.0.is_empty())
    }

    fn key(&mut self, key: u8) -> Option<()> {
        let (found, rest) = self.0.split_first()?;
        self.0 = rest;
        (*found == key).then_some(())
    }

    /// In groups of seven bits, the lowest first, and no more of them than needed.
    fn number(&mut self) -> Option<u64> {
        const MAX_GROUPS: usize = 9;
        let mut value = 0;
        for group in 0..MAX_GROUPS {
            let (byte, rest) = self.0.split_first()?;
            self.0 = rest;
            value |= u64::from(byte & 0x7f) << (7 * group);
            if byte & 0x80 == 0 {
                return (*byte != 0 || group == 0).then_some(value);
            }
        }
        None
    }
}
