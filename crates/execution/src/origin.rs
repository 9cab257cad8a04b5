//! The build that an action is part of, as its client named it (R55). For logs and a task's history; it decides nothing.

use serde::{Deserialize, Serialize};

use crate::reapi::{RequestMetadata, ToolDetails};

/// Longest of each text; longer texts are cut, because they are for people.
const MAX_TEXT_BYTES: usize = 256;

/// The parts of the request metadata that people search by.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Origin {
    /// The name and the version.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub tool: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub invocation: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub target: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub mnemonic: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub correlated_invocations: String,
}

impl Origin {
    pub fn is_empty(&self) -> bool {
        *self == Origin::default()
    }

    pub fn from_proto(metadata: &RequestMetadata) -> Origin {
        let tool = metadata.tool_details.as_ref();
        let tool = tool.map(|tool| format!("{} {}", tool.tool_name, tool.tool_version)).unwrap_or_default();
        Origin {
            tool: printable(tool.trim()),
            invocation: printable(&metadata.tool_invocation_id),
            target: printable(&metadata.target_id),
            mnemonic: printable(&metadata.action_mnemonic),
            correlated_invocations: printable(&metadata.correlated_invocations_id),
        }
    }

    /// None for an empty origin.
    pub fn to_proto(&self) -> Option<RequestMetadata> {
        let (name, version) = self.tool.rsplit_once(' ').unwrap_or((&self.tool, ""));
        let tool = ToolDetails { tool_name: name.to_owned(), tool_version: version.to_owned() };
        (!self.is_empty()).then(|| RequestMetadata {
            tool_details: (!self.tool.is_empty()).then_some(tool),
            tool_invocation_id: self.invocation.clone(),
            target_id: self.target.clone(),
            action_mnemonic: self.mnemonic.clone(),
            correlated_invocations_id: self.correlated_invocations.clone(),
            ..RequestMetadata::default()
        })
    }
}

/// The beginning of the text, without control characters.
fn printable(text: &str) -> String {
    text.chars()
        .filter(|character| !character.is_control())
        .scan(0, |bytes, character| {
            *bytes += character.len_utf8();
            (*bytes <= MAX_TEXT_BYTES).then_some(character)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r55_the_tool_the_invocation_and_the_target_survive_the_conversion() {
        let tool = ToolDetails { tool_name: "bazel".into(), tool_version: "4.2.3".into() };
        let metadata = RequestMetadata {
            tool_details: Some(tool),
            tool_invocation_id: "i-1".into(),
            target_id: "//a:b".into(),
            ..RequestMetadata::default()
        };
        let origin = Origin::from_proto(&metadata);
        assert_eq!((origin.tool.as_str(), origin.invocation.as_str()), ("bazel 4.2.3", "i-1"));
        assert_eq!(origin.to_proto(), Some(metadata));
        assert_eq!(Origin::default().to_proto(), None);
    }

    #[test]
    fn long_texts_are_cut_and_control_characters_are_removed() {
        let target = |target_id: String| {
            Origin::from_proto(&RequestMetadata { target_id, ..RequestMetadata::default() }).target
        };
        assert_eq!(target("x".repeat(10_000)).len(), MAX_TEXT_BYTES);
        assert_eq!(target("a\nb".to_owned()), "ab");
    }
}
