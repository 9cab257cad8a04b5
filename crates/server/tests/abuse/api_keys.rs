//! API keys from their creation to their end: what they let through, and for how long.

use serde_json::{Value, json};

use crate::guarded::Guarded;
use crate::support::send;

#[tokio::test]
async fn a_key_works_until_it_is_revoked_and_also_after_a_restart() {
    let guarded = Guarded::start().await;
    let made = guarded.create(json!({"name": "ci", "tenants": ["default"], "roles": ["submitter"]})).await;
    let (key, id) = made;
    let task = json!({"queue": "mail", "payload": 1});
    assert_eq!(guarded.post(&key, "/v1/tasks", task.clone()).await.status, 201);
    let basic = guarded.served.request("POST", "/v1/tasks").basic_auth("anyone", Some(&key)).json(&task);
    assert_eq!(send(basic).await.status, 201, "as the password of HTTP basic");
    let guarded = guarded.restarted().await;
    assert_eq!(guarded.post(&key, "/v1/tasks", task.clone()).await.status, 201);
    let revoked = send(guarded.request(&guarded.admin, "DELETE", &format!("/v1/keys/{id}"))).await;
    assert_eq!((revoked.status, &revoked.body["keyId"]), (200, &json!(id)));
    guarded.post(&key, "/v1/tasks", task.clone()).await.is_problem(401, "unauthenticated");
    let again = send(guarded.request(&guarded.admin, "DELETE", &format!("/v1/keys/{id}"))).await;
    again.is_problem(404, "unknown_key");
    // The name is free again, and another secret belongs to it.
    let other = guarded.key("ci", "default", &["submitter"]).await;
    assert_eq!(guarded.post(&other, "/v1/tasks", task.clone()).await.status, 201);
    guarded.post(&key, "/v1/tasks", task).await.is_problem(401, "unauthenticated");
}

