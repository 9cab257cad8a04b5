//! No JSON request takes much more memory than it has bytes (A6). Every array, map and free JSON of every request, as
//! docs/openapi.json names them, is flooded with elements that take the fewest bytes.

use std::collections::BTreeMap;
use std::fmt::Write;

use allocation_counter::measure;
use axum::body::Body;
use axum::http::Request;
use serde_json::Value;
use tower::ServiceExt;
use wire::strict_json;

use crate::app::App;
use crate::edge::compute::MAX_EXPANSION;
use crate::edge::json::{MAX_BODY_BYTES, parse};
use crate::router::router;
use crate::tasks::batch::Batch;

/// The promise for requests of any size: at most so many times its bytes, and so many bytes more.
const PROMISED_EXPANSION: u64 = 16;
const PROMISED_EXTRA_BYTES: u64 = 64 << 20;

/// The memory to parse a request.
fn takes<T: serde::de::DeserializeOwned>(body: &str) -> u64 {
    measure(|| drop(parse::<T>(body.as_bytes()))).bytes_max
}

type Takes = fn(&str) -> u64;

/// The requests of all calls with a body.
fn requests() -> BTreeMap<&'static str, Takes> {
    macro_rules! requests {
        ($($name:ident: $Request:ty),* $(,)?) => {
            BTreeMap::from([$((stringify!($name), takes::<$Request> as Takes)),*])
        };
    }
    requests! {
        ClaimJob: wire::ClaimJob, CompleteJob: wire::CompleteJob, FailJob: wire::FailJob,
        HeartbeatJob: wire::HeartbeatJob, CreateApiKey: wire::CreateApiKey, LeaseTasks: wire::LeaseTasks,
        ReportCompletion: wire::ReportCompletion, ReportFailure: wire::ReportFailure,
        Heartbeat: wire::Heartbeat, ReleaseLease: wire::ReleaseLease, QueueConfig: wire::QueueConfig,
        SubmitTask: wire::SubmitTask, SubmitBatch: Batch, CancelTask: wire::CancelTask,
        TaskCompleted: wire::TaskCompleted, TaskHeartbeat: wire::TaskHeartbeat,
        TaskStarted: wire::TaskStarted, RotateTokenKey: wire::RotateTokenKey, OrderWorker: wire::OrderWorker,
    }
}

struct Document(Value);

impl Document {
    /// A schema behind its references; of alternatives, those that are not null.
    fn resolve<'a>(&'a self, mut schema: &'a Value) -> &'a Value {
        loop {
            let one_of =
                schema["oneOf"].as_array().and_then(|all| all.iter().find(|one| one["type"] != "null"));
            schema = match (schema["$ref"].as_str(), one_of) {
                (Some(name), _) => self.0.pointer(name.trim_start_matches('#')).unwrap(),
                (None, Some(one)) => one,
                (None, None) => return schema,
            };
        }
    }

    /// The requests by name, each with its schema.
    fn bodies(&self) -> BTreeMap<String, &Value> {
        let calls =
            self.0["paths"].as_object().unwrap().values().flat_map(|path| path.as_object().unwrap().values());
        let bodies = calls.filter_map(|call| call.pointer("/requestBody/content/application~1json/schema"));
        let named = bodies.map(|schema| {
            let one = schema["oneOf"].as_array().map_or(schema, |all| &all[0]);
            let name = one["$ref"].as_str().unwrap().rsplit('/').next().unwrap();
            (name.to_owned(), self.resolve(schema))
        });
        named.collect()
    }

