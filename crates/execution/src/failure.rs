//! Failures of an attempt, as a worker reports them, and their codes.
//!
//! An action that ran and exited with any code has a result and is not a failure. A failure says why there is no
//! result, and whether another attempt may help. That of a stopped command has the output up to there.

use std::io;

use blobs::Digest;
use wire::grpc::ErrorCategory;

use crate::reapi::ActionResult;

/// The longest message that the coordinator accepts.
const MAX_MESSAGE_BYTES: usize = 16 * 1024;

#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{code}: {message}")]
pub struct Failure {
    /// One of the codes below; stable, for programs.
    pub code: &'static str,
    pub category: ErrorCategory,
    /// For people, except where the code says otherwise.
    pub message: String,
    pub retryable: bool,
    /// What the command of an action had written when it was stopped.
    pub partial: Option<Box<ActionResult>>,
}

impl Failure {
    /// The command ran for longer than its action allows.
    pub const TIMEOUT: &'static str = "timeout";
    /// Blobs that the action needs are not in the store; the message is a JSON list of `hash/size`.
    pub const MISSING_INPUTS: &'static str = "missing_inputs";
    /// The action itself breaks the rules of the protocol.
    pub const INVALID_ACTION: &'static str = "invalid_action";
    /// The worker cannot run the payload.
    pub const INVALID_PAYLOAD: &'static str = "invalid_payload";
    /// A task's command exited with a code other than 0.
    pub const EXIT_CODE: &'static str = "exit_code";
    /// The task requires more than the worker has in total.
    pub const NOT_ENOUGH_RESOURCES: &'static str = "not_enough_resources";
    /// The worker's disk is full.
    pub const DISK_FULL: &'static str = "disk_full";
    /// An output of the command cannot be reported.
    pub const INVALID_OUTPUT: &'static str = "invalid_output";
    /// The command wrote more to its standard output or error than the worker allows.
    pub const OUTPUT_TOO_LARGE: &'static str = "output_too_large";
    /// The command needed more memory than the worker allows.
    pub const OUT_OF_MEMORY: &'static str = "out_of_memory";
    /// Inputs changed while the command ran.
    pub const INPUTS_CHANGED: &'static str = "inputs_changed";
    /// The coordinator rejects the result, for example because it is too large.
    pub const RESULT_REJECTED: &'static str = "result_rejected";
    /// The content store could not be used.
    pub const CAS_UNAVAILABLE: &'static str = "cas_unavailable";
    /// The worker's own disk or processes failed.
    pub const WORKER_BROKEN: &'static str = "worker_broken";
    /// The coordinator canceled the attempt.
    pub const CANCELLED: &'static str = "cancelled";

    pub fn new(code: &'static str, category: ErrorCategory, message: impl Into<String>) -> Failure {
        let mut message = message.into();
        if message.len() > MAX_MESSAGE_BYTES {
            let mut ends = (0..=MAX_MESSAGE_BYTES).rev();
            let end = ends.find(|end| message.is_char_boundary(*end));
            message.truncate(end.unwrap_or(0));
        }
        Failure { code, category, message, retryable: false, partial: None }
    }

    pub fn retryable(self) -> Failure {
        Failure { retryable: true, ..self }
    }

    pub fn with_partial(self, result: ActionResult) -> Failure {
        Failure { partial: Some(Box::new(result)), ..self }
    }

    pub fn timeout(limit: std::time::Duration) -> Failure {
        let message = format!("the command ran for longer than its {} ms", limit.as_millis());
        Failure::new(Failure::TIMEOUT, ErrorCategory::Timeout, message)
    }

    pub fn out_of_memory() -> Failure {
        let message = "the command was killed because it needed more memory than the worker lets it have";
        Failure::new(Failure::OUT_OF_MEMORY, ErrorCategory::UserCode, message)
    }

    /// The message is a JSON list of as many digests as fit. A client that uploads these learns of the others by its next
    /// attempt.
    pub fn missing_inputs(missing: &[Digest]) -> Failure {
        let mut bytes = "[]".len();
        let fits = |digest: &String| {
            bytes += digest.len() + r#""","#.len();
            bytes <= MAX_MESSAGE_BYTES
        };
        let named: Vec<String> = missing.iter().map(Digest::to_string).take_while(fits).collect();
        if named.len() < missing.len() {
            tracing::warn!(missing = missing.len(), "a report cannot name all missing inputs");
        }
        let list = serde_json::Value::from(named).to_string();
        Failure::new(Failure::MISSING_INPUTS, ErrorCategory::Configuration, list)
    }

    /// The digests that a failure with the code `missing_inputs` names.
    pub fn missing_digests(&self) -> Vec<String> {
        serde_json::from_str(&self.message).unwrap_or_default()
    }

    pub fn invalid_action(message: impl Into<String>) -> Failure {
        Failure::new(Failure::INVALID_ACTION, ErrorCategory::Configuration, message)
    }

    pub fn invalid_payload(message: impl Into<String>) -> Failure {
        Failure::new(Failure::INVALID_PAYLOAD, ErrorCategory::Configuration, message)
    }

    pub fn invalid_output(message: impl Into<String>) -> Failure {
        Failure::new(Failure::INVALID_OUTPUT, ErrorCategory::Configuration, message)
    }

    pub fn result_rejected(why: &str) -> Failure {
        let message = format!("the coordinator does not take the result: {why}");
        Failure::new(Failure::RESULT_REJECTED, ErrorCategory::UserCode, message)
    }

    pub fn cancelled() -> Failure {
        Failure::new(Failure::CANCELLED, ErrorCategory::Cancelled, "the coordinator asked to stop")
    }

    pub fn broken(message: impl Into<String>) -> Failure {
        Failure::new(Failure::WORKER_BROKEN, ErrorCategory::Infrastructure, message).retryable()
    }

    /// The worker's own file system failed; `what` says where.
    pub fn io(what: impl std::fmt::Display, source: impl Into<io::Error>) -> Failure {
        Failure::broken(format!("{what}: {}", source.into()))
    }
}

#[cfg(test)]
mod tests {
    use blobs::DigestFunction;

    use super::*;

    #[test]
    fn r31_missing_inputs_are_a_json_list_within_the_longest_message() {
        let digest = |n: u32| Digest::of(DigestFunction::Sha256, &n.to_le_bytes());
        let digests: Vec<_> = (0..1_000).map(digest).collect();
        let few = Failure::missing_inputs(&digests[..3]);
        assert_eq!(few.missing_digests(), digests[..3].iter().map(Digest::to_string).collect::<Vec<_>>());
        assert_eq!((few.category, few.retryable), (ErrorCategory::Configuration, false));
        let many = Failure::missing_inputs(&digests);
        let list: Vec<String> = serde_json::from_str(&many.message).unwrap();
        assert!(many.message.len() <= MAX_MESSAGE_BYTES && list.len() > 200, "{}", list.len());
        assert_eq!(Failure::missing_inputs(&[]).message, "[]");
    }

    #[test]
    fn a_long_message_is_cut_between_characters() {
        let failure = Failure::broken("ä".repeat(MAX_MESSAGE_BYTES));
        assert!(failure.message.len() <= MAX_MESSAGE_BYTES && failure.message.ends_with('ä'));
    }
}
