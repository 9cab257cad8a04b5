//! Tasks find their workers by properties, so an identity may be limited to those that its workers really have.

use serde_json::{Value, json};
use tonic::Code;
use tonic::transport::Channel;
use wire::grpc::worker_scheduler_client::WorkerSchedulerClient;
use wire::grpc::{LeaseTaskRequest, RegisterWorkerRequest, WorkHello, WorkRequest};

use crate::guarded::Guarded;
use crate::key_limits::{code, hello, poll};
use crate::keyed::{channel, in_time, with_key};

type Client = WorkerSchedulerClient<Channel>;

/// What a worker of the key may announce, and what it may not.
const TRUE: &[&[(&str, &str)]] = &[&[], &[("os", "linux")], &[("os", "linux"), ("pool", "public-7")]];
const FALSE: &[&[(&str, &str)]] =
    &[&[("pool", "trusted")], &[("os", "linux"), ("pool", "trusted")], &[("os", "linu")], &[("gpu", "1")]];

async fn limited(guarded: &Guarded) -> String {
    let key = json!({
        "name": "limited", "tenants": ["default"], "roles": ["worker"],
        "properties": {"os": ["linux", "bsd"], "pool": ["public-*"]},
    });
    guarded.create(key).await.0
}

fn json_of(properties: &[(&str, &str)]) -> Value {
    properties.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect()
}

fn registration(properties: &[(&str, &str)]) -> RegisterWorkerRequest {
    let pairs = properties.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    RegisterWorkerRequest { platform_properties: pairs.collect(), ..hello("w") }
}

async fn opens(client: &mut Client, key: &str, properties: &[(&str, &str)]) -> Code {
    let first = WorkHello { worker: Some(registration(properties)), queues: vec!["q".to_owned()] };
    let first = WorkRequest { hello: Some(first), ..Default::default() };
    match client.work(with_key(key, tokio_stream::iter([first]))).await {
        Ok(stream) => code(in_time(stream.into_inner().message()).await.map(tonic::Response::new)),
        Err(status) => status.code(),
    }
}

#[tokio::test]
async fn w7_a_worker_announces_only_the_properties_of_its_identity() {
    let guarded = Guarded::start().await;
    let key = limited(&guarded).await;
    let task = json!({"queue": "q", "payload": 1, "properties": {"pool": "trusted"}});
    assert_eq!(guarded.post(&guarded.admin, "/v1/tasks", task).await.status, 201);
    let lease =
        |properties: &Value| json!({"workerId": "w", "queues": ["q"], "waitMs": 0, "properties": properties});
    let claim = |properties: &Value| json!({"worker_id": "w", "streams": ["q"], "max_wait_ms": 0, "properties": properties});
    let mut client = Client::new(channel(&guarded).await);
    for (cases, status, expected) in [(TRUE, 200, Code::Ok), (FALSE, 403, Code::PermissionDenied)] {
        for properties in cases {
            let announced = json_of(properties);
            let told = guarded.post(&key, "/v1/leases", lease(&announced)).await;
            assert_eq!(told.status, status, "{announced}: {told:?}");
            let claimed = guarded.post(&key, "/internal/worker/claim", claim(&announced)).await;
            assert_eq!(claimed.status, status, "{announced}: {claimed:?}");
            let registered = client.register_worker(with_key(&key, registration(properties))).await;
            assert_eq!(code(registered), expected, "{announced}");
            assert_eq!(opens(&mut client, &key, properties).await, expected, "{announced}");
            // Whoever is registered may announce other properties with each lease.
            let properties = registration(properties).platform_properties;
            let asked = LeaseTaskRequest { properties, ..poll("w", "q") };
            assert_eq!(code(client.lease_task(with_key(&key, asked)).await), expected, "{announced}");
        }
    }
    // The task is still there for a worker that may have it.
    let trusted = json_of(&[("pool", "trusted")]);
    let leased = guarded.post(&guarded.admin, "/v1/leases", lease(&trusted)).await;
    assert_eq!(leased.body["leases"].as_array().map(Vec::len), Some(1), "{leased:?}");
}

#[tokio::test]
async fn the_properties_of_a_key_are_listed_and_kept_and_bad_ones_refused() {
    let guarded = Guarded::start().await;
    limited(&guarded).await;
    let guarded = guarded.restarted().await;
    let listed = guarded.get(&guarded.admin, "/v1/keys").await;
    assert_eq!(listed.body["keys"][0]["properties"], json!({"os": ["linux", "bsd"], "pool": ["public-*"]}));
    let key = |properties: Value| json!({"name": "bad", "tenants": ["default"], "roles": ["worker"], "properties": properties});
    let many: Vec<String> = (0..65).map(|n| n.to_string()).collect();
    for properties in [json!({"os": []}), json!({"a=b": ["c"]}), json!({"": ["c"]}), json!({"os": many})] {
        let told = guarded.post(&guarded.admin, "/v1/keys", key(properties)).await;
        told.is_problem(400, "invalid_field");
    }
}
