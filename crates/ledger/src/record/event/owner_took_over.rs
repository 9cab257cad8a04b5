//! A node became the owner of this ledger.

use authority::event;

use crate::record::error::DecodeError;

#[derive(Clone, PartialEq, prost::Message)]
pub struct OwnerTookOver {
    #[prost(uint64, tag = "1")]
    pub epoch: u64,
    #[prost(string, tag = "2")]
    pub node: String,
}

impl From<&event::OwnerTookOver> for OwnerTookOver {
    fn from(event: &event::OwnerTookOver) -> OwnerTookOver {
        OwnerTookOver { epoch: event.epoch, node: event.node.to_string() }
    }
}

impl TryFrom<OwnerTookOver> for event::OwnerTookOver {
    type Error = DecodeError;

    fn try_from(message: OwnerTookOver) -> Result<event::OwnerTookOver, DecodeError> {
        Ok(event::OwnerTookOver { epoch: message.epoch, node: message.node.into() })
    }
}
