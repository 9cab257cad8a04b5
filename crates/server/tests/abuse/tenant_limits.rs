//! The limits of a tenant: what is beyond one is refused with the name of the limit and a time to come back, before its body
//! is read, and other tenants do not notice.

use std::collections::HashMap;
use std::num::NonZeroU32;

use blobs::TenantQuotas;
use serde_json::json;
use server::{LimitsByTenant, TenantLimits};
use tokio::task::JoinSet;
use tokio_stream::pending;
use tonic::{Code, Status};
use tonic_types::StatusExt;
use wire::grpc::worker_scheduler_client::WorkerSchedulerClient;
use wire::grpc::{SubmitTasksRequest, WorkRequest};

use crate::guarded::Guarded;
use crate::keyed::{channel, execute, in_time, try_execute, with_key};
use crate::peer::Peer;
use crate::support::{Told, send};

/// A server that limits the tenant acme, and keys of acme and of another tenant.
async fn limited(acme: TenantLimits) -> (Guarded, String, String) {
    let tenants = HashMap::from([("acme".to_owned(), acme)]);
    let limits = LimitsByTenant { tenants, ..LimitsByTenant::default() };
    let guarded = Guarded::start_with(blobs::Options::default(), limits).await;
    let roles = ["reader", "submitter", "worker", "cache-writer"];
    let own = guarded.key("own", "acme", &roles).await;
    let other = guarded.key("other", "other", &roles).await;
    (guarded, own, other)
}

#[track_caller]
fn is_limited(told: &Told, limit: &str) {
    told.is_problem(429, "tenant_limit");
    assert_eq!(told.body["limit"], limit);
    let retry_after: u64 = told.headers["retry-after"].to_str().unwrap().parse().unwrap();
    assert!(retry_after >= 1);
}

#[track_caller]
fn is_limited_status(status: &Status, limit: &str) {
    assert_eq!(status.code(), Code::ResourceExhausted, "{status:?}");
    let details = status.get_error_details();
    assert_eq!(details.error_info().unwrap().metadata["limit"], limit);
    assert!(details.retry_info().is_some());
}

/// How often a limit refused something, as `/metrics` says.
async fn refused(guarded: &Guarded, limit: &str) -> u64 {
    let response = guarded.request(&guarded.admin, "GET", "/metrics").send().await.unwrap();
    let text = response.text().await.unwrap();
    let series = format!("lessor_limited_total{{limit=\"{limit}\"}} ");
    text.lines().find_map(|line| line.strip_prefix(&series)).expect("the series is there").parse().unwrap()
}

#[tokio::test]
async fn a3_requests_beyond_the_rate_are_refused_and_those_of_others_are_not() {
    let (rate, burst) = (NonZeroU32::new(1), NonZeroU32::new(3));
    let acme = TenantLimits { requests_per_second: rate, request_burst: burst, ..TenantLimits::default() };
    let (guarded, own, other) = limited(acme).await;
    let mut calls = JoinSet::new();
    // At one request per second most of them are too many, however slow the machine is.
    for _ in 0..40 {
        calls.spawn(send(guarded.request(&own, "GET", "/v1/queues")));
    }
    let told = calls.join_all().await;
    let admitted = told.iter().filter(|told| told.status == 200).count();
    assert!((3..40).contains(&admitted), "{admitted}");
    told.iter().filter(|told| told.status != 200).for_each(|told| is_limited(told, "requests_per_second"));
    for _ in 0..40 {
        assert_eq!(guarded.get(&other, "/v1/queues").await.status, 200);
    }
    let counted = refused(&guarded, "requests_per_second").await;
    assert_eq!(counted, 40 - admitted as u64);
    // Whoever has no credential counts for nobody, whatever tenant is named.
    let mut calls = JoinSet::new();
    for _ in 0..40 {
        calls.spawn(send(guarded.served.request("GET", "/v1/queues").header("lessor-tenant", "acme")));
    }
    assert!(calls.join_all().await.iter().all(|told| told.status == 401));
    assert_eq!(refused(&guarded, "requests_per_second").await, counted);
}

