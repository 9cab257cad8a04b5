//! What the payload of an execution says. Fields that are not known here are for others.

use blobs::{Digest, DigestFunction};
use serde::Deserialize;

use crate::Failure;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Payload {
    pub action: Digest,
    pub instance_name: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Text {
    action_digest: String,
    #[serde(default)]
    digest_function: Option<String>,
    #[serde(default)]
    instance_name: String,
}

impl Payload {
    pub fn read(json: &[u8]) -> Result<Payload, Failure> {
        let bad = |what: String| Failure::invalid_action(format!("the payload is no execution: {what}"));
        let text: Text = serde_json::from_slice(json).map_err(|error| bad(error.to_string()))?;
        let function = match text.digest_function.as_deref() {
            None | Some("SHA256") => DigestFunction::Sha256,
            Some("BLAKE3") => DigestFunction::Blake3,
            Some(other) => return Err(bad(format!("the digest function {other:?} is not known"))),
        };
        let action = Digest::parse(function, &text.action_digest).map_err(|error| bad(error.to_string()))?;
        Ok(Payload { action, instance_name: text.instance_name })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_execution_names_its_action_and_unknown_fields_are_ignored() {
        let action = Digest::of(DigestFunction::Blake3, b"x");
        let json = format!(
            r#"{{"operationName":"o","actionDigest":"{action}","digestFunction":"BLAKE3","instanceName":"i","new":1}}"#
        );
        let payload = Payload::read(json.as_bytes()).unwrap();
        assert_eq!(payload, Payload { action, instance_name: "i".to_owned() });
        for bad in ["", "{}", "[]", r#"{"actionDigest":"x"}"#] {
            assert_eq!(Payload::read(bad.as_bytes()).unwrap_err().code, Failure::INVALID_ACTION);
        }
        let md5 = format!(r#"{{"actionDigest":"{action}","digestFunction":"MD5"}}"#);
        assert!(Payload::read(md5.as_bytes()).is_err());
    }
}
