//! The envelope: every field that a worker needs, and nothing it has to guess.

use data_encoding::HEXLOWER;
use hmac::{Hmac, KeyInit, Mac};
use serde_json::json;
use sha2::Sha256;

use super::{PushedQueue, acknowledged};
use crate::answer::{Spelling, must_differ};
use crate::finding::must;
use crate::{Check, Finding, Subject};

pub(super) const CHECKS: &[Check] = &[
    Check::new(&["S1-5"], "an envelope is JSON in camelCase", |s| Box::pin(json_camel(s))),
    Check::new(&["S1-53"], "an envelope has what the submitter said of its task", |s| Box::pin(fields(s))),
    Check::new(&["S1-53", "S1-55"], "ids that the submitter left out are made up, and are texts", |s| {
        Box::pin(defaults(s))
    }),
    Check::new(&["S1-54", "S1-12"], "an envelope says how to call back, and until when", |s| {
        Box::pin(callback(s))
    }),
    Check::new(&["S1-4"], "callbacks go to callbackBaseUrl", |s| Box::pin(base_url(s))),
    Check::new(&["S1-33"], "the heartbeat interval is 30 s unless the queue says otherwise", |s| {
        Box::pin(default_span(s, "heartbeatIntervalMs", 30_000))
    }),
    Check::new(&["S1-34"], "the heartbeat timeout is 90 s unless the queue says otherwise", |s| {
        Box::pin(default_span(s, "heartbeatTimeoutMs", 90_000))
    }),
    Check::new(&["S1-43"], "the cancel grace is 30 s unless the queue says otherwise", |s| {
        Box::pin(default_span(s, "cancelGracePeriodMs", 30_000))
    }),
    Check::new(&["S1-35"], "a timeout of less than two intervals is refused", |s| Box::pin(too_close(s))),
    Check::new(&["push"], "each attempt has a dispatch id of its own, in body and header", |s| {
        Box::pin(dispatch_id(s))
    }),
    Check::new(&["push"], "with a secret, body and time are signed, and headers are sent along", |s| {
        Box::pin(signature(s))
    }),
];

async fn json_camel(subject: &Subject) -> Result<(), Finding> {
    let pushed = PushedQueue::open(subject, json!({})).await?.push(subject).await?;
    pushed.envelope.is_spelt(Spelling::Camel)?.has_type("application/json")?;
    Ok(())
}

async fn fields(subject: &Subject) -> Result<(), Finding> {
    let mut line = PushedQueue::open(subject, json!({})).await?;
    let said = json!({"payload": {"a": [1, null]}, "runId": "run_7", "assetId": "raw/events",
        "taskKey": "raw/events[2025-01-15]:materialize", "resources": {"cpuMillicores": 500},
        "deadline": "2099-01-01T00:00:00Z"});
    let envelope = line.push_with(subject, said.clone()).await?.envelope;
    for field in ["payload", "runId", "assetId", "taskKey", "resources"] {
        envelope.has(field, said[field].clone())?;
    }
    envelope.has("tenantId", subject.options.tenant.as_str())?;
    envelope.has("workspaceId", subject.options.workspace.as_str())?;
    envelope.has("attempt", 1)?.time("enqueuedAt")?;
    let deadline = envelope.time("deadline")?;
    must(deadline.as_second() == 4_070_908_800, || format!("the deadline came as {deadline}"))
}

async fn defaults(subject: &Subject) -> Result<(), Finding> {
    let mut line = PushedQueue::open(subject, json!({})).await?;
    let pushed = line.push(subject).await?;
    let envelope = &pushed.envelope;
    envelope.has("runId", format!("run_{}", pushed.task))?.has("taskKey", line.queue.as_str())?;
    envelope.has("resources", json!({}))?.has_no("deadline")?;
    Ok(())
}

async fn callback(subject: &Subject) -> Result<(), Finding> {
    let config =
        json!({"heartbeatTimeoutMs": 12_000, "heartbeatIntervalMs": 3_000, "cancelGracePeriodMs": 7_000});
    let envelope = PushedQueue::open(subject, config).await?.push(subject).await?.envelope;
    envelope.has("heartbeatTimeoutMs", 12_000)?.has("heartbeatIntervalMs", 3_000)?;
    envelope.has("cancelGracePeriodMs", 7_000)?.text("taskToken")?;
    let until = envelope.time("tokenExpiresAt")?;
    must(until > jiff::Timestamp::now(), || format!("the token expired at {until}"))?;
    let base = envelope.text("callbackBaseUrl")?;
    must(base.starts_with("http://") || base.starts_with("https://"), || format!("{base:?} is no address"))
}

async fn base_url(subject: &Subject) -> Result<(), Finding> {
    let pushed = PushedQueue::open(subject, json!({})).await?.push(subject).await?;
    acknowledged(&pushed.started(subject).await?)
}

async fn default_span(subject: &Subject, field: &str, ms: u64) -> Result<(), Finding> {
    PushedQueue::open(subject, json!({})).await?.push(subject).await?.envelope.has(field, ms)?;
    Ok(())
}

async fn too_close(subject: &Subject) -> Result<(), Finding> {
    let config = json!({"heartbeatTimeoutMs": 10_000, "heartbeatIntervalMs": 6_000});
    subject.put(&format!("/v1/queues/{}", subject.queue()), &config).await?.is(400)?;
    let just_right = json!({"heartbeatTimeoutMs": 10_000, "heartbeatIntervalMs": 5_000});
    subject.queue_with(just_right).await?;
    Ok(())
}

async fn dispatch_id(subject: &Subject) -> Result<(), Finding> {
    let mut line = PushedQueue::open(subject, json!({"backoff": {"initialMs": 0, "jitter": 0}})).await?;
    let first = line.push(subject).await?;
    let header = first.envelope.headers.get("lessor-dispatch-id").and_then(|value| value.to_str().ok());
    first.envelope.has("dispatchId", header)?;
    acknowledged(&first.completed(subject, &first.failed("USER_CODE")).await?)?;
    let second = line.next().await?;
    must_differ("dispatchId", &first.envelope.text("dispatchId")?, &second.envelope.text("dispatchId")?)
}

async fn signature(subject: &Subject) -> Result<(), Finding> {
    const SECRET: &str = "a secret of more than sixteen bytes";
    let push = json!({"secret": SECRET, "headers": {"x-key": "v"}, "concurrency": 2});
    let envelope = PushedQueue::open(subject, json!({"push": push})).await?.push(subject).await?.envelope;
    let header = |name: &str| {
        let value = envelope.headers.get(name).and_then(|value| value.to_str().ok());
        value.ok_or_else(|| envelope.broken(format!("it should come with the header `{name}`")))
    };
    must(header("x-key")? == "v", || "the header `x-key` should be `v`".into())?;
    let signed = header("lessor-signature")?;
    let parts = signed.split_once(",v1=").and_then(|(time, mac)| Some((time.strip_prefix("t=")?, mac)));
    let (time, mac) = parts.ok_or_else(|| envelope.broken(format!("`lessor-signature` was {signed:?}")))?;
    let mut expected = Hmac::<Sha256>::new_from_slice(SECRET.as_bytes())
        .map_err(|error| Finding::broken(error.to_string()))?;
    expected.update(format!("{time}.{}", envelope.raw).as_bytes());
    let is_right = HEXLOWER.decode(mac.as_bytes()).is_ok_and(|mac| expected.verify_slice(&mac).is_ok());
    must(is_right, || format!("the signature {mac} is not that of the secret"))
}
