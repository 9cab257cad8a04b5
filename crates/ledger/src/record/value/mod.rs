//! The messages that several records and snapshot entries share.

mod enumeration;
mod id;
pub(super) mod properties;
mod push_target;
mod queue_key;
mod task_error;

use std::sync::Arc;

use prost::bytes::Bytes;

pub(super) use enumeration::Enumeration;
pub(super) use id::Id;
pub(super) use properties::Property;
pub(super) use push_target::PushTarget;
pub(super) use queue_key::QueueKey;
pub(super) use task_error::{Categories, TaskError};

/// Content for a message, without a copy: a payload may be a megabyte.
pub(super) fn shared(content: &Arc<[u8]>) -> Bytes {
    Bytes::from_owner(content.clone())
}
