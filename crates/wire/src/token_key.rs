//! The keys that task tokens are signed with.

use serde::{Deserialize, Serialize};

/// Sign task tokens with a new key.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RotateTokenKey {
    /// Refuse the tokens of all earlier keys from now on. Otherwise those of the last one stay good until they expire.
    #[cfg_attr(feature = "openapi", schema(default = false))]
    pub retire_old: Option<bool>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct TokenKeyRotated {
    /// The `kid` of the tokens that are made from now on.
    pub key_id: String,
}
