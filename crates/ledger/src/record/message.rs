//! The messages of records and snapshots: the authority's field tables, encoded.

use std::sync::Arc;

use authority::event::{self, DeadReport, Event, ExpiryCause, NextStep, ReleaseCause};
use authority::{
    Backoff, CancelCause, Category, DeadReason, Dedup, Digest, Properties, PushTarget, QueueConfig, QueueKey,
    TaskError, TaskId, TaskOptions, Time, event_table, message_table,
};

use super::codec::{Field, Fields, Message, Value, write_block};
use super::decode_whole;
use super::error::DecodeError;
use super::value::{self, Enumeration, Id, Property, properties};

/// Events, by the authority's table. Each is one message behind its own tag.
macro_rules! events {
    ($($(#[$doc:meta])* $tag:literal $Name:ident($payload:ty) of $subject:ident {
        $($(#[$field_doc:meta])* $field_tag:literal $json:literal $field:ident: $type:ty,)*
    })*) => {
        pub(super) fn encode_event(event: &Event, out: &mut Vec<u8>) {
            match event {
                $(Event::$Name(event) => write_block($tag, out, |out| {
                    $(event.$field.encode($field_tag, out);)*
                }),)*
            }
        }

        /// Reads the event with this tag. A reader skips only what it may ignore.
        pub(super) fn decode_event(tag: u32, bytes: &[u8]) -> Result<Event, DecodeError> {
            let mut fields = Fields(bytes);
            let event = match tag {
                $($tag => Event::$Name(event::$Name {
                    $($field: Field::decode($field_tag, stringify!($field), &mut fields)?,)*
                }.into()),)*
                _ => return Err(DecodeError::Newer("a kind or a field")),
            };
            fields.skip_ignorable()?;
            Ok(event)
        }
    };
}

/// Messages within other messages, by the authority's table or listed below.
macro_rules! messages {
    ($($(#[$doc:meta])* $Name:ident {
        $($(#[$field_doc:meta])* $tag:literal $json:literal $field:ident: $type:ty,)*
    })*) => {
        $(
            impl Message for $Name {
                fn encode_fields(&self, out: &mut Vec<u8>) {
                    $(self.$field.encode($tag, out);)*
                }

                fn decode_fields(fields: &mut Fields<'_>) -> Result<$Name, DecodeError> {
                    Ok($Name { $($field: Field::decode($tag, stringify!($field), fields)?,)* })
                }
            }

            impl Value for $Name {
                fn write(&self, tag: u32, out: &mut Vec<u8>) {
                    write_block(tag, out, |out| self.encode_fields(out));
                }

                fn read(tag: u32, fields: &mut Fields<'_>) -> Result<Option<$Name>, DecodeError> {
                    fields.block(tag)?.map(<$Name as Message>::decode).transpose()
                }
            }
        )*
    };
}

event_table!(events);
message_table!(messages);
messages! {
    Backoff {
        1 "initialMs" initial_ms: u64,
        2 "factor" factor_permille: u32,
        3 "maxMs" max_ms: u64,
        4 "jitter" jitter_permille: u32,
    }
    Dedup {
        1 "key" key: Arc<str>,
        2 "content" content: Digest,
    }
}

/// Values whose protobuf message the snapshot shares.
macro_rules! shared_messages {
    ($($type:ident => $message:ty;)*) => {
        $(impl Value for $type {
            fn write(&self, tag: u32, out: &mut Vec<u8>) {
                prost::encoding::message::encode(tag, &<$message>::from(self), out);
            }

            fn read(tag: u32, fields: &mut Fields<'_>) -> Result<Option<$type>, DecodeError> {
                let Some(bytes) = fields.block(tag)? else { return Ok(None) };
                Ok(Some(decode_whole::<$message>(bytes)?.try_into()?))
            }
        })*
    };
}

shared_messages! {
    TaskId => Id;
    Digest => Id;
    QueueKey => value::QueueKey;
    TaskError => value::TaskError;
    PushTarget => value::PushTarget;
}

macro_rules! enumerations {
    ($($type:ty,)*) => {
        $(impl Value for $type {
            fn write(&self, tag: u32, out: &mut Vec<u8>) {
                self.number().write(tag, out);
            }

            fn read(tag: u32, fields: &mut Fields<'_>) -> Result<Option<$type>, DecodeError> {
                u32::read(tag, fields)?.map(<$type>::from_number).transpose()
            }
        })*
    };
}

enumerations!(CancelCause, DeadReason, ExpiryCause, ReleaseCause,);

/// Fields that every writer writes.
macro_rules! required {
    ($($type:ty,)*) => {
        $(impl Field for $type {
            fn encode(&self, tag: u32, out: &mut Vec<u8>) {
                self.write(tag, out);
            }

            fn decode(tag: u32, name: &'static str, fields: &mut Fields<'_>) -> Result<$type, DecodeError> {
                <$type>::read(tag, fields)?.ok_or(DecodeError::Missing(name))
            }
        })*
    };
}

required!(
    TaskId,
    Digest,
    Arc<QueueKey>,
    TaskError,
    QueueConfig,
    CancelCause,
    DeadReason,
    ExpiryCause,
    ReleaseCause,
);

/// The time of the retry; a final failure has none.
impl Field for NextStep {
    fn encode(&self, tag: u32, out: &mut Vec<u8>) {
        if let NextStep::RetryAt(time) = self {
            time.write(tag, out);
        }
    }

    fn decode(tag: u32, _: &'static str, fields: &mut Fields<'_>) -> Result<NextStep, DecodeError> {
        Ok(Time::read(tag, fields)?.map_or(NextStep::Final, NextStep::RetryAt))
    }
}

impl Field for Arc<Properties> {
    fn encode(&self, tag: u32, out: &mut Vec<u8>) {
        prost::encoding::message::encode_repeated(tag, &properties::pairs(self), out);
    }

    fn decode(tag: u32, _: &'static str, fields: &mut Fields<'_>) -> Result<Arc<Properties>, DecodeError> {
        let mut pairs = Vec::new();
        while let Some(bytes) = fields.block(tag)? {
            pairs.push(decode_whole::<Property>(bytes)?);
        }
        properties::from_pairs(pairs)
    }
}

/// Ids by halves, packed: a purge names up to a thousand tasks.
impl Field for Vec<TaskId> {
    fn encode(&self, tag: u32, out: &mut Vec<u8>) {
        let halves: Vec<u64> = self.iter().flat_map(|id| [(id.0 >> 64) as u64, id.0 as u64]).collect();
        prost::encoding::fixed64::encode_packed(tag, &halves, out);
    }

    fn decode(tag: u32, _: &'static str, fields: &mut Fields<'_>) -> Result<Vec<TaskId>, DecodeError> {
        let (ids, []) = fields.block(tag)?.unwrap_or_default().as_chunks::<16>() else {
            return Err(DecodeError::Invalid("a purged task's id is cut in half"));
        };
        let half = |bytes: &[u8]| bytes.iter().rev().fold(0, |half, byte| half << 8 | u128::from(*byte));
        Ok(ids.iter().map(|id| TaskId(half(&id[..8]) << 64 | half(&id[8..]))).collect())
    }
}

/// A message of its own, because an empty list is not the same as none.
impl Value for Vec<Category> {
    fn write(&self, tag: u32, out: &mut Vec<u8>) {
        let numbers: Vec<u32> = self.iter().map(|category| category.number()).collect();
        prost::encoding::message::encode(tag, &value::Categories { numbers }, out);
    }

    fn read(tag: u32, fields: &mut Fields<'_>) -> Result<Option<Vec<Category>>, DecodeError> {
        let Some(bytes) = fields.block(tag)? else { return Ok(None) };
        let list = decode_whole::<value::Categories>(bytes)?;
        list.numbers.into_iter().map(Category::from_number).collect::<Result<_, _>>().map(Some)
    }
}
