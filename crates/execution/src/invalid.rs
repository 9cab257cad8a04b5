//! The error for a message that breaks the rules of the protocol. The sender has to change the message.

use tonic::Status;

use crate::Failure;

/// The text says what is wrong, for people.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidMessage(String);

impl InvalidMessage {
    pub fn new(what: impl Into<String>) -> InvalidMessage {
        InvalidMessage(what.into())
    }
}

impl From<InvalidMessage> for Status {
    fn from(invalid: InvalidMessage) -> Status {
        Status::invalid_argument(invalid.0)
    }
}

impl From<InvalidMessage> for Failure {
    fn from(invalid: InvalidMessage) -> Failure {
        Failure::invalid_action(invalid.0)
    }
}
