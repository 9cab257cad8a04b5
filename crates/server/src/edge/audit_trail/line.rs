//! One line of the audit trail.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Longest line that is read. Every text in a line is bounded, so a longer line is not ours.
pub(super) const MAX_LINE_BYTES: usize = 16 * 1_024;

/// What was asked, by whom, and what became of it. Fields that do not apply are left out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditLine {
    /// The number of the line, from 1, without gaps.
    pub seq: u64,
    pub at: Timestamp,
    /// The newest durable position of the ledger when the line was made.
    pub position: u64,
    /// `denied`, `allowed`, or `opened` and `closed` by the server itself.
    pub audit: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub who: Option<String>,
    /// The kind of the caller's credential: `key`, `token` or `certificate`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// The id of the key, the issuer of the token, or what the certificate is known by.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// The program that made a call of remote execution, and the run of that program (R55).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub invocation_id: Option<String>,
    /// How many lines before this one are missing: too many in a second, or the disk did not take them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suppressed: Option<u64>,
    /// The MAC of the line before.
    pub prev: String,
}
