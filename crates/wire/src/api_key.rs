//! API keys: who may call the server, and what for.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// What the holder of a key may do in the tenants of the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    Reader,
    Submitter,
    Worker,
    Builder,
    CacheWriter,
    Operator,
    /// Every call, in all tenants.
    Admin,
}

impl Role {
    pub const ALL: [Role; 7] = [
        Role::Reader,
        Role::Submitter,
        Role::Worker,
        Role::Builder,
        Role::CacheWriter,
        Role::Operator,
        Role::Admin,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Role::Reader => "reader",
            Role::Submitter => "submitter",
            Role::Worker => "worker",
            Role::Builder => "builder",
            Role::CacheWriter => "cache-writer",
            Role::Operator => "operator",
            Role::Admin => "admin",
        }
    }
}

/// Create a key. The server draws its secret.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CreateApiKey {
    /// Unique among the keys that live.
    pub name: String,
    pub roles: Vec<Role>,
    /// The tenants that the key may act for, at most 16; a request chooses one of them with lessor-tenant, or gets the first.
    /// Missing for the role admin, which has all tenants.
    #[serde(default)]
    pub tenants: Vec<String>,
    /// The only queues that it may submit to, lease from and configure, at most 16; all when missing.
    #[serde(default)]
    pub queues: Vec<String>,
    /// How the names of its workers must begin.
    pub worker_prefix: Option<String>,
    /// The only properties that its workers may announce, each with its values, at most 64 in all; a value that ends with `*`
    /// stands for all that begin like it. All when missing.
    #[serde(default)]
    pub properties: BTreeMap<String, Vec<String>>,
    /// When the key ends; never when missing.
    pub expires_at: Option<Timestamp>,
}

/// A key, without its secret.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct ApiKey {
    pub key_id: String,
    pub name: String,
    pub roles: Vec<Role>,
    /// Empty for the role admin, which has all tenants.
    pub tenants: Vec<String>,
    /// All queues when empty.
    pub queues: Vec<String>,
    pub worker_prefix: Option<String>,
    /// The only properties that its workers may announce, each with its values; all when empty.
    #[serde(default)]
    pub properties: BTreeMap<String, Vec<String>>,
    pub expires_at: Option<Timestamp>,
    pub created_at: Timestamp,
    /// The name of the key that created it, or of the command.
    pub created_by: String,
}

/// A key that was just created.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct CreatedApiKey {
    pub key_id: String,
    pub name: String,
    /// The key itself: `Authorization: Bearer KEY`, or the password of HTTP basic. It is shown this once and stored nowhere.
    pub key: String,
}

impl std::fmt::Debug for CreatedApiKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CreatedApiKey {{ key_id: {:?}, name: {:?}, key: *** }}", self.key_id, self.name)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct ApiKeyList {
    pub keys: Vec<ApiKey>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct ApiKeyRevoked {
    pub key_id: String,
}
