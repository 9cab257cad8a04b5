//! Converts refusals, rejections and faults to HTTP problems. Each kind has a stable code, one status and one title; details
//! for operators go to the log only.

use std::time::Duration;

use authority::{Rejection, TaskId};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use coordinator::{HistoryError, OrderRefusal, PurgedTask, Unavailable};
use serde::Serialize;
use wire::Verdict;

use crate::convert::names::beginning;
use crate::convert::{Limit, task_json, to_timestamp};

/// When a client that was told to come back should do so, unless it is known better.
pub(super) const RETRY_AFTER: Duration = Duration::from_secs(1);
/// How a client may authenticate. Some clients send basic only when they are asked for it.
const CHALLENGES: [&str; 2] = ["Bearer realm=\"lessor\"", "Basic realm=\"lessor\", charset=\"UTF-8\""];
/// Longest text of a problem; what a client sent is quoted back only so far.
const MAX_DETAIL_BYTES: usize = 1_024;

/// Defines the codes, each with its status, its name and its title.
macro_rules! codes {
    ($($Code:ident $status:literal $name:literal $title:literal;)*) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Code {
            $($Code,)*
        }

        impl Code {
            fn row(self) -> (&'static str, u16, &'static str) {
                match self { $(Code::$Code => ($name, $status, $title),)* }
            }
        }
    };
}

codes! {
    MalformedJson 400 "malformed_json" "The body is not well-formed JSON";
    InvalidField 400 "invalid_field" "A field is missing, unknown or has a bad value";
    InvalidScope 400 "invalid_scope" "The tenant or workspace is not a valid name";
    InvalidPageToken 400 "invalid_page_token" "The page token does not belong here";
    NotSupported 400 "not_supported" "This is not supported yet";
    TooManyTasks 400 "too_many_tasks" "The batch has too many tasks";
    Unauthenticated 401 "unauthenticated" "The request has no valid credential";
    Forbidden 403 "forbidden" "The credential does not permit this";
    BadLeaseId 403 "bad_lease_id" "The lease id was not granted to this worker";
    WrongWorker 403 "wrong_worker" "The lease belongs to another worker";
    WrongTask 403 "wrong_task" "The lease belongs to another task";
    WrongAttempt 403 "wrong_attempt" "The lease belongs to another attempt";
    CrossOrigin 403 "cross_origin" "Web pages of another origin may not do this";
    OperatorOnly 403 "operator_only" "Only the operator may do this";
    UpdatesDisabled 403 "updates_disabled" "Clients may not write to the action cache";
    NotFound 404 "not_found" "There is nothing at this path";
    UnknownTask 404 "unknown_task" "There is no such task";
    UnknownQueue 404 "unknown_queue" "There is no such queue";
    UnknownWorker 404 "unknown_worker" "There is no such worker";
    UnknownKey 404 "unknown_key" "There is no such API key";
    MethodNotAllowed 405 "method_not_allowed" "This path has other methods";
    RequestTimeout 408 "request_timeout" "The body did not arrive in time";
    KeyNameTaken 409 "key_name_taken" "Another API key has this name";
    DedupConflict 409 "dedup_conflict" "The dedup key belongs to a task with other content";
    ConflictingReport 409 "conflicting_report" "The attempt already reported something else";
    LeaseLost 409 "lease_lost" "The attempt has lost its authority";
    NotADeadLetter 409 "not_a_dead_letter" "Only FAILED and DEAD tasks can be redriven";
    TaskPurged 410 "task_purged" "The task was purged";
    LeaseGone 410 "lease_gone" "The lease is over";
    OutputsMissing 424 "outputs_missing" "Outputs are not in the content store";
    PayloadTooLarge 413 "payload_too_large" "The request is too large";
    UnsupportedMediaType 415 "unsupported_media_type" "The body must be JSON";
    UnknownHost 421 "unknown_host" "The server is not known by this name";
    QueueFull 429 "queue_full" "The queue is full";
    StateFull 429 "state_full" "The tenant's share of the memory is used up";
    TooManyQueues 429 "too_many_queues" "The tenant's share of the queues is used up";
    TooManyTenants 429 "too_many_tenants" "There are too many tenants";
    TooManyRequirements 429 "too_many_requirements" "The queue has too many different requirements";
    DiskFull 429 "disk_full" "The disk is full";
    TenantLimit 429 "tenant_limit" "The tenant is at one of its limits";
    TooManyPolls 429 "too_many_polls" "Too many requests are waiting";
    TooManyDrained 429 "too_many_drained" "Too many workers are drained";
    TooManyKeys 429 "too_many_keys" "There are too many API keys";
    Overloaded 429 "overloaded" "The coordinator has too much to do";
    Internal 500 "internal" "Something went wrong here";
    NotServing 503 "not_serving" "The coordinator is not serving";
    NoSpace 503 "no_space" "Nothing can be recorded until space is freed";
    OutcomeUnknown 503 "outcome_unknown" "It is not known whether the request was done";
}