#[tokio::test]
async fn the_list_of_keys_has_everything_but_secrets() {
    let guarded = Guarded::start().await;
    let asked = json!({
        "name": "farm", "tenants": ["a", "b"], "roles": ["worker", "cache-writer"], "queues": ["exec"],
        "workerPrefix": "farm-", "expiresAt": "2100-01-01T00:00:00Z",
    });
    let (key, id) = guarded.create(asked).await;
    let listed = guarded.get(&guarded.admin, "/v1/keys").await;
    let keys = listed.body["keys"].as_array().unwrap();
    let names: Vec<_> = keys.iter().map(|key| key["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["farm", "root"]);
    let mut farm = keys[0].clone();
    assert!(farm["createdAt"].take().is_string());
    assert_eq!(
        farm,
        json!({
            "keyId": id, "name": "farm", "tenants": ["a", "b"], "roles": ["worker", "cache-writer"],
            "queues": ["exec"], "workerPrefix": "farm-", "expiresAt": "2100-01-01T00:00:00Z",
            "properties": {}, "createdAt": Value::Null, "createdBy": "root",
        })
    );
    let secret = key.rsplit('_').next().unwrap();
    assert!(!listed.body.to_string().contains(secret));
}

#[tokio::test]
async fn bad_requests_for_keys_name_their_field() {
    let guarded = Guarded::start().await;
    for (body, status, code, field) in [
        (json!({"name": "root", "roles": ["admin"]}), 409, "key_name_taken", "name"),
        (json!({"name": "", "roles": ["admin"]}), 400, "invalid_field", "name"),
        (json!({"name": "x", "roles": []}), 400, "invalid_field", "roles"),
        (json!({"name": "x", "roles": ["reader"]}), 400, "invalid_field", "tenants"),
        (json!({"name": "x", "roles": ["admin"], "tenants": ["a"]}), 400, "invalid_field", "tenants"),
        (json!({"name": "x", "roles": ["reader"], "tenants": ["a\n"]}), 400, "invalid_field", "tenants[0]"),
        (
            json!({"name": "x", "roles": ["reader"], "tenants": vec!["a"; 17]}),
            400,
            "invalid_field",
            "tenants",
        ),
        (
            json!({"name": "x", "roles": ["reader"], "tenants": ["a"], "expiresAt": "2020-01-01T00:00:00Z"}),
            400,
            "invalid_field",
            "expiresAt",
        ),
    ] {
        let told = guarded.post(&guarded.admin, "/v1/keys", body).await;
        told.is_problem(status, code);
        assert_eq!(told.body["field"], field, "{told:?}");
    }
    let unknown = guarded.post(&guarded.admin, "/v1/keys", json!({"name": "x", "roles": ["king"]})).await;
    assert_eq!(unknown.status, 400, "{unknown:?}");
}

#[tokio::test]
async fn a_key_is_held_to_its_queues_and_to_the_names_of_its_workers() {
    let guarded = Guarded::start().await;
    let submitter = guarded.create(json!({
        "name": "mailer", "tenants": ["default"], "roles": ["submitter", "operator"], "queues": ["mail"],
    }));
    let (submitter, _) = submitter.await;
    let task = |queue: &str| json!({"queue": queue, "payload": 1});
    assert_eq!(guarded.post(&submitter, "/v1/tasks", task("mail")).await.status, 201);
    let told = guarded.post(&submitter, "/v1/tasks", task("other")).await;
    told.is_problem(403, "forbidden");
    assert!(told.text("detail").contains("not for the queue other"), "{told:?}");
    let batch =
        guarded.post(&submitter, "/v1/tasks/batch", json!({"tasks": [task("mail"), task("other")]})).await;
    assert!(batch.body["tasks"][0]["taskId"].is_string(), "{batch:?}");
    assert_eq!(batch.body["tasks"][1]["error"]["code"], "forbidden", "{batch:?}");
    let put = guarded.request(&submitter, "PUT", "/v1/queues/other").json(&json!({}));
    send(put).await.is_problem(403, "forbidden");

    let worker = guarded.create(json!({
        "name": "worker", "tenants": ["default"], "roles": ["worker"], "queues": ["mail"], "workerPrefix": "w-",
    }));
    let (worker, _) = worker.await;
    let lease = |id: &str, queue: &str| json!({"workerId": id, "queues": [queue], "waitMs": 0});
    assert_eq!(guarded.post(&worker, "/v1/leases", lease("w-1", "mail")).await.status, 200);
    guarded.post(&worker, "/v1/leases", lease("x-1", "mail")).await.is_problem(403, "forbidden");
    guarded.post(&worker, "/v1/leases", lease("w-1", "other")).await.is_problem(403, "forbidden");
    let claim = |id: &str, queue: &str| json!({"worker_id": id, "streams": [queue], "max_wait_ms": 0});
    assert_eq!(guarded.post(&worker, "/internal/worker/claim", claim("w-1", "mail")).await.status, 200);
    for (id, queue) in [("x-1", "mail"), ("w-1", "other")] {
        let told = guarded.post(&worker, "/internal/worker/claim", claim(id, queue)).await;
        assert_eq!(told.status, 403, "{told:?}");
    }
    for (id, code) in [("w-1", tonic::Code::Ok), ("x-1", tonic::Code::PermissionDenied)] {
        assert_eq!(register(&guarded, &worker, id).await, code, "{id}");
    }
}

/// Registers a worker over gRPC.
async fn register(guarded: &Guarded, key: &str, worker_id: &str) -> tonic::Code {
    use wire::grpc::RegisterWorkerRequest;
    use wire::grpc::worker_scheduler_client::WorkerSchedulerClient;
    let url = format!("http://{}", guarded.served.address);
    let mut client = WorkerSchedulerClient::connect(url).await.unwrap();
    let message = RegisterWorkerRequest { worker_id: worker_id.to_owned(), ..Default::default() };
    let mut request = tonic::Request::new(message);
    request.metadata_mut().insert("authorization", format!("Bearer {key}").parse().unwrap());
    client.register_worker(request).await.map_or_else(|status| status.code(), |_| tonic::Code::Ok)
}

/// A stream that was open when its key was revoked went on for as long as its connection.
#[tokio::test]
async fn the_stream_of_a_worker_ends_with_its_key() {
    use wire::grpc::worker_scheduler_client::WorkerSchedulerClient;
    use wire::grpc::{RegisterWorkerRequest, WorkHello, WorkRequest};
    let guarded = Guarded::start().await;
    let made = guarded.create(json!({"name": "w", "tenants": ["default"], "roles": ["worker"]})).await;
    let (key, id) = made;
    let url = format!("http://{}", guarded.served.address);
    let mut client = WorkerSchedulerClient::connect(url).await.unwrap();
    let worker = RegisterWorkerRequest { worker_id: "w".to_owned(), ..Default::default() };
    let hello = WorkHello { worker: Some(worker), queues: vec!["q".to_owned()] };
    let (sender, receiver) = tokio::sync::mpsc::channel(1);
    sender.send(WorkRequest { hello: Some(hello), ..Default::default() }).await.unwrap();
    let mut request = tonic::Request::new(tokio_stream::wrappers::ReceiverStream::new(receiver));
    request.metadata_mut().insert("authorization", format!("Bearer {key}").parse().unwrap());
    let mut stream = client.work(request).await.unwrap().into_inner();
    assert!(stream.message().await.unwrap().unwrap().welcome.is_some());
    let revoked = send(guarded.request(&guarded.admin, "DELETE", &format!("/v1/keys/{id}"))).await;
    assert_eq!(revoked.status, 200);
    assert_eq!(stream.message().await.unwrap_err().code(), tonic::Code::Unauthenticated);
}
