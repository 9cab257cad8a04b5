//! A registered worker belongs to the identity that registered it: no other identity of its tenant replaces it, ends it, speaks
//! for it or learns its leases, even if it knows the worker's name and session.

use serde_json::{Value, json};
use tonic::Code;
use tonic::transport::Channel;
use wire::grpc::worker_scheduler_client::WorkerSchedulerClient;
use wire::grpc::{
    LeasedTask, RegisterWorkerRequest, UpdateTaskStatusRequest, Verdict, WorkHello, WorkRequest,
};

use crate::guarded::Guarded;
use crate::key_limits::{beat, code, done, hello, leave, poll};
use crate::keyed::{channel, in_time, with_key};
use crate::support::send;

type Client = WorkerSchedulerClient<Channel>;

/// The worker `exec-7` of the key `owner` with the session `s-1`, which holds a task; and another key of its tenant.
struct Workers {
    guarded: Guarded,
    client: Client,
    owner: String,
    owner_id: String,
    thief: String,
    task: LeasedTask,
}

fn in_session() -> RegisterWorkerRequest {
    RegisterWorkerRequest { session_id: "s-1".to_owned(), ..hello("exec-7") }
}

async fn registered(session: RegisterWorkerRequest) -> Workers {
    let guarded = Guarded::start().await;
    let key = |name: &str| json!({"name": name, "tenants": ["default"], "roles": ["worker"]});
    let (owner, owner_id) = guarded.create(key("owner")).await;
    let (thief, _) = guarded.create(key("thief")).await;
    let mut client = Client::new(channel(&guarded).await);
    client.register_worker(with_key(&owner, session)).await.unwrap();
    let task = guarded.post(&guarded.admin, "/v1/tasks", json!({"queue": "other", "payload": 1})).await;
    assert_eq!(task.status, 201, "{task:?}");
    let leased = client.lease_task(with_key(&owner, poll("exec-7", "other"))).await.unwrap().into_inner();
    let task = leased.tasks.into_iter().next().unwrap();
    Workers { guarded, client, owner, owner_id, thief, task }
}

#[tokio::test]
async fn another_identity_takes_nothing_from_a_worker_whose_name_and_session_it_knows() {
    let Workers { guarded, mut client, owner, owner_id, thief, task } = registered(in_session()).await;
    let with_session =
        |worker: &str| wire::grpc::UnregisterWorkerRequest { session_id: "s-1".to_owned(), ..leave(worker) };
    let stream = WorkHello { worker: Some(in_session()), queues: vec!["other".to_owned()] };
    let stream = WorkRequest { hello: Some(stream), ..Default::default() };
    let opened = client.work(with_key(&thief, tokio_stream::iter([stream]))).await;
    let opened = match opened {
        Ok(stream) => in_time(stream.into_inner().message()).await.map(|_| ()),
        Err(status) => Err(status),
    };
    let refusals = [
        code(client.register_worker(with_key(&thief, hello("exec-7"))).await),
        code(client.register_worker(with_key(&thief, in_session())).await),
        code(client.lease_task(with_key(&thief, poll("exec-7", "other"))).await),
        code(client.report_heartbeat(with_key(&thief, beat("exec-7"))).await),
        code(client.update_task_status(with_key(&thief, done("exec-7", &task))).await),
        code(client.unregister_worker(with_key(&thief, leave("exec-7"))).await),
        code(client.unregister_worker(with_key(&thief, with_session("exec-7"))).await),
        opened.map_or_else(|status| status.code(), |()| Code::Ok),
    ];
    assert_eq!(refusals, [Code::PermissionDenied; 8]);
    // Nothing was lost to its owner, who may come back from another address, too.
    assert_eq!(code(client.register_worker(with_key(&owner, in_session())).await), Code::Ok);
    let session = wire::grpc::HeartbeatRequest { session_id: "s-1".to_owned(), ..beat("exec-7") };
    let told = client.report_heartbeat(with_key(&owner, session)).await.unwrap().into_inner();
    let ids: Vec<_> = told.leases.iter().map(|status| (&status.lease_id, status.lost)).collect();
    assert_eq!(ids, [(&task.lease_id, false)]);
    let report = UpdateTaskStatusRequest { lease_id: task.lease_id.clone(), ..done("exec-7", &task) };
    let answer = client.update_task_status(with_key(&owner, report)).await.unwrap().into_inner();
    assert_eq!(answer.verdict(), Verdict::Committed);
    // A key that ended protects no name.
    let revoked = send(guarded.request(&guarded.admin, "DELETE", &format!("/v1/keys/{owner_id}"))).await;
    assert_eq!(revoked.status, 200, "{revoked:?}");
    assert_eq!(code(client.register_worker(with_key(&thief, hello("exec-7"))).await), Code::Ok);
}

/// After a restart nobody is registered, and the worker is told so before it hears of its leases.
#[tokio::test]
async fn a_name_tells_no_leases_before_it_is_registered() {
    let Workers { guarded, owner, thief, task, .. } = registered(hello("exec-7")).await;
    let limited = json!({"name": "limited", "tenants": ["default"], "roles": ["worker"], "queues": ["mail"]});
    let (limited, _) = guarded.create(limited).await;
    let guarded = guarded.restarted().await;
    let mut client = Client::new(channel(&guarded).await);
    for key in [&thief, &owner] {
        let told = client.report_heartbeat(with_key(key, beat("exec-7"))).await.unwrap().into_inner();
        assert!(!told.registered && told.leases.is_empty(), "{told:?}");
    }
    let refused = client.register_worker(with_key(&limited, hello("exec-7"))).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
    assert!(refused.message().contains("holds leases of queues that the key is not for"), "{refused:?}");
    client.register_worker(with_key(&owner, hello("exec-7"))).await.unwrap();
    let told = client.report_heartbeat(with_key(&owner, beat("exec-7"))).await.unwrap().into_inner();
    let ids: Vec<_> = told.leases.iter().map(|status| (&status.task_id, status.lost)).collect();
    assert_eq!(ids, [(&task.task_id, false)]);
}

#[tokio::test]
async fn only_operators_see_the_sessions_of_workers() {
    let Workers { guarded, .. } = registered(in_session()).await;
    for (role, expected) in [("reader", Value::Null), ("operator", json!("s-1"))] {
        let key = guarded.key(role, "default", &[role]).await;
        let told = guarded.get(&key, "/v1/workers").await;
        let registration = &told.body["workers"][0]["registration"];
        assert!(registration["registeredAt"].is_string(), "{told:?}");
        assert_eq!(registration["sessionId"], expected, "{role}");
    }
}
