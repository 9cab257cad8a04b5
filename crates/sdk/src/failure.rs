//! The failure of an attempt, with the category that the coordinator's retry policy uses. Only the coordinator decides
//! whether there is another attempt.

use std::fmt::Display;

use wire::Json;

use crate::Category;

/// A handler's error. The operator `?` converts any error into one of category USER_CODE.
///
/// It is deliberately not a `std::error::Error`, so that the conversion from all errors can exist.
#[derive(Clone, Debug, PartialEq)]
pub struct Failure {
    category: Category,
    reason: String,
    code: Option<String>,
    retryable: Option<bool>,
    partial_progress: Option<Json>,
}

macro_rules! constructors {
    ($($(#[$doc:meta])* $name:ident: $Category:ident;)*) => {$(
        $(#[$doc])*
        pub fn $name(reason: impl Display) -> Failure {
            Failure::new(Category::$Category, reason)
        }
    )*};
}

impl Failure {
    pub fn new(category: Category, reason: impl Display) -> Failure {
        Failure { category, reason: reason.to_string(), code: None, retryable: None, partial_progress: None }
    }

    constructors! {
        /// The handler's own code is at fault.
        user_code: UserCode;
        /// The payload, or the data that it names, is invalid.
        data_quality: DataQuality;
        /// A machine, a network or another service is at fault.
        infrastructure: Infrastructure;
        /// Someone must correct a setting first.
        configuration: Configuration;
        /// Something took too long.
        timeout: Timeout;
        /// The handler stopped because it was asked to.
        cancelled: Cancelled;
    }

    /// Whether another attempt may help. Without it the category decides.
    pub fn retryable(self, retryable: bool) -> Failure {
        Failure { retryable: Some(retryable), ..self }
    }

    /// A stable code, for programs.
    pub fn code(self, code: impl Into<String>) -> Failure {
        Failure { code: Some(code.into()), ..self }
    }

    /// What was done so far, at most 64 KiB of JSON. The next attempt receives it.
    pub fn partial_progress(self, partial_progress: Json) -> Failure {
        Failure { partial_progress: Some(partial_progress), ..self }
    }

    pub fn category(&self) -> Category {
        self.category
    }

    pub fn reason(&self) -> &str {
        &self.reason
    }

    pub(crate) fn into_report(
        self,
        worker_id: String,
        task_id: String,
        metrics: Option<Json>,
    ) -> wire::ReportFailure {
        wire::ReportFailure {
            worker_id,
            task_id: Some(task_id),
            reason: Some(truncate(self.reason)),
            category: Some(self.category),
            code: self.code,
            retryable: self.retryable,
            metrics,
            partial_progress: self.partial_progress,
            ..wire::ReportFailure::default()
        }
    }

    pub(crate) fn take_partial_progress(&mut self) -> Option<Json> {
        self.partial_progress.take()
    }

    pub(crate) fn into_callback_error(self) -> wire::CallbackError {
        wire::CallbackError {
            category: self.category,
            message: truncate(self.reason),
            code: self.code,
            stack_trace: None,
            retryable: self.retryable,
        }
    }
}

impl<E: std::error::Error> From<E> for Failure {
    /// Includes the error's causes.
    fn from(error: E) -> Failure {
        let mut reason = error.to_string();
        let mut cause = error.source();
        while let Some(error) = cause {
            reason.push_str(": ");
            reason.push_str(&error.to_string());
            cause = error.source();
        }
        Failure::user_code(reason)
    }
}

/// The longest text that the coordinator accepts.
const MAX_MESSAGE_BYTES: usize = 16 * 1024;

/// Truncates a text to the length that the coordinator accepts.
pub(crate) fn truncate(mut text: String) -> String {
    let mut end = text.len().min(MAX_MESSAGE_BYTES);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_error_becomes_a_failure_of_the_users_code() {
        let fail = || -> Result<u32, Failure> { Ok("x".parse::<u32>()?) };
        let failure = fail().unwrap_err();
        assert_eq!(failure.category(), Category::UserCode);
        assert_eq!(failure.reason(), "invalid digit found in string");
    }

    #[test]
    fn a_long_reason_is_cut_at_a_characters_end() {
        let report = Failure::timeout("é".repeat(20_000)).into_report("w".into(), "t".into(), None);
        assert_eq!(report.reason.unwrap().len(), MAX_MESSAGE_BYTES);
        assert_eq!(truncate(format!("a{}", "é".repeat(20_000))).len(), MAX_MESSAGE_BYTES - 1);
    }
}
