//! The push target of a queue.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// What stands for a value that is never shown again.
pub const HIDDEN: &str = "***";
/// How many tasks a target may have at one time when its configuration does not say.
pub const DEFAULT_PUSH_CONCURRENCY: u32 = 10;

/// A push target. Each task is leased to it and sent as a POST with a TaskEnvelope; its worker reports through the
/// callback contract.
#[serde_with::skip_serializing_none]
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PushTarget {
    /// Where each task is sent. `https`, and `http` where private targets are allowed.
    pub url: String,
    /// The most tasks that the target may have at one time, 1 to 1,000.
    #[cfg_attr(feature = "openapi", schema(default = 10))]
    pub concurrency: Option<u32>,
    /// Sent with each task, at most 32. In answers every value is `***`; sent back so, the present value is kept while
    /// the target stays at the same origin.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// Signs each task in the header `lessor-signature`, 16 to 256 bytes. In answers `***`, as with headers.
    pub secret: Option<String>,
}

/// Header values and the secret reach no log.
impl fmt::Debug for PushTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PushTarget")
            .field("url", &self.url)
            .field("concurrency", &self.concurrency)
            .field("headers", &self.headers.keys())
            .field("signed", &self.secret.is_some())
            .finish()
    }
}
