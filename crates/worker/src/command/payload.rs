//! The payload of a command task. Unknown fields are refused, because a misspelt `timeoutMs` would otherwise be no
//! timeout.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;

use crate::Failure;

const EXAMPLE: &str = r#"{"command":["cc","-c","a.c"],"env":{"LANG":"C"},"timeoutMs":60000}"#;

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Payload {
    /// The program and its arguments; no shell is between.
    pub command: Vec<String>,
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    #[serde(default)]
    timeout_ms: Option<u64>,
    /// For the executor, such as `container-image`.
    #[serde(default)]
    pub platform: BTreeMap<String, String>,
}

impl Payload {
    pub(crate) fn decode(json: &[u8]) -> Result<Payload, Failure> {
        let bad = |what: String| Failure::invalid_payload(format!("the payload is no command: {what}"));
        let payload: Payload = serde_json::from_slice(json)
            .map_err(|error| bad(format!("{error}; it is an object such as {EXAMPLE}")))?;
        if payload.command.first().is_none_or(String::is_empty) {
            return Err(bad("`command` names no program".to_owned()));
        }
        if payload.command.iter().chain(payload.env.values()).any(|text| text.contains('\0')) {
            return Err(bad("`command` and `env` cannot contain the character 0".to_owned()));
        }
        if let Some(name) = payload.env.keys().find(|name| name.is_empty() || name.contains(['=', '\0'])) {
            return Err(bad(format!("`env` cannot name a variable {name:?}")));
        }
        if payload.timeout_ms == Some(0) {
            return Err(bad("`timeoutMs` must be at least 1".to_owned()));
        }
        Ok(payload)
    }

    pub(super) fn timeout(&self) -> Option<Duration> {
        self.timeout_ms.map(Duration::from_millis)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_has_a_program_and_may_have_more() {
        let json =
            br#"{"command":["sh","-c","x"],"env":{"A":"1"},"timeoutMs":50,"platform":{"container-image":"i"}}"#;
        let payload = Payload::decode(json).unwrap();
        assert_eq!(payload.command, ["sh", "-c", "x"]);
        assert_eq!((payload.env["A"].as_str(), payload.platform["container-image"].as_str()), ("1", "i"));
        assert_eq!(payload.timeout(), Some(Duration::from_millis(50)));
        assert_eq!(Payload::decode(br#"{"command":["true"]}"#).unwrap().timeout(), None);
    }

    #[test]
    fn what_is_no_command_is_refused_for_good_and_says_why() {
        assert!(Payload::decode(EXAMPLE.as_bytes()).is_ok());
        for (json, word) in [
            (r#""x""#, EXAMPLE),
            (r#"{"command":[]}"#, "no program"),
            (r#"{"command":[""]}"#, "no program"),
            (r#"{"command":"ls"}"#, "sequence"),
            (r#"{"command":["a\u0000b"]}"#, "character 0"),
            (r#"{"command":["a"],"env":{"A=B":""}}"#, "A=B"),
            (r#"{"command":["a"],"env":{"":""}}"#, "variable"),
            (r#"{"command":["a"],"timeoutMs":0}"#, "timeoutMs"),
            (r#"{"command":["a"],"timeoutMs":-5}"#, "integer"),
            (r#"{"command":["a"],"timeout":5}"#, "unknown field `timeout`"),
        ] {
            let failure = Payload::decode(json.as_bytes()).unwrap_err();
            assert_eq!((failure.code, failure.retryable), (Failure::INVALID_PAYLOAD, false), "{json}");
            assert!(failure.message.contains(word), "{json}: {failure}");
        }
    }
}
