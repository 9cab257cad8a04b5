//! What the payload of an execution says. Fields that are not known here are for others.

use bazel_remote_apis::build::bazel::remote::execution::v2::{RequestMetadata, ToolDetails};
use blobs::{Digest, DigestFunction};
use serde::Deserialize;

use crate::Failure;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Payload {
    pub action: Digest,
    pub instance_name: String,
    pub origin: Origin,
}

/// What the client said of the build that the action is part of.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Origin {
    tool: String,
    invocation: String,
    target: String,
    mnemonic: String,
    correlated_invocations: String,
}

impl Origin {
    /// In the protocol's words, if there is anything to say.
    pub fn told(&self) -> Option<RequestMetadata> {
        let (name, version) = self.tool.rsplit_once(' ').unwrap_or((&self.tool, ""));
        let tool = ToolDetails { tool_name: name.to_owned(), tool_version: version.to_owned() };
        (*self != Origin::default()).then(|| RequestMetadata {
            tool_details: (!self.tool.is_empty()).then_some(tool),
            tool_invocation_id: self.invocation.clone(),
            target_id: self.target.clone(),
            action_mnemonic: self.mnemonic.clone(),
            correlated_invocations_id: self.correlated_invocations.clone(),
            ..RequestMetadata::default()
        })
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Text {
    action_digest: String,
    #[serde(default)]
    digest_function: Option<String>,
    #[serde(default)]
    instance_name: String,
    #[serde(default)]
    origin: Origin,
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
        Ok(Payload { action, instance_name: text.instance_name, origin: text.origin })
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
        assert_eq!((payload.action, payload.instance_name.as_str()), (action, "i"));
        assert_eq!(payload.origin.told(), None);
        for bad in ["", "{}", "[]", r#"{"actionDigest":"x"}"#] {
            assert_eq!(Payload::read(bad.as_bytes()).unwrap_err().code, Failure::INVALID_ACTION);
        }
        let md5 = format!(r#"{{"actionDigest":"{action}","digestFunction":"MD5"}}"#);
        assert!(Payload::read(md5.as_bytes()).is_err());
    }
}
