//! Extracts JSON requests and renders JSON responses. A body is received within its limits, checked as text and parsed
//! into its type; the problem names the field that is wrong.

use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde::de::DeserializeOwned;
use wire::strict_json::{self, MAX_JSON_DEPTH};

use crate::app::App;
use crate::convert::{Code, Problem};
use crate::edge::bodies::Received;
use crate::edge::limits;

/// Largest body of a request about one task: a payload or result of 1 MiB, and room for all else.
pub(crate) const MAX_BODY_BYTES: usize = authority::limits::MAX_INLINE_BYTES + 256 * 1_024;
pub(crate) const MAX_BATCH_BODY_BYTES: usize = 16 * 1_024 * 1_024;

/// A request's body, which must be there.
pub(crate) struct In<T, const MAX_BYTES: usize = MAX_BODY_BYTES>(pub T);

/// A request's body, which may be empty.
pub(crate) struct InOrDefault<T>(pub T);

pub(crate) struct InQuery<T>(pub T);

pub(crate) struct InPath<T>(pub T);

pub(crate) struct Out<T>(pub StatusCode, pub T);

impl<T: DeserializeOwned + Send + 'static, const MAX_BYTES: usize> FromRequest<App> for In<T, MAX_BYTES> {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &App) -> Result<Self, Problem> {
        let body = receive(request, app, MAX_BYTES).await?;
        app.compute.parse(body.bytes.len(), move || parse(&body.bytes).map(In)).await?
    }
}

impl<T: DeserializeOwned + Default + Send + 'static> FromRequest<App> for InOrDefault<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &App) -> Result<Self, Problem> {
        let body = receive(request, app, MAX_BODY_BYTES).await?;
        if body.bytes.is_empty() {
            return Ok(InOrDefault(T::default()));
        }
        app.compute.parse(body.bytes.len(), move || parse(&body.bytes).map(InOrDefault)).await?
    }
}

impl<T: DeserializeOwned, S: Sync> FromRequestParts<S> for InQuery<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        match Query::<T>::try_from_uri(&parts.uri) {
            Ok(Query(query)) => Ok(InQuery(query)),
            Err(why) => {
                let text = why.body_text();
                let what = text.strip_prefix("Failed to deserialize query string: ").unwrap_or(&text);
                Err(Problem::new(Code::InvalidField, format!("in the query string: {what}")))
            }
        }
    }
}

impl<T: DeserializeOwned + Send, S: Sync + Send> FromRequestParts<S> for InPath<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        match Path::<T>::from_request_parts(parts, state).await {
            Ok(Path(path)) => Ok(InPath(path)),
            Err(why) => Err(Problem::new(Code::InvalidField, format!("in the path: {}", why.body_text()))),
        }
    }
}

impl<T> Out<T> {
    pub(crate) fn ok(answer: T) -> Out<T> {
        Out(StatusCode::OK, answer)
    }
}

impl<T: Serialize> IntoResponse for Out<T> {
    fn into_response(self) -> Response {
        match serde_json::to_vec(&self.1) {
            Ok(body) => {
                let json = HeaderValue::from_static("application/json");
                (self.0, [(header::CONTENT_TYPE, json)], body).into_response()
            }
            Err(error) => {
                tracing::error!(%error, "an answer could not be written");
                Problem::new(Code::Internal, "the answer could not be written").into_response()
            }
        }
    }
}

/// Reads a whole body that was received.
pub(crate) fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, Problem> {
    if body.is_empty() {
        return Err(Problem::new(Code::MalformedJson, "the body is empty"));
    }
    strict_json::check(body, MAX_JSON_DEPTH).map_err(|fault| malformed(&fault))?;
    parse_checked(body, "")
}

/// Reads a text that passed the check; `place` says where it stands in the body.
pub(crate) fn parse_checked<T: DeserializeOwned>(text: &[u8], place: &str) -> Result<T, Problem> {
    // The types alone would also take a list of their fields in order, which nobody means to send.
    if !text.trim_ascii_start().starts_with(b"{") {
        let what = "must be a JSON object";
        return Err(if place.is_empty() {
            Problem::new(Code::InvalidField, format!("the body {what}"))
        } else {
            Problem::field(place, what)
        });
    }
    // Most bodies are right; where one went wrong is found out by reading it again.
    serde_json::from_slice(text).or_else(|_| parse_tracked(text, place))
}

/// Reads a text and keeps track of the place, for the problem to name.
fn parse_tracked<T: DeserializeOwned>(text: &[u8], place: &str) -> Result<T, Problem> {
    let mut json = serde_json::Deserializer::from_slice(text);
    serde_path_to_error::deserialize(&mut json).map_err(|error| {
        let what = error.inner().to_string();
        let path = strict_json::format_path(error.path());
        let parts = [place, &path, missing(&what)].into_iter().filter(|part| !part.is_empty());
        let field = parts.collect::<Vec<_>>().join(".");
        if field.is_empty() { Problem::new(Code::InvalidField, what) } else { Problem::field(field, what) }
    })
}

/// The name in "missing field `name`", whose path is that of the object around it.
fn missing(what: &str) -> &str {
    what.strip_prefix("missing field `").and_then(|rest| rest.split('`').next()).unwrap_or("")
}

fn malformed(fault: &strict_json::Fault) -> Problem {
    if fault.path.is_empty() {
        Problem::new(Code::MalformedJson, fault.what.clone())
    } else {
        let detail = format!("{}: {}", fault.path, fault.what);
        Problem { field: Some(fault.path.clone()), ..Problem::new(Code::MalformedJson, detail) }
    }
}