impl Code {
    pub fn name(self) -> &'static str {
        self.row().0
    }

    pub fn status(self) -> StatusCode {
        StatusCode::from_u16(self.row().1).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }
}

/// Why a request is not done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    pub code: Code,
    pub detail: String,
    pub field: Option<String>,
    pub task_id: Option<String>,
    pub verdict: Option<Verdict>,
    /// The blobs that are missing, at most [`Problem::MAX_DIGESTS`].
    pub digests: Vec<String>,
    /// The task that was asked for, if it was purged.
    pub purged: Option<Box<PurgedTask>>,
    /// The limit of the tenant that is reached.
    pub limit: Option<Limit>,
    /// When another try may succeed, if it is known.
    pub retry_after_ms: Option<u32>,
}

impl Problem {
    /// Most blobs that a problem names. Over gRPC they are in a header, of which some clients accept no more than 8 KiB.
    pub const MAX_DIGESTS: usize = 32;

    pub fn new(code: Code, detail: impl Into<String>) -> Problem {
        let detail = detail.into();
        Problem {
            code,
            detail,
            field: None,
            task_id: None,
            verdict: None,
            digests: Vec::new(),
            purged: None,
            limit: None,
            retry_after_ms: None,
        }
    }

    /// A field whose value will not do.
    pub fn field(field: impl Into<String>, what: impl AsRef<str>) -> Problem {
        let field = field.into();
        let detail = format!("{field}: {}", what.as_ref());
        Problem { field: Some(field), ..Problem::new(Code::InvalidField, detail) }
    }

    /// When a client that was told to come back should do so.
    pub fn retry_after(&self) -> Duration {
        self.retry_after_ms.map_or(RETRY_AFTER, |ms| Duration::from_millis(ms.into()))
    }

    /// A limit of the tenant is reached.
    pub fn over_limit(limit: Limit, detail: impl Into<String>) -> Problem {
        Problem { limit: Some(limit), ..Problem::new(Code::TenantLimit, detail) }
    }

    pub fn unknown_task(task: &str) -> Problem {
        Problem::new(Code::UnknownTask, format!("there is no task {} here", shortened(task)))
    }

    /// The task was purged; the ledger still has its records, or the first of them.
    pub fn task_purged(task: TaskId, purged: PurgedTask) -> Problem {
        let ended = match purged.end {
            Some((at, state)) => {
                format!("ended {} at {}", task_json::state_to_wire(state).name(), to_timestamp(at))
            }
            None => format!("was created at {}, ended", to_timestamp(purged.created_at)),
        };
        let when = purged.purged_at.map_or(String::new(), |at| format!(" at {}", to_timestamp(at)));
        let detail = format!("task {task} {ended} and was purged{when}; its payload and result are gone");
        let task_id = Some(task.to_string());
        Problem { task_id, purged: Some(Box::new(purged)), ..Problem::new(Code::TaskPurged, detail) }
    }

    pub fn unknown_queue(queue: &str) -> Problem {
        Problem::new(Code::UnknownQueue, format!("there is no queue {} here", shortened(queue)))
    }

    /// A client may not write to the action cache.
    pub fn updates_disabled() -> Problem {
        let detail = "clients may not write to the action cache of this server; if everyone who can reach it is trusted, set \
                      capabilities.action_cache_update_enabled (--allow-action-cache-updates of lessor up)";
        Problem::new(Code::UpdatesDisabled, detail)
    }

    /// The answer to a report: a fault of the worker is REJECTED. A transient problem decides nothing: it has no verdict.
    pub fn on_report(self) -> Problem {
        let status = self.code.status();
        let transient = matches!(self.code, Code::RequestTimeout | Code::OutputsMissing)
            || status == StatusCode::TOO_MANY_REQUESTS;
        if self.verdict.is_none() && status.is_client_error() && !transient {
            Problem { verdict: Some(Verdict::Rejected), ..self }
        } else {
            self
        }
    }

