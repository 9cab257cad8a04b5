//! The outer message of a record, and the list of event kinds with their tags.
//!
//! A tag is never used again for another kind. A new kind needs a new format version.

use authority::Event;

use super::error::DecodeError;
use super::event::{
    AttemptStarted, CancelRequested, LeaseExpired, LeaseExtended, LeaseGranted, LeaseReleased,
    OperationAttached, OperationDetached, OwnerTookOver, QueueConfigured, TaskCancelled, TaskCompleted,
    TaskCreated, TaskDead, TaskFailed, TasksPurged, TokenKeyRotated,
};

#[derive(Clone, PartialEq, prost::Message)]
pub struct Envelope {
    #[prost(uint64, tag = "1")]
    pub at: u64,
    #[prost(uint64, optional, tag = "2")]
    pub prev: Option<u64>,
    #[prost(oneof = "Kind", tags = "3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19")]
    pub kind: Option<Kind>,
}

/// The tags up to 15 take one byte; what happens for every task has one of them.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Kind {
    #[prost(message, boxed, tag = "3")]
    TaskCreated(Box<TaskCreated>),
    #[prost(message, tag = "4")]
    LeaseGranted(LeaseGranted),
    #[prost(message, tag = "5")]
    LeaseExtended(LeaseExtended),
    #[prost(message, tag = "6")]
    LeaseExpired(LeaseExpired),
    #[prost(message, tag = "7")]
    LeaseReleased(LeaseReleased),
    #[prost(message, tag = "8")]
    AttemptStarted(AttemptStarted),
    #[prost(message, tag = "9")]
    TaskCompleted(TaskCompleted),
    #[prost(message, tag = "10")]
    TaskFailed(TaskFailed),
    #[prost(message, tag = "11")]
    TaskDead(TaskDead),
    #[prost(message, tag = "12")]
    TaskCancelled(TaskCancelled),
    #[prost(message, tag = "13")]
    CancelRequested(CancelRequested),
    #[prost(message, tag = "14")]
    OperationAttached(OperationAttached),
    #[prost(message, tag = "15")]
    OperationDetached(OperationDetached),
    #[prost(message, tag = "16")]
    QueueConfigured(QueueConfigured),
    #[prost(message, tag = "17")]
    TasksPurged(TasksPurged),
    #[prost(message, tag = "18")]
    TokenKeyRotated(TokenKeyRotated),
    #[prost(message, tag = "19")]
    OwnerTookOver(OwnerTookOver),
}

impl From<&Event> for Kind {
    fn from(event: &Event) -> Kind {
        match event {
            Event::TaskCreated(event) => Kind::TaskCreated(Box::new(event.as_ref().into())),
            Event::LeaseGranted(event) => Kind::LeaseGranted(event.into()),
            Event::LeaseExtended(event) => Kind::LeaseExtended(event.into()),
            Event::LeaseExpired(event) => Kind::LeaseExpired(event.into()),
            Event::LeaseReleased(event) => Kind::LeaseReleased(event.into()),
            Event::AttemptStarted(event) => Kind::AttemptStarted(event.into()),
            Event::TaskCompleted(event) => Kind::TaskCompleted(event.into()),
            Event::TaskFailed(event) => Kind::TaskFailed(event.into()),
            Event::TaskDead(event) => Kind::TaskDead(event.into()),
            Event::TaskCancelled(event) => Kind::TaskCancelled(event.into()),
            Event::CancelRequested(event) => Kind::CancelRequested(event.into()),
            Event::OperationAttached(event) => Kind::OperationAttached(event.into()),
            Event::OperationDetached(event) => Kind::OperationDetached(event.into()),
            Event::QueueConfigured(event) => Kind::QueueConfigured(event.into()),
            Event::TasksPurged(event) => Kind::TasksPurged(event.into()),
            Event::TokenKeyRotated(event) => Kind::TokenKeyRotated(event.into()),
            Event::OwnerTookOver(event) => Kind::OwnerTookOver(event.into()),
        }
    }
}

impl TryFrom<Kind> for Event {
    type Error = DecodeError;

    fn try_from(kind: Kind) -> Result<Event, DecodeError> {
        Ok(match kind {
            Kind::TaskCreated(event) => Event::TaskCreated(Box::new((*event).try_into()?)),
            Kind::LeaseGranted(event) => Event::LeaseGranted(event.try_into()?),
            Kind::LeaseExtended(event) => Event::LeaseExtended(event.try_into()?),
            Kind::LeaseExpired(event) => Event::LeaseExpired(event.try_into()?),
            Kind::LeaseReleased(event) => Event::LeaseReleased(event.try_into()?),
            Kind::AttemptStarted(event) => Event::AttemptStarted(event.try_into()?),
            Kind::TaskCompleted(event) => Event::TaskCompleted(event.try_into()?),
            Kind::TaskFailed(event) => Event::TaskFailed(event.try_into()?),
            Kind::TaskDead(event) => Event::TaskDead(event.try_into()?),
            Kind::TaskCancelled(event) => Event::TaskCancelled(event.try_into()?),
            Kind::CancelRequested(event) => Event::CancelRequested(event.try_into()?),
            Kind::OperationAttached(event) => Event::OperationAttached(event.try_into()?),
            Kind::OperationDetached(event) => Event::OperationDetached(event.try_into()?),
            Kind::QueueConfigured(event) => Event::QueueConfigured(event.try_into()?),
            Kind::TasksPurged(event) => Event::TasksPurged(event.try_into()?),
            Kind::TokenKeyRotated(event) => Event::TokenKeyRotated(event.try_into()?),
            Kind::OwnerTookOver(event) => Event::OwnerTookOver(event.try_into()?),
        })
    }
}
