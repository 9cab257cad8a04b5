//! What a client says of the build that a call is part of (R55). For logs and a task's history; it decides nothing.

use bazel_remote_apis::build::bazel::remote::execution::v2::RequestMetadata;
use prost::Message;
use serde::{Deserialize, Serialize};
use tonic::metadata::MetadataMap;

const HEADER: &str = "build.bazel.remote.execution.v2.requestmetadata-bin";
/// Longest of each text; the rest is cut, because it is for people.
const MAX_TEXT_BYTES: usize = 256;

/// The parts that people search by.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Origin {
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
}

/// What the call's metadata says; nothing when it says nothing that can be read.
pub fn origin(metadata: &MetadataMap) -> Origin {
    let said = metadata.get_bin(HEADER).and_then(|value| value.to_bytes().ok());
    let Some(said) = said.and_then(|bytes| RequestMetadata::decode(bytes).ok()) else {
        return Origin::default();
    };
    let tool = said.tool_details.map(|tool| format!("{} {}", tool.tool_name, tool.tool_version));
    Origin {
        tool: short(tool.unwrap_or_default().trim()),
        invocation: short(&said.tool_invocation_id),
        target: short(&said.target_id),
        mnemonic: short(&said.action_mnemonic),
        correlated_invocations: short(&said.correlated_invocations_id),
    }
}

fn short(text: &str) -> String {
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
    use bazel_remote_apis::build::bazel::remote::execution::v2::ToolDetails;
    use tonic::metadata::MetadataValue;

    use super::*;

    fn said(metadata: RequestMetadata) -> MetadataMap {
        let mut map = MetadataMap::new();
        map.insert_bin(HEADER, MetadataValue::from_bytes(&metadata.encode_to_vec()));
        map
    }

    #[test]
    fn r55_the_tool_the_invocation_and_the_target_are_kept() {
        let tool = ToolDetails { tool_name: "bazel".into(), tool_version: "4.2.3".into() };
        let origin = origin(&said(RequestMetadata {
            tool_details: Some(tool),
            tool_invocation_id: "i-1".into(),
            target_id: "//a:b".into(),
            ..RequestMetadata::default()
        }));
        assert_eq!((origin.tool.as_str(), origin.invocation.as_str()), ("bazel 4.2.3", "i-1"));
        assert_eq!(origin.target, "//a:b");
    }

    #[test]
    fn endless_and_unreadable_words_are_cut_or_left_out() {
        let origin_of = |target_id: String| {
            origin(&said(RequestMetadata { target_id, ..RequestMetadata::default() })).target
        };
        assert_eq!(origin_of("x".repeat(10_000)).len(), MAX_TEXT_BYTES);
        assert_eq!(origin_of("a\nb".to_owned()), "ab");
        let mut garbage = MetadataMap::new();
        garbage.insert_bin(HEADER, MetadataValue::from_bytes(&[0xff; 9]));
        assert!(origin(&garbage).is_empty());
    }
}
