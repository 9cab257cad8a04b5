//! The messages that several records and snapshot entries share.

mod enumeration;
mod id;
pub mod properties;
mod push_target;
mod queue_key;
mod task_error;

use std::sync::Arc;

use prost::bytes::Bytes;

pub use enumeration::Enumeration;
pub use id::Id;
pub use properties::Property;
pub use push_target::PushTarget;
pub use queue_key::QueueKey;
pub use task_error::{Categories, TaskError};

/// Content for a message, without a copy: a payload may be a megabyte.
pub fn shared(content: &Arc<[u8]>) -> Bytes {
    Bytes::from_owner(content.clone())
}
