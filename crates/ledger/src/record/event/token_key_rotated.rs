//! A new key signs task tokens.

use authority::event;

use crate::record::error::DecodeError;

#[derive(Clone, PartialEq, prost::Message)]
pub struct TokenKeyRotated {
    #[prost(string, tag = "1")]
    pub key_id: String,
}

impl From<&event::TokenKeyRotated> for TokenKeyRotated {
    fn from(event: &event::TokenKeyRotated) -> TokenKeyRotated {
        TokenKeyRotated { key_id: event.key_id.to_string() }
    }
}

impl TryFrom<TokenKeyRotated> for event::TokenKeyRotated {
    type Error = DecodeError;

    fn try_from(message: TokenKeyRotated) -> Result<event::TokenKeyRotated, DecodeError> {
        Ok(event::TokenKeyRotated { key_id: message.key_id.into() })
    }
}
