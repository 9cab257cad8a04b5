//! The result of an execution as its task records it.
//!
//! Workers report the ActionResult as a protobuf message. Every task's result is JSON, so the record is an object with
//! two members: `exitCode`, for people, and `actionResult`, the encoded message. The member says what the result is: a
//! JSON object without it is the result of another kind of task.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use prost::Message;
use serde::{Deserialize, Serialize};

use crate::InvalidMessage;
use crate::reapi::ActionResult;

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Recorded {
    #[serde(default)]
    exit_code: i32,
    action_result: String,
}

pub fn encode(result: &ActionResult) -> Result<Vec<u8>, InvalidMessage> {
    let action_result = STANDARD.encode(result.encode_to_vec());
    serde_json::to_vec(&Recorded { exit_code: result.exit_code, action_result })
        .map_err(|error| InvalidMessage::new(error.to_string()))
}

pub fn decode(recorded: &[u8]) -> Result<ActionResult, InvalidMessage> {
    let invalid = || InvalidMessage::new("the result is not the result of an action");
    let recorded: Recorded = serde_json::from_slice(recorded).map_err(|_| invalid())?;
    let message = STANDARD.decode(recorded.action_result).map_err(|_| invalid())?;
    ActionResult::decode(&message[..]).map_err(|_| invalid())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_survives_its_record() {
        let result = ActionResult { exit_code: 7, stdout_raw: b"hello".to_vec(), ..ActionResult::default() };
        assert_eq!(decode(&encode(&result).unwrap()), Ok(result));
    }

    /// Written by version 0.1, and by workers of the HTTP contract.
    #[test]
    fn a_record_of_an_earlier_version_and_of_another_order_is_read() {
        let result = ActionResult { exit_code: 7, ..ActionResult::default() };
        for recorded in
            [r#"{"exitCode":7,"actionResult":"IAc="}"#, r#"{ "actionResult" : "IAc=", "new": [] }"#]
        {
            assert_eq!(decode(recorded.as_bytes()), Ok(result.clone()));
        }
        assert_eq!(encode(&result).unwrap(), br#"{"exitCode":7,"actionResult":"IAc="}"#);
    }

    #[test]
    fn the_result_of_another_task_is_not_a_result_of_an_action() {
        for other in [
            "null",
            "7",
            "[]",
            r#"{"exitCode":0,"stdout":""}"#,
            r#"{"actionResult":"%"}"#,
            r#"{"actionResult":"/w=="}"#,
        ] {
            assert!(decode(other.as_bytes()).is_err(), "{other}");
        }
    }
}