    /// A report without authority.
    pub fn cancelled() -> Problem {
        let detail = "the lease expired, was released or was superseded; the report is discarded: stop, and do \
                      not repeat it";
        Problem { verdict: Some(Verdict::Cancelled), ..Problem::new(Code::LeaseLost, detail) }
    }

    pub fn into_wire(self) -> wire::Problem {
        let (name, (_, status, title)) = (self.code.name(), self.code.row());
        let end = self.purged.as_ref().and_then(|purged| purged.end);
        wire::Problem {
            kind: format!("urn:lessor:problem:{name}"),
            title: title.to_owned(),
            status,
            detail: shortened(&self.detail).to_owned(),
            code: name.to_owned(),
            field: self.field.map(|field| shortened(&field).to_owned()),
            task_id: self.task_id,
            verdict: self.verdict,
            digests: (!self.digests.is_empty()).then_some(self.digests),
            state: end.map(|(_, state)| task_json::state_to_wire(state)),
            finished_at: end.map(|(at, _)| to_timestamp(at)),
            purged_at: self.purged.and_then(|purged| purged.purged_at).map(to_timestamp),
            limit: self.limit.map(|limit| limit.name().to_owned()),
            instance: None,
        }
    }
}

impl From<Unavailable> for Problem {
    fn from(why: Unavailable) -> Problem {
        let code = match why {
            Unavailable::Stopped
            | Unavailable::NoOwner
            | Unavailable::NoStandby
            | Unavailable::NotUnderstood => Code::NotServing,
            Unavailable::Overloaded => Code::Overloaded,
            Unavailable::NoSpace => Code::NoSpace,
            Unavailable::OutcomeUnknown => Code::OutcomeUnknown,
        };
        Problem::new(code, why.to_string())
    }
}

impl From<OrderRefusal> for Problem {
    fn from(why: OrderRefusal) -> Problem {
        let code = match why {
            OrderRefusal::UnknownWorker => Code::UnknownWorker,
            OrderRefusal::TooManyDrained => Code::TooManyDrained,
        };
        Problem::new(code, why.to_string())
    }
}

impl From<Rejection> for Problem {
    fn from(why: Rejection) -> Problem {
        let (code, detail) = match why {
            Rejection::UnknownTask => {
                (Code::UnknownTask, "there is no task with this lease here; it may have been purged")
            }
            Rejection::NeverGranted => (Code::BadLeaseId, "the task never granted this lease"),
            Rejection::WrongWorker => (Code::WrongWorker, "the lease belongs to another worker"),
            Rejection::ConflictingReport => (
                Code::ConflictingReport,
                "this attempt already reported something else, and the first report stands",
            ),
        };
        Problem::new(code, detail).on_report()
    }
}

impl From<HistoryError> for Problem {
    fn from(why: HistoryError) -> Problem {
        match why {
            HistoryError::Unavailable(why) => why.into(),
            HistoryError::Ledger(what) => {
                tracing::error!(%what, "a task's history could not be read");
                Problem::new(Code::Internal, "the ledger could not be read")
            }
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let (status, wait) = (self.code.status(), self.retry_after());
        let mut response = refusal(status, wire::PROBLEM_JSON, &self.into_wire());
        if response.headers().contains_key(header::RETRY_AFTER) {
            response.headers_mut().insert(header::RETRY_AFTER, whole_seconds(wait));
        }
        if status == StatusCode::UNAUTHORIZED {
            for challenge in CHALLENGES {
                let value = HeaderValue::from_static(challenge);
                response.headers_mut().append(header::WWW_AUTHENTICATE, value);
            }
        }
        response
    }
}

/// A problem as the answer to a report; see [`Problem::on_report`].
#[derive(Debug)]
pub(crate) struct ReportProblem(Problem);

impl<E> From<E> for ReportProblem
where
    Problem: From<E>,
{
    fn from(why: E) -> ReportProblem {
        ReportProblem(Problem::from(why).on_report())
    }
}

impl IntoResponse for ReportProblem {
    fn into_response(self) -> Response {
        self.0.into_response()
    }
}

/// The response to a request that is not done, with Retry-After where another try may succeed.
pub(crate) fn refusal(status: StatusCode, content_type: &'static str, body: &impl Serialize) -> Response {
    let body = serde_json::to_vec(body).unwrap_or_default();
    let content_type = HeaderValue::from_static(content_type);
    let mut response = (status, [(header::CONTENT_TYPE, content_type)], body).into_response();
    if matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) {
        response.headers_mut().insert(header::RETRY_AFTER, whole_seconds(RETRY_AFTER));
    }
    response
}

