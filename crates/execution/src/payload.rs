//! The payload of an execution's task: JSON with everything that a worker needs to run the action, and that the server
//! needs to cache its result.

use blobs::Digest;
use serde::{Deserialize, Serialize};

use crate::{InvalidMessage, Origin, digest};

/// Unknown members are ignored. A task that was submitted without the Execution service needs only `actionDigest`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExecutionPayload {
    #[serde(default)]
    pub operation_name: String,
    /// `{hash}/{size}`
    pub action_digest: String,
    /// The name in the Remote Execution API, such as `SHA256`.
    #[serde(default = "sha256")]
    pub digest_function: String,
    #[serde(default)]
    pub instance_name: String,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub do_not_cache: bool,
    /// The request must not be served an earlier result, so no later request joins an execution that began before it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub skip_cache_lookup: bool,
    /// How long the command may run: the action's own timeout, or the server's default (S3-19).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Origin::is_empty")]
    pub origin: Origin,
}

fn sha256() -> String {
    "SHA256".to_owned()
}

impl ExecutionPayload {
    pub fn decode(json: &[u8]) -> Result<ExecutionPayload, InvalidMessage> {
        serde_json::from_slice(json).map_err(|error| not_an_execution(&error))
    }

    pub fn encode(&self) -> Result<Vec<u8>, InvalidMessage> {
        serde_json::to_vec(self).map_err(|error| not_an_execution(&error))
    }

    pub fn action(&self) -> Result<Digest, InvalidMessage> {
        let function = digest::function_from_name(&self.digest_function)?;
        Digest::parse(function, &self.action_digest).map_err(|error| not_an_execution(&error))
    }
}

fn not_an_execution(why: &dyn std::fmt::Display) -> InvalidMessage {
    InvalidMessage::new(format!("the payload is not an execution: {why}"))
}

#[cfg(test)]
mod tests {
    use blobs::DigestFunction;

    use super::*;

    #[test]
    fn a_payload_names_its_action_and_unknown_members_are_ignored() {
        let action = Digest::of(DigestFunction::Blake3, b"x");
        let json = format!(
            r#"{{"operationName":"o","actionDigest":"{action}","digestFunction":"BLAKE3","instanceName":"i","new":1}}"#
        );
        let payload = ExecutionPayload::decode(json.as_bytes()).unwrap();
        assert_eq!((payload.action(), payload.instance_name.as_str()), (Ok(action), "i"));
        assert!(payload.origin.is_empty());
        assert_eq!(ExecutionPayload::decode(&payload.encode().unwrap()), Ok(payload));
    }

    #[test]
    fn the_digest_function_is_sha256_unless_the_payload_names_another() {
        let action = Digest::of(DigestFunction::Sha256, b"x");
        let json = format!(r#"{{"actionDigest":"{action}"}}"#);
        assert_eq!(ExecutionPayload::decode(json.as_bytes()).unwrap().action(), Ok(action));
        let md5 = format!(r#"{{"actionDigest":"{action}","digestFunction":"MD5"}}"#);
        assert!(ExecutionPayload::decode(md5.as_bytes()).unwrap().action().is_err());
    }

    #[test]
    fn other_payloads_are_refused() {
        for other in ["", "{}", "[]", r#"{"command":["ls"]}"#] {
            assert!(ExecutionPayload::decode(other.as_bytes()).is_err(), "{other}");
        }
        assert!(ExecutionPayload::decode(br#"{"actionDigest":"x"}"#).unwrap().action().is_err());
    }
}