#[tokio::test]
async fn a_refused_call_of_grpc_names_the_limit_in_its_details() {
    let one = NonZeroU32::new(1);
    let acme = TenantLimits { requests_per_second: one, ..TenantLimits::default() };
    let (guarded, own, _) = limited(acme).await;
    let client = WorkerSchedulerClient::new(channel(&guarded).await);
    let mut calls = JoinSet::new();
    for _ in 0..40 {
        let (mut client, request) = (client.clone(), with_key(&own, SubmitTasksRequest::default()));
        calls.spawn(async move { client.submit_tasks(request).await.map(drop) });
    }
    let told = calls.join_all().await;
    let limited = told.iter().filter_map(|told| told.as_ref().err());
    let limited: Vec<_> = limited.filter(|status| status.code() == Code::ResourceExhausted).collect();
    assert!(!limited.is_empty());
    limited.iter().for_each(|status| is_limited_status(status, "requests_per_second"));
}

/// A request on a connection that stays open: its status line.
async fn ask(peer: &mut Peer, key: &str) -> String {
    let head = format!("GET /v1/queues HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {key}\r\n\r\n");
    peer.send(head.as_bytes()).await;
    peer.hear_head().await.lines().next().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn a_connection_counts_for_its_tenant_until_it_is_closed() {
    let acme = TenantLimits { connections: Some(1), ..TenantLimits::default() };
    let (guarded, own, other) = limited(acme).await;
    let mut first = Peer::connect(&guarded.served).await;
    assert!(ask(&mut first, &own).await.contains(" 200 "));
    let mut second = Peer::connect(&guarded.served).await;
    assert!(ask(&mut second, &own).await.contains(" 429 "));
    let rest = second.hear().await;
    assert!(rest.contains("\"limit\":\"connections\""), "it is closed after the answer: {rest}");
    let mut third = Peer::connect(&guarded.served).await;
    assert!(ask(&mut third, &other).await.contains(" 200 "), "others connect");
    drop(first);
    in_time(async { while !ask(&mut Peer::connect(&guarded.served).await, &own).await.contains(" 200 ") {} })
        .await;
    assert!(refused(&guarded, "connections").await >= 1);
}

#[tokio::test]
async fn a_tenant_waits_in_as_many_polls_as_it_may() {
    let acme = TenantLimits { polls: Some(1), ..TenantLimits::default() };
    let (guarded, own, other) = limited(acme).await;
    let poll = |worker: &str, wait_ms: u64| json!({"workerId": worker, "queues": ["q"], "waitMs": wait_ms});
    let waiting = guarded.request(&own, "POST", "/v1/leases").json(&poll("w1", 60_000));
    // Again if the other poll was faster.
    let waiting = tokio::spawn(async move {
        loop {
            send(waiting.try_clone().expect("its body is in memory")).await;
        }
    });
    let told = in_time(async {
        loop {
            let told = guarded.post(&own, "/v1/leases", poll("w2", 20)).await;
            if told.status != 200 {
                break told;
            }
        }
    })
    .await;
    is_limited(&told, "polls");
    assert_eq!(guarded.post(&own, "/v1/leases", poll("w2", 0)).await.status, 200, "it does not wait");
    assert_eq!(guarded.post(&other, "/v1/leases", poll("w2", 20)).await.status, 200);
    waiting.abort();
}

#[tokio::test]
async fn a_tenant_has_as_many_streams_as_it_may() {
    let acme = TenantLimits { streams: Some(1), ..TenantLimits::default() };
    let (guarded, own, other) = limited(acme).await;
    let mut client = WorkerSchedulerClient::new(channel(&guarded).await);
    let first = client.work(with_key(&own, pending::<WorkRequest>())).await.unwrap();
    let status = client.work(with_key(&own, pending::<WorkRequest>())).await.unwrap_err();
    is_limited_status(&status, "streams");
    assert!(client.work(with_key(&other, pending::<WorkRequest>())).await.is_ok());
    drop(first);
    in_time(async { while client.work(with_key(&own, pending::<WorkRequest>())).await.is_err() {} }).await;
}

#[tokio::test]
async fn a_tenant_has_as_many_executions_as_it_may_also_after_a_restart() {
    let acme = TenantLimits { executions: Some(1), ..TenantLimits::default() };
    let (guarded, own, other) = limited(acme).await;
    let (name, _stream) = execute(&guarded, &own).await;
    let status = try_execute(&guarded, &own, "false").await.unwrap_err();
    is_limited_status(&status, "executions");
    assert!(try_execute(&guarded, &own, "true").await.is_ok(), "an equal execution is joined");
    assert!(try_execute(&guarded, &other, "false").await.is_ok());
    let guarded = guarded.restarted().await;
    let status = try_execute(&guarded, &own, "false").await.unwrap_err();
    is_limited_status(&status, "executions");
    assert!(!name.is_empty());
}

#[tokio::test]
async fn what_does_not_fit_into_the_blobs_of_a_tenant_is_refused() {
    let acme = blobs::Tenant::new("acme").unwrap();
    let tenant_quotas = TenantQuotas::new(None, [(acme, Some(1 << 20))]);
    let options = blobs::Options { tenant_quotas, ..blobs::Options::default() };
    let guarded = Guarded::start_with(options, LimitsByTenant::default()).await;
    let content = vec![b'x'; 2 << 20];
    let path = format!("/cas/{}", blobs::Digest::of(blobs::DigestFunction::Sha256, &content).hash);
    for (tenant, status) in [("acme", 429), ("other", 200)] {
        let key = guarded.key(tenant, tenant, &["cache-writer"]).await;
        let told = send(guarded.request(&key, "PUT", &path).body(content.clone())).await;
        assert_eq!(told.status, status, "{told:?}");
        if status == 429 {
            is_limited(&told, "blob_mib");
        }
    }
}

#[tokio::test]
async fn x22_a_tenant_sees_its_own_metrics_and_no_others() {
    let (guarded, own, _) = limited(TenantLimits::default()).await;
    for (tenant, tasks) in [("acme", 2), ("other", 3)] {
        let key = guarded.key(&format!("{tenant}-submitter"), tenant, &["submitter"]).await;
        for _ in 0..tasks {
            let submitted = guarded.post(&key, "/v1/tasks", json!({"queue": "q", "payload": 1})).await;
            assert_eq!(submitted.status, 201, "{submitted:?}");
        }
    }
    let operator = guarded.key("operator", "other", &["operator"]).await;
    let submitter = guarded.key("submitter", "other", &["submitter"]).await;
    let text = |key: String| {
        let request = guarded.request(&key, "GET", "/metrics");
        async move { request.send().await.unwrap().text().await.unwrap() }
    };
    for (key, tenant, tasks) in [(own, "acme", 2), (operator, "other", 3)] {
        let figures = text(key).await;
        assert!(
            figures.contains(&format!("lessor_queue_length{{tenant=\"{tenant}\"}} {tasks}\n")),
            "{figures}"
        );
        let depth = format!("lessor_queue_depth{{queue=\"other\",tenant=\"{tenant}\"}} {tasks}\n");
        assert!(figures.contains(&depth), "{figures}");
        let mut series = figures.lines().filter(|line| !line.starts_with('#'));
        assert!(series.all(|line| line.contains(&format!("tenant=\"{tenant}\""))), "{figures}");
    }
    assert!(text(guarded.admin.clone()).await.contains("\nlessor_queue_length 5\n"));
    assert!(text(submitter).await.contains("forbidden"));
}