/// A time as Retry-After has it, rounded up, and at least a second.
fn whole_seconds(wait: Duration) -> HeaderValue {
    HeaderValue::from((wait.as_secs() + u64::from(wait.subsec_nanos() > 0)).max(1))
}

/// The text, cut at a character's end where it is too long.
pub(crate) fn shortened(text: &str) -> &str {
    beginning(text, MAX_DETAIL_BYTES)
}

#[cfg(test)]
mod tests {
    use authority::command::Refusal;

    use super::*;

    const ALL: [(Code, &str, u16, &str); 48] = [
        (Code::MalformedJson, "malformed_json", 400, "The body is not well-formed JSON"),
        (Code::InvalidField, "invalid_field", 400, "A field is missing, unknown or has a bad value"),
        (Code::InvalidScope, "invalid_scope", 400, "The tenant or workspace is not a valid name"),
        (Code::InvalidPageToken, "invalid_page_token", 400, "The page token does not belong here"),
        (Code::NotSupported, "not_supported", 400, "This is not supported yet"),
        (Code::TooManyTasks, "too_many_tasks", 400, "The batch has too many tasks"),
        (Code::Unauthenticated, "unauthenticated", 401, "The request has no valid credential"),
        (Code::Forbidden, "forbidden", 403, "The credential does not permit this"),
        (Code::UnknownKey, "unknown_key", 404, "There is no such API key"),
        (Code::KeyNameTaken, "key_name_taken", 409, "Another API key has this name"),
        (Code::TooManyKeys, "too_many_keys", 429, "There are too many API keys"),
        (Code::BadLeaseId, "bad_lease_id", 403, "The lease id was not granted to this worker"),
        (Code::WrongWorker, "wrong_worker", 403, "The lease belongs to another worker"),
        (Code::WrongTask, "wrong_task", 403, "The lease belongs to another task"),
        (Code::WrongAttempt, "wrong_attempt", 403, "The lease belongs to another attempt"),
        (Code::CrossOrigin, "cross_origin", 403, "Web pages of another origin may not do this"),
        (Code::OperatorOnly, "operator_only", 403, "Only the operator may do this"),
        (Code::UpdatesDisabled, "updates_disabled", 403, "Clients may not write to the action cache"),
        (Code::UnknownHost, "unknown_host", 421, "The server is not known by this name"),
        (Code::NotFound, "not_found", 404, "There is nothing at this path"),
        (Code::UnknownTask, "unknown_task", 404, "There is no such task"),
        (Code::UnknownQueue, "unknown_queue", 404, "There is no such queue"),
        (Code::UnknownWorker, "unknown_worker", 404, "There is no such worker"),
        (Code::MethodNotAllowed, "method_not_allowed", 405, "This path has other methods"),
        (Code::RequestTimeout, "request_timeout", 408, "The body did not arrive in time"),
        (Code::DedupConflict, "dedup_conflict", 409, "The dedup key belongs to a task with other content"),
        (Code::ConflictingReport, "conflicting_report", 409, "The attempt already reported something else"),
        (Code::LeaseLost, "lease_lost", 409, "The attempt has lost its authority"),
        (Code::NotADeadLetter, "not_a_dead_letter", 409, "Only FAILED and DEAD tasks can be redriven"),
        (Code::TaskPurged, "task_purged", 410, "The task was purged"),
        (Code::LeaseGone, "lease_gone", 410, "The lease is over"),
        (Code::OutputsMissing, "outputs_missing", 424, "Outputs are not in the content store"),
        (Code::PayloadTooLarge, "payload_too_large", 413, "The request is too large"),
        (Code::UnsupportedMediaType, "unsupported_media_type", 415, "The body must be JSON"),
        (Code::QueueFull, "queue_full", 429, "The queue is full"),
        (Code::StateFull, "state_full", 429, "The tenant's share of the memory is used up"),
        (Code::TooManyQueues, "too_many_queues", 429, "The tenant's share of the queues is used up"),
        (Code::TooManyTenants, "too_many_tenants", 429, "There are too many tenants"),
        (
            Code::TooManyRequirements,
            "too_many_requirements",
            429,
            "The queue has too many different requirements",
        ),
        (Code::DiskFull, "disk_full", 429, "The disk is full"),
        (Code::TenantLimit, "tenant_limit", 429, "The tenant is at one of its limits"),
        (Code::TooManyPolls, "too_many_polls", 429, "Too many requests are waiting"),
        (Code::TooManyDrained, "too_many_drained", 429, "Too many workers are drained"),
        (Code::Overloaded, "overloaded", 429, "The coordinator has too much to do"),
        (Code::Internal, "internal", 500, "Something went wrong here"),
        (Code::NotServing, "not_serving", 503, "The coordinator is not serving"),
        (Code::NoSpace, "no_space", 503, "Nothing can be recorded until space is freed"),
        (Code::OutcomeUnknown, "outcome_unknown", 503, "It is not known whether the request was done"),
    ];

