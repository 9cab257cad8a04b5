//! Calls that must be refused: how to make them, and how to see that they were and changed nothing.

use serde_json::{Value, json};

use super::Served;

/// One call that must be refused.
pub(crate) struct Bad {
    pub why: String,
    pub method: &'static str,
    pub path: String,
    pub body: Vec<u8>,
    pub status: u16,
    pub code: &'static str,
    /// The field that the problem must name.
    pub field: Option<&'static str>,
}

pub(crate) fn bad(
    why: &str,
    method: &'static str,
    path: &str,
    body: impl Into<Vec<u8>>,
    status: u16,
    code: &'static str,
) -> Bad {
    Bad { why: why.into(), method, path: path.into(), body: body.into(), status, code, field: None }
}

/// A field that is set to a value which will not do, in a body that is fine otherwise.
pub(crate) fn bad_field(
    method: &'static str,
    path: &str,
    good: &Value,
    field: &'static str,
    value: &str,
) -> Bad {
    let mut body = good.clone();
    body.as_object_mut().unwrap().remove(field);
    let rest = body.to_string();
    let comma = if rest == "{}" { "" } else { "," };
    let body = format!("{}{comma}\"{field}\":{value}}}", &rest[..rest.len() - 1]);
    let (status, code) = (400, "invalid_field");
    Bad { field: Some(field), ..bad(&format!("{field} = {value:.60}"), method, path, body, status, code) }
}

/// What is wrong with any body, whatever the endpoint.
pub(crate) fn bad_bodies(method: &'static str, path: &str, good: &Value, may_be_empty: bool) -> Vec<Bad> {
    let good_text = good.to_string();
    let inside = &good_text[1..good_text.len() - 1];
    let comma = if inside.is_empty() { "" } else { "," };
    let nested = format!("{}1{}", "[".repeat(200), "]".repeat(200));
    let mut list = vec![
        bad("not JSON", method, path, "hello", 400, "malformed_json"),
        bad("cut off", method, path, &good_text.as_bytes()[..good_text.len() - 1], 400, "malformed_json"),
        bad("trailing text", method, path, format!("{good_text} x"), 400, "malformed_json"),
        bad("trailing comma", method, path, format!("{{{inside},}}"), 400, "malformed_json"),
        bad("NaN", method, path, format!("{{{inside}{comma}\"x\":NaN}}"), 400, "malformed_json"),
        bad("endless number", method, path, format!("{{{inside}{comma}\"x\":1e999}}"), 400, "malformed_json"),
        bad(
            "lone surrogate",
            method,
            path,
            format!("{{{inside}{comma}\"x\":\"\\ud800\"}}"),
            400,
            "malformed_json",
        ),
        bad(
            "control character",
            method,
            path,
            format!("{{{inside}{comma}\"x\":\"\u{1}\"}}"),
            400,
            "malformed_json",
        ),
        bad(
            "bad UTF-8",
            method,
            path,
            [b"{\"x\":\"", &b"\xff\xfe"[..], b"\"}"].concat(),
            400,
            "malformed_json",
        ),
        bad(
            "deep nesting",
            method,
            path,
            format!("{{{inside}{comma}\"x\":{nested}}}"),
            400,
            "malformed_json",
        ),
        bad("unclosed nesting", method, path, "[".repeat(100_000), 400, "malformed_json"),
        bad(
            "duplicate key",
            method,
            path,
            format!("{{{inside}{comma}\"x\":1,\"x\":1}}"),
            400,
            "malformed_json",
        ),
        bad("an empty list", method, path, "[]", 400, "invalid_field"),
        bad("a list of fields", method, path, values(good), 400, "invalid_field"),
        bad("a text", method, path, "\"x\"", 400, "invalid_field"),
        bad("null", method, path, "null", 400, "invalid_field"),
        bad("unknown field", method, path, format!("{{{inside}{comma}\"x\":1}}"), 400, "invalid_field"),
        bad("too large", method, path, " ".repeat(17 << 20), 413, "payload_too_large"),
    ];
    if !may_be_empty {
        list.push(bad("no body", method, path, "", 400, "malformed_json"));
    }
    let fields = good.as_object().unwrap();
    for field in fields.keys() {
        let again = format!("{{{inside},\"{field}\":{}}}", fields[field]);
        list.push(bad(&format!("{field} twice"), method, path, again, 400, "malformed_json"));
    }
    list
}

/// The same for reports and heartbeats, which may have fields of a newer version.
pub(crate) fn bad_report_bodies(method: &'static str, path: &str, good: &Value) -> Vec<Bad> {
    let mut list = bad_bodies(method, path, good, false);
    list.retain(|bad| bad.why != "unknown field");
    list
}

/// The fields of a good body in order, without their names.
fn values(good: &Value) -> String {
    json!(good.as_object().unwrap().values().collect::<Vec<_>>()).to_string()
}

pub(crate) async fn refuse_all(served: &Served, list: Vec<Bad>, report: bool) {
    assert!(!list.is_empty());
    for bad in list {
        let position = served.position().await;
        let told = served.raw(bad.method, &bad.path, bad.body).await;
        let call = format!("{} {} with {}", bad.method, bad.path, bad.why);
        assert_eq!(
            (told.status, told.body["code"].as_str()),
            (bad.status, Some(bad.code)),
            "{call}: {told:?}"
        );
        told.is_problem(bad.status, bad.code);
        if let Some(field) = bad.field {
            let named = told.body["field"].as_str().unwrap_or("");
            assert!(named.starts_with(field), "{call}: {told:?}");
        }
        let verdict = report.then_some("REJECTED");
        assert_eq!(told.body["verdict"].as_str(), verdict, "{call}: {told:?}");
        assert_eq!(served.position().await, position, "{call} changed something");
    }
}

/// Values that no name may have.
const BAD_NAMES: [&str; 8] = ["\"\"", "1", "null", "[]", "{}", "true", "\"a\\u0000b\"", "\"a\\nb\""];
/// Values that no count or span may have.
const BAD_COUNTS: [&str; 6] = ["-1", "1.5", "\"1\"", "[]", "true", "99999999999999999999999"];

pub(crate) fn bad_names(
    method: &'static str,
    path: &str,
    good: &Value,
    field: &'static str,
    optional: bool,
) -> Vec<Bad> {
    let long = format!("\"{}\"", "x".repeat(513));
    let mut list: Vec<_> = BAD_NAMES
        .iter()
        .filter(|value| !(optional && **value == "null"))
        .map(|value| bad_field(method, path, good, field, value))
        .collect();
    list.push(bad_field(method, path, good, field, &long));
    list
}

/// The same for a name in a report, which is missing when it is empty.
pub(crate) fn bad_reported_names(
    method: &'static str,
    path: &str,
    good: &Value,
    field: &'static str,
) -> Vec<Bad> {
    let empty = bad_field(method, path, good, field, "\"\"").body;
    let mut list = bad_names(method, path, good, field, true);
    list.retain(|bad| bad.body != empty);
    list
}

pub(crate) fn bad_counts(method: &'static str, path: &str, good: &Value, field: &'static str) -> Vec<Bad> {
    BAD_COUNTS.iter().map(|value| bad_field(method, path, good, field, value)).collect()
}