async fn receive(request: Request, app: &App, max_bytes: usize) -> Result<Received, Problem> {
    let (parts, body) = request.into_parts();
    check_type(&parts.headers)?;
    let tenant = limits::tenant_of(app.auth, &parts.extensions, &parts.headers);
    app.bodies.receive(&tenant, &parts.headers, body, max_bytes).await
}

/// The type that curl gives to a body when it is told none.
const CURLS_OWN: &str = "application/x-www-form-urlencoded";

/// A body without a type, or with the one that `curl -d` makes up, is taken as JSON; one with another type is not. Web
/// pages of other origins, which can send such bodies unasked, are kept out by `origin`.
fn check_type(headers: &HeaderMap) -> Result<(), Problem> {
    let Some(value) = headers.get(header::CONTENT_TYPE) else { return Ok(()) };
    let essence = value.to_str().unwrap_or("").split(';').next().unwrap_or("").trim().to_ascii_lowercase();
    let named = essence.starts_with("application/") && essence.ends_with("+json");
    if named || essence == "application/json" || essence == CURLS_OWN {
        Ok(())
    } else {
        Err(Problem::new(
            Code::UnsupportedMediaType,
            format!("the body is {essence:?}; send it with the header content-type: application/json"),
        ))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn problem<T: DeserializeOwned + std::fmt::Debug>(body: &[u8]) -> (String, Option<String>) {
        let problem = parse::<T>(body).unwrap_err();
        (problem.code.name().to_owned(), problem.field)
    }

    #[test]
    fn i1_the_problem_names_the_field() {
        type Submit = wire::SubmitTask;
        let table: [(&[u8], &str, Option<&str>); 10] = [
            (b"", "malformed_json", None),
            (b"{", "malformed_json", None),
            (b"[]", "invalid_field", None),
            (b"{\"queue\":\"q\"}", "invalid_field", Some("payload")),
            (b"{\"queue\":1,\"payload\":1}", "invalid_field", Some("queue")),
            (b"{\"queue\":\"q\",\"payload\":1,\"delayMs\":-1}", "invalid_field", Some("delayMs")),
            (b"{\"queue\":\"q\",\"payload\":1,\"prio\":-1}", "invalid_field", Some("prio")),
            (
                b"{\"queue\":\"q\",\"payload\":1,\"backoff\":{\"factor\":\"x\"}}",
                "invalid_field",
                Some("backoff.factor"),
            ),
            (b"{\"queue\":\"q\",\"payload\":{\"a\":1,\"a\":2}}", "malformed_json", Some("payload")),
            (b"{\"queue\":\"q\",\"queue\":\"q\",\"payload\":1}", "malformed_json", None),
        ];
        for (body, code, field) in table {
            let text = String::from_utf8_lossy(body).into_owned();
            assert_eq!(problem::<Submit>(body), (code.to_owned(), field.map(str::to_owned)), "{text}");
        }
    }

    #[test]
    fn a_payload_keeps_its_text() {
        let task: wire::SubmitTask = parse(br#"{"queue":"q","payload":{"b" : 1.0, "a":null}}"#).unwrap();
        assert_eq!(task.payload.as_text(), r#"{"b" : 1.0, "a":null}"#);
    }

    #[test]
    fn i1_a_deep_payload_is_refused() {
        let body = format!("{{\"queue\":\"q\",\"payload\":{}{}}}", "[".repeat(500), "]".repeat(500));
        assert_eq!(problem::<wire::SubmitTask>(body.as_bytes()).0, "malformed_json");
    }

    #[test]
    fn a_body_of_another_type_is_not_taken_as_json() {
        let check = |value: &'static str| {
            check_type(&HeaderMap::from_iter([(header::CONTENT_TYPE, HeaderValue::from_static(value))]))
        };
        assert!(check_type(&HeaderMap::new()).is_ok());
        assert!(check("application/json").is_ok());
        assert!(check("Application/JSON; charset=utf-8").is_ok());
        assert!(check("application/merge-patch+json").is_ok());
        assert!(check("text/plain").is_err());
        assert!(check("multipart/form-data; boundary=x").is_err());
        assert!(check("application/x-www-form-urlencoded").is_ok(), "what curl -d sends");
    }

    proptest! {
        #[test]
        fn no_body_makes_the_extractors_panic(body in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = parse::<wire::SubmitTask>(&body);
            let _ = parse::<wire::LeaseTasks>(&body);
            let _ = parse::<wire::QueueConfig>(&body);
        }

        #[test]
        fn nothing_like_a_request_makes_them_panic(
            field in "(queue|payload|delayMs|deadline|properties|workerId|taskId|result|backoff|leaseMs|x)",
            value in "(-?[0-9]{1,40}(\\.[0-9]{1,5})?(e[0-9]{1,4})?|\"[a-z\\\\u0-9]{0,8}\"|null|true|\\{\\}|\\[\\])",
        ) {
            let body = format!("{{\"queue\":\"q\",\"payload\":1,\"workerId\":\"w\",\"{field}\":{value}}}");
            let _ = parse::<wire::SubmitTask>(body.as_bytes());
            let _ = parse::<wire::ReportCompletion>(body.as_bytes());
            let _ = parse::<wire::ReportFailure>(body.as_bytes());
            let _ = parse::<wire::QueueConfig>(body.as_bytes());
        }
    }
}