    #[test]
    fn every_code_keeps_its_name_status_and_title() {
        for (code, name, status, title) in ALL {
            assert_eq!(code.row(), (name, status, title));
            assert_eq!(code.status().as_u16(), status);
        }
    }

    #[test]
    fn full_and_not_serving_say_when_to_come_back() {
        for (code, _, status, _) in ALL {
            let response = Problem::new(code, "x").into_response();
            assert_eq!(response.headers().contains_key(header::RETRY_AFTER), status == 429 || status == 503);
            assert_eq!(response.headers()[header::CONTENT_TYPE], "application/problem+json");
        }
    }

    #[test]
    fn refusals_and_faults_have_their_codes() {
        let table = [
            (Problem::from(Refusal::QueueFull { max: 3 }), "queue_full"),
            (Refusal::StateFull { tenant: "t".into(), bytes: 7, free: 1 }.into(), "state_full"),
            (Refusal::TooManyQueues { tenant: "t".into(), queues: 7, free: 1 }.into(), "too_many_queues"),
            (Refusal::TooManyTenants { tenant: "t".into() }.into(), "too_many_tenants"),
            (Refusal::TooManyRequirements.into(), "too_many_requirements"),
            (Refusal::TenantTasks { tenant: "t".into(), max: 1 }.into(), "tenant_limit"),
            (Refusal::TenantBytes { tenant: "t".into(), max: 1 }.into(), "tenant_limit"),
            (Refusal::NoSpace.into(), "disk_full"),
            (Unavailable::Stopped.into(), "not_serving"),
            (Unavailable::NoOwner.into(), "not_serving"),
            (Unavailable::NoStandby.into(), "not_serving"),
            (Unavailable::NotUnderstood.into(), "not_serving"),
            (Unavailable::Overloaded.into(), "overloaded"),
            (Unavailable::NoSpace.into(), "no_space"),
            (Unavailable::OutcomeUnknown.into(), "outcome_unknown"),
        ];
        for (problem, name) in table {
            assert_eq!((problem.code.name(), problem.verdict), (name, None));
            assert_eq!(problem.clone().on_report().verdict, None, "nothing was decided: {name}");
        }
    }

    #[test]
    fn s0_14_every_rejection_is_told_as_rejected() {
        let table = [
            (Rejection::UnknownTask, 404),
            (Rejection::NeverGranted, 403),
            (Rejection::WrongWorker, 403),
            (Rejection::ConflictingReport, 409),
        ];
        for (rejection, status) in table {
            let problem = Problem::from(rejection);
            assert_eq!((problem.code.status().as_u16(), problem.verdict), (status, Some(Verdict::Rejected)));
        }
    }

    #[test]
    fn a_body_that_came_too_slowly_is_no_verdict() {
        assert_eq!(Problem::new(Code::RequestTimeout, "x").on_report().verdict, None);
        assert_eq!(Problem::new(Code::MalformedJson, "x").on_report().verdict, Some(Verdict::Rejected));
    }

    #[test]
    fn a_limit_is_named_and_says_when_to_come_back() {
        let problem = Problem { retry_after_ms: Some(2_100), ..Problem::over_limit(Limit::Requests, "x") };
        assert_eq!(problem.clone().into_wire().limit.as_deref(), Some("requests_per_second"));
        assert_eq!(problem.into_response().headers()[header::RETRY_AFTER], "3");
        let problem = Problem::over_limit(Limit::Polls, "x");
        assert_eq!(problem.into_response().headers()[header::RETRY_AFTER], "1");
    }

    #[test]
    fn what_a_client_sent_is_quoted_back_only_so_far() {
        let problem = Problem::unknown_task(&"é".repeat(100_000)).into_wire();
        assert!(problem.detail.len() <= MAX_DETAIL_BYTES);
    }
}
