//! Sixteen bytes that name something: a task's id, or a content digest.

use authority::{Digest, TaskId};

/// Two halves rather than a byte string, so that reading one allocates nothing.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct Id {
    #[prost(fixed64, tag = "1")]
    pub high: u64,
    #[prost(fixed64, tag = "2")]
    pub low: u64,
}

impl Id {
    fn new(value: u128) -> Id {
        Id { high: (value >> 64) as u64, low: value as u64 }
    }

    fn value(self) -> u128 {
        u128::from(self.high) << 64 | u128::from(self.low)
    }
}

impl From<&TaskId> for Id {
    fn from(id: &TaskId) -> Id {
        Id::new(id.0)
    }
}

impl From<Id> for TaskId {
    fn from(id: Id) -> TaskId {
        TaskId(id.value())
    }
}

impl From<&Digest> for Id {
    fn from(digest: &Digest) -> Id {
        Id::new(u128::from_be_bytes(digest.0))
    }
}

impl From<Id> for Digest {
    fn from(id: Id) -> Digest {
        Digest(id.value().to_be_bytes())
    }
}
