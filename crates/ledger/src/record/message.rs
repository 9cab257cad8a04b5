//! The messages of records: the authority's field tables, encoded.

use authority::event::{self, DeadReport, Event};
use authority::{Actor, ApiKey, QueueConfig, ReportDetails, TaskOptions, event_table, message_table};

use super::codec::{Field, Fields, Message, UNKNOWN_FIELD, Value, messages, write_block};
use super::error::DecodeError;

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
                _ => return Err(UNKNOWN_FIELD),
            };
            fields.skip_ignorable()?;
            Ok(event)
        }
    };
}

/// Messages within events and snapshots, by the authority's table.
macro_rules! message_fields {
    ($($(#[$doc:meta])* $Name:ident {
        $($(#[$field_doc:meta])* $tag:literal $json:literal $field:ident: $type:ty,)*
    })*) => {
        messages! { skip_ignorable: $($Name { $($tag $field,)* })* }
    };
}

event_table!(events);
message_table!(message_fields);
