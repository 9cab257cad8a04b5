//! A queue's settings were replaced.

use std::sync::Arc;

use authority::event;

use crate::record::error::{DecodeError, need};
use crate::record::value::{QueueConfig, QueueKey};

#[derive(Clone, PartialEq, prost::Message)]
pub struct QueueConfigured {
    #[prost(message, optional, tag = "1")]
    pub queue: Option<QueueKey>,
    #[prost(message, optional, tag = "2")]
    pub config: Option<QueueConfig>,
}

impl From<&event::QueueConfigured> for QueueConfigured {
    fn from(event: &event::QueueConfigured) -> QueueConfigured {
        QueueConfigured { queue: Some(event.queue.as_ref().into()), config: Some((&event.config).into()) }
    }
}

impl TryFrom<QueueConfigured> for event::QueueConfigured {
    type Error = DecodeError;

    fn try_from(message: QueueConfigured) -> Result<event::QueueConfigured, DecodeError> {
        Ok(event::QueueConfigured {
            queue: Arc::new(need(message.queue, "the queue")?.into()),
            config: need(message.config, "the configuration")?.try_into()?,
        })
    }
}