    /// Adds the texts that flood a field, each around the place of the field: what comes before it, and after it.
    fn floods(&self, schema: &Value, before: &str, after: &str, floods: &mut Vec<[String; 4]>) {
        let schema = self.resolve(schema);
        let mut add = |open: &str, element: &str, close: &str| {
            let [before, after] = [format!("{before}{open}"), format!("{close}{after}")];
            floods.push([before, element.to_owned(), after, open.to_owned()]);
        };
        let is = |kind: &str| {
            schema["type"] == kind
                || schema["type"].as_array().is_some_and(|all| all.iter().any(|one| one == kind))
        };
        if is("array") {
            let items = self.resolve(&schema["items"]);
            match items["enum"].as_array() {
                Some(names) => names.iter().for_each(|name| add("[", &format!("{name},"), "null]")),
                None => ["\"\",", "{},", "0,"].iter().for_each(|element| add("[", element, "null]")),
            }
            self.floods(items, &format!("{before}["), &format!("]{after}"), floods);
        } else if is("object") {
            // Also of fields that nobody knows: reports may have them.
            ["\"#\":\"\",", "\"#\":0,", "\"\":0,", "\"#\":[],"]
                .iter()
                .for_each(|entry| add("{", entry, "\"end\":0}"));
            for (name, field) in schema["properties"].as_object().into_iter().flatten() {
                self.floods(field, &format!("{before}{{\"{name}\":"), &format!("}}{after}"), floods);
            }
        } else if schema["type"].is_null() {
            for element in ["0,", "\"\",", "[],", "{},", "{\"\":0},", "1.5,", "null,"] {
                add("[", element, "null]");
            }
            ["\"#\":\"\",", "\"#\":0,", "\"\":0,"].iter().for_each(|entry| add("{", entry, "\"end\":0}"));
        }
    }
}

/// Repeats an element up to so many bytes; `#` is another number each time.
fn repeated(element: &str, max_bytes: usize) -> String {
    let mut text = String::with_capacity(max_bytes + element.len() + 16);
    for n in 0_u32.. {
        match element.split_once('#') {
            Some((start, end)) => write!(text, "{start}{n:x}{end}").unwrap(),
            None => text.push_str(element),
        }
        if text.len() >= max_bytes {
            break;
        }
    }
    text
}

#[test]
fn a6_no_field_of_a_json_request_takes_much_more_memory_than_bytes() {
    let document = Document(serde_json::from_str(include_str!("../../../docs/openapi.json")).unwrap());
    let (bodies, requests) = (document.bodies(), requests());
    assert!(bodies.keys().eq(requests.keys()), "{:?} {:?}", bodies.keys(), requests.keys());
    let (mut count, mut worst) = (0, (0.0, String::new()));
    for (name, schema) in bodies {
        let mut floods = Vec::new();
        document.floods(schema, "", "", &mut floods);
        for [before, element, after, open] in floods {
            let inner = repeated(&element, MAX_BODY_BYTES / 4);
            let body = format!("{before}{inner}{after}");
            let free_json = format!("{open}{inner}{}", if open == "[" { "null]" } else { "\"end\":0}" });
            let bytes = requests[name.as_str()](&body);
            // Payloads and results are compared by their canonical form.
            let compared = measure(|| drop(strict_json::canonical(free_json.as_bytes()))).bytes_max;
            let promised = PROMISED_EXPANSION * body.len() as u64 + PROMISED_EXTRA_BYTES;
            let place = format!("{name}: {before}{element}");
            let expansion = bytes as f64 / body.len() as f64;
            assert!(
                bytes <= MAX_EXPANSION as u64 * body.len() as u64,
                "{place} takes {expansion:.1} times its bytes"
            );
            assert!(bytes.max(compared) <= promised, "{place}: {bytes} and {compared}");
            if expansion > worst.0 {
                worst = (expansion, place);
            }
            count += 1;
        }
    }
    assert!(count > 200, "{count} floods");
    println!("{count} floods; the worst takes {:.1} times its bytes: {}", worst.0, worst.1);
}

/// Long requests were parsed without a claim on the memory for that.
#[tokio::test]
async fn a6_a_long_request_is_parsed_only_with_memory_for_it() {
    let storage = ledger::memory::MemoryStorage::default().open();
    let running = coordinator::start(storage, coordinator::Options::default()).unwrap();
    let app = App::new(running.handle.clone(), [7; 32]);
    app.compute.close_memory();
    let calls = [
        ("/v1/tasks", r#"{"queue":"q","payload":1}"#, 201),
        ("/v1/tasks/batch", r#"{"tasks":[{"queue":"q","payload":1}]}"#, 200),
        ("/v1/tasks/018f0000-0000-7000-8000-000000000001/cancel", r#"{"reason":"x"}"#, 404),
    ];
    for (path, body, status) in calls {
        for (padding, expected) in [(0, status), (256 * 1_024, 503)] {
            let body = Body::from(format!("{body}{}", " ".repeat(padding)));
            let request = Request::post(path).header("content-type", "application/json").body(body).unwrap();
            let answer = router(app.clone()).oneshot(request).await.unwrap();
            assert_eq!(answer.status().as_u16(), expected, "{path} with {padding} bytes more");
        }
    }
    running.stop().await.unwrap();
}
