//! How an attempt failed, in the words of the worker contract.
//!
//! An action that ran and exited with any code is no failure: that is a result. A failure says that there is no
//! result, whose fault that is, and whether another attempt may help.

use std::io;

use blobs::Digest;
use wire::grpc::ErrorCategory;

/// The longest message that the coordinator takes.
const MAX_MESSAGE_BYTES: usize = 16 * 1024;

#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{code}: {message}")]
pub struct Failure {
    /// Stable, for programs.
    pub code: &'static str,
    pub category: ErrorCategory,
    /// For people, except where the code's description says otherwise.
    pub message: String,
    pub retryable: bool,
}

impl Failure {
    /// The command ran for longer than its action allows.
    pub const TIMEOUT: &'static str = "timeout";
    /// Blobs that the action needs are not in the store; the message is a JSON list of `hash/size`.
    pub const MISSING_INPUTS: &'static str = "missing_inputs";
    /// The action itself breaks the rules of the protocol.
    pub const INVALID_ACTION: &'static str = "invalid_action";
    /// The payload is nothing that this worker can do.
    pub const INVALID_PAYLOAD: &'static str = "invalid_payload";
    /// A task's command ended with another exit code than 0.
    pub const EXIT_CODE: &'static str = "exit_code";
    /// The task asks for more than this worker has in all.
    pub const NOT_ENOUGH_RESOURCES: &'static str = "not_enough_resources";
    /// There is no room left where the worker works.
    pub const DISK_FULL: &'static str = "disk_full";
    /// What the command left behind cannot be told as an output.
    pub const INVALID_OUTPUT: &'static str = "invalid_output";
    /// The command wrote more to its standard output or error than is kept.
    pub const OUTPUT_TOO_LARGE: &'static str = "output_too_large";
    /// The command needed more memory than the worker lets it have.
    pub const OUT_OF_MEMORY: &'static str = "out_of_memory";
    /// Inputs were changed while the command ran.
    pub const INPUTS_CHANGED: &'static str = "inputs_changed";
    /// The coordinator does not take the result, such as one that is too large.
    pub const RESULT_REJECTED: &'static str = "result_rejected";
    /// The content store could not be used.
    pub const CAS_UNAVAILABLE: &'static str = "cas_unavailable";
    /// The worker's own disk or processes failed it.
    pub const WORKER_BROKEN: &'static str = "worker_broken";
    /// The coordinator asked for it.
    pub const CANCELLED: &'static str = "cancelled";

    pub fn new(code: &'static str, category: ErrorCategory, message: impl Into<String>) -> Failure {
        let mut message = message.into();
        if message.len() > MAX_MESSAGE_BYTES {
            let mut ends = (0..=MAX_MESSAGE_BYTES).rev();
            let end = ends.find(|end| message.is_char_boundary(*end));
            message.truncate(end.unwrap_or(0));
        }
        Failure { code, category, message, retryable: false }
    }

    pub fn retryable(self) -> Failure {
        Failure { retryable: true, ..self }
    }

    pub fn timeout(limit: std::time::Duration) -> Failure {
        let message = format!("the command ran for longer than its {} ms", limit.as_millis());
        Failure::new(Failure::TIMEOUT, ErrorCategory::Timeout, message)
    }

    pub fn out_of_memory() -> Failure {
        let message = "the command was killed because it needed more memory than the worker lets it have";
        Failure::new(Failure::OUT_OF_MEMORY, ErrorCategory::UserCode, message)
    }

    /// Names every digest that fits into a message; a client that brings these learns of the others the next time.
    pub fn missing_inputs(missing: &[Digest]) -> Failure {
        let mut list = String::from("[");
        for digest in missing {
            let item = format!("\"{digest}\"");
            if list.len() + item.len() + 2 > MAX_MESSAGE_BYTES {
                tracing::warn!(
                    missing = missing.len(),
                    "there are more missing inputs than a report can name"
                );
                break;
            }
            if list.len() > 1 {
                list.push(',');
            }
            list.push_str(&item);
        }
        list.push(']');
        Failure::new(Failure::MISSING_INPUTS, ErrorCategory::Configuration, list)
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

    /// The worker's own file system failed; what was being done says where.
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
        let list: Vec<String> = serde_json::from_str(&few.message).unwrap();
        assert_eq!(list, digests[..3].iter().map(Digest::to_string).collect::<Vec<_>>());
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
