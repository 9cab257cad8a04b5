//! A task with everything it remembers, and the queue it is in.

use std::sync::Arc;

use authority::{Lease, Phase, QueueKey, Task};

use crate::record::codec::{Field, Fields, Value, write_block};
use crate::record::error::DecodeError;
use crate::record::queue_keys::QueueKeys;

/// The tags of a task's fields after its id and its queue. The state takes the tags 10 to 14.
macro_rules! task_fields {
    ($($tag:literal $field:ident,)*) => {
        pub(super) fn encode(queue: &QueueKey, task: &Task, out: &mut Vec<u8>) {
            task.id.encode(1, out);
            queue.write(2, out);
            $(task.$field.encode($tag, out);)*
        }

        pub(super) fn decode(
            fields: &mut Fields<'_>,
            queues: &mut QueueKeys,
        ) -> Result<(Arc<QueueKey>, Box<Task>), DecodeError> {
            let id = Field::decode(1, "the task's id", fields)?;
            let queue = fields.block(2)?.ok_or(DecodeError::Missing("the queue"))?;
            let queue = queues.decode(queue)?;
            let task = Task { id, $($field: Field::decode($tag, stringify!($field), fields)?,)* };
            // The authority subtracts and compares these without asking again.
            if task.releases > task.attempt {
                return Err(DecodeError::Invalid("a task was released more often than granted"));
            }
            if task.created > task.last {
                return Err(DecodeError::Invalid("a task's last record lies before its first"));
            }
            Ok((queue, Box::new(task)))
        }
    };
}

task_fields! {
    3 payload, 4 priority, 5 attempt, 6 releases, 7 created_at, 8 created, 9 last, 10 phase, 15 cancel, 16 reports,
    17 last_error, 18 properties, 19 options, 20 operations, 21 details,
}

/// The state a task is in, one message for each, with what only that state has.
macro_rules! phases {
    ($($tag:literal $Name:ident { $($field_tag:literal $field:ident,)* })*) => {
        impl Field for Phase {
            fn encode(&self, _: u32, out: &mut Vec<u8>) {
                match self {
                    $(Phase::$Name { $($field),* } => write_block($tag, out, |out| {
                        $($field.encode($field_tag, out);)*
                    }),)*
                    Phase::Leased(lease) => lease.write(LEASED, out),
                }
            }

            fn decode(_: u32, _: &'static str, fields: &mut Fields<'_>) -> Result<Phase, DecodeError> {
                $(if let Some(bytes) = fields.block($tag)? {
                    let mut fields = Fields(bytes);
                    let phase =
                        Phase::$Name { $($field: Field::decode($field_tag, stringify!($field), &mut fields)?,)* };
                    fields.finish()?;
                    return Ok(phase);
                })*
                let lease = Box::<Lease>::read(LEASED, fields)?;
                lease.map(Phase::Leased).ok_or(DecodeError::Missing("the task's state"))
            }
        }
    };
}

const LEASED: u32 = 11;

phases! {
    10 Waiting { 1 since, 2 not_before, 3 exhausted, }
    12 Completed { 1 at, 2 ended, 3 result, }
    13 Failed { 1 at, 2 ended, }
    14 Dead { 1 at, 2 ended, 3 reason, 4 detail, }
}
