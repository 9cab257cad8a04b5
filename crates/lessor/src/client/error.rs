//! The errors of client commands, each in one line that says what to do next.

use wire::Problem;

use super::show::text;

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// Nothing listens there, so nothing was asked.
    #[error("no server answers at {url} ({why}); start one with `lessor up`, or name another with --url")]
    NoServer { url: String, why: String },

    /// One side does not accept the certificate of the other.
    #[error(
        "there is no trusted connection to {url} ({why}); name the CA of the server's certificate with --ca-file, and a \
         certificate that the server accepts with --client-certificate and --client-key"
    )]
    Untrusted { url: String, why: String },

    /// It answered before or accepted the connection, and then did not answer for too long.
    #[error("{url} did not answer, also when asked again for {seconds} s ({why})")]
    Silent { url: String, seconds: u64, why: String },

    #[error("{}", describe(.0))]
    Refused(Box<Problem>),

    /// Another server than Lessor answers.
    #[error("{url} answered {status}, but not as Lessor does ({why}); is --url right?")]
    Foreign { url: String, status: u16, why: String },

    /// What was given on the command line, in a file or on standard input cannot be sent.
    #[error("{0}")]
    Usage(String),
}

impl From<lessor_sdk::Error> for Error {
    fn from(error: lessor_sdk::Error) -> Error {
        match error {
            lessor_sdk::Error::Refused(problem) => Error::Refused(problem),
            lessor_sdk::Error::Foreign { url, status, why } => Error::Foreign { url, status, why },
            other => Error::Usage(other.to_string()),
        }
    }
}

impl Error {
    pub(crate) fn is_usage(&self) -> bool {
        matches!(self, Error::Usage(_))
    }

    pub(crate) fn is_not_found(&self) -> bool {
        matches!(self, Error::Refused(problem) if problem.status == 404)
    }
}

/// Whether a connection failed because of a certificate, as rustls words it.
pub(crate) fn is_about_certificates(why: &str) -> bool {
    why.contains("certificate") || why.contains("received fatal alert")
}

/// A problem in one line. Its text may quote strangers, so it is made safe for a terminal.
pub(super) fn describe(problem: &Problem) -> String {
    let words = if problem.detail.is_empty() { &problem.title } else { &problem.detail };
    let mut line = format!("{} ({}, HTTP {})", words.trim_end_matches('.'), problem.code, problem.status);
    if let Some(field) = problem.field.as_ref().filter(|field| !words.contains(field.as_str())) {
        line.push_str(&format!(", field {field}"));
    }
    if let Some(task) = problem.task_id.as_ref().filter(|task| !words.contains(task.as_str())) {
        line.push_str(&format!(", task {task}"));
    }
    text::clean(&line)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(detail: &str) -> Problem {
        Problem {
            kind: "about:blank".into(),
            title: "Conflict".into(),
            status: 409,
            detail: detail.into(),
            code: "dedup_conflict".into(),
            field: Some("dedupKey".into()),
            task_id: Some("t1".into()),
            ..Problem::default()
        }
    }

    #[test]
    fn a_problem_is_one_line_with_detail_code_field_and_task() {
        assert_eq!(
            describe(&problem("the key is taken.")),
            "the key is taken (dedup_conflict, HTTP 409), field dedupKey, task t1"
        );
        assert_eq!(
            describe(&problem("dedupKey is taken by t1")),
            "dedupKey is taken by t1 (dedup_conflict, HTTP 409)"
        );
    }

    #[test]
    fn a_problem_cannot_speak_to_the_terminal() {
        assert!(!describe(&problem("a\n\u{1b}[2Jb")).contains(['\u{1b}', '\n']));
    }
}
