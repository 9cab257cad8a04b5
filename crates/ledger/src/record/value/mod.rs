//! The messages that several records and snapshot entries share.

pub mod cancel_cause;
mod category;
pub mod dead_reason;
mod id;
pub mod properties;
mod push_target;
mod queue_config;
mod queue_key;
mod task_error;
mod task_options;

use std::sync::Arc;

use prost::bytes::Bytes;

pub use id::Id;
pub use properties::Property;
pub use push_target::PushTarget;
pub use queue_config::{Backoff, QueueConfig};
pub use queue_key::QueueKey;
pub use task_error::TaskError;
pub use task_options::TaskOptions;

/// Content for a message, without a copy: a payload may be a megabyte.
pub fn shared(content: &Arc<[u8]>) -> Bytes {
    Bytes::from_owner(content.clone())
}
