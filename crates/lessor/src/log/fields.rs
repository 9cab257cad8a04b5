//! A record as JSON, with every field that it has. Names are those of the HTTP contract where it has one.

use authority::event::{ExpiryCause, NextStep, ReleaseCause, TaskCreated};
use authority::{Backoff, CancelCause, Event, Position, QueueConfig, QueueKey, TaskError, TaskOptions, Time};
use ledger::record::Record;
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::{Value, json};
use wire::Json;

/// An object that keeps its order, and payloads as they were sent.
#[derive(Default)]
pub struct Fields(Vec<(&'static str, Json)>);

impl Fields {
    pub fn of(position: Position, record: &Record) -> Fields {
        let mut fields = Fields::default();
        fields.put("position", position.0);
        fields.time("at", Some(record.at));
        fields.put("type", record.event.name());
        fields.put("prev", record.prev.map(|prev| prev.0));
        fields.put("taskId", record.event.task().map(|task| task.to_string()));
        fields.event(&record.event);
        fields
    }

    fn event(&mut self, event: &Event) {
        match event {
            Event::TaskCreated(event) => self.created(event),
            Event::LeaseGranted(event) => {
                self.put("attempt", event.attempt);
                self.put("workerId", &*event.worker);
                self.put("session", event.session.as_deref());
                self.put("request", event.request.map(|request| format!("{request:?}")));
                self.put("leaseMs", event.length_ms);
                self.time("expiresAt", Some(event.expires_at));
            }
            Event::LeaseExtended(event) => {
                self.put("fencingToken", event.fencing_token.0);
                self.time("expiresAt", Some(event.expires_at));
            }
            Event::LeaseExpired(event) => {
                self.put("fencingToken", event.fencing_token.0);
                self.put("cause", expiry_cause(event.cause));
                self.put("exhausted", event.exhausted);
            }
            Event::LeaseReleased(event) => {
                self.put("fencingToken", event.fencing_token.0);
                self.put("cause", release_cause(event.cause));
            }
            Event::AttemptStarted(event) => {
                self.put("fencingToken", event.fencing_token.0);
                self.put("workerId", &*event.worker);
            }
            Event::TaskCompleted(event) => {
                self.put("fencingToken", event.fencing_token.0);
                self.put("digest", format!("{:?}", event.digest));
                self.raw("result", &event.result);
            }
            Event::TaskFailed(event) => {
                self.put("fencingToken", event.fencing_token.0);
                self.put("digest", format!("{:?}", event.digest));
                self.put("error", error(&event.error));
                match event.next {
                    NextStep::RetryAt(at) => self.time("retryAt", Some(at)),
                    NextStep::Final => self.put("final", true),
                }
            }
            Event::TaskDead(event) => {
                self.put("reason", event.reason.name());
                self.put("reasonDetail", event.detail.as_deref());
                if let Some(report) = &event.report {
                    self.put("fencingToken", report.fencing_token.0);
                    self.put("digest", format!("{:?}", report.digest));
                    self.put("error", error(&report.error));
                }
            }
            Event::TaskCancelled(event) => {
                self.put("fencingToken", event.fencing_token.0);
                self.put("attempt", event.attempt);
                self.put("digest", format!("{:?}", event.digest));
            }
            Event::CancelRequested(event) => {
                self.put("cause", cancel_cause(event.cause));
                self.put("reason", &*event.reason);
                self.time("graceUntil", Some(event.grace_until));
            }
            Event::OperationAttached(event) => self.put("operation", &*event.operation),
            Event::OperationDetached(event) => self.put("operation", &*event.operation),
            Event::QueueConfigured(event) => {
                self.queue(&event.queue);
                self.put("config", config(&event.config));
            }
            Event::TasksPurged(event) => {
                let ids: Vec<_> = event.tasks.iter().map(|task| task.to_string()).collect();
                self.put("taskIds", ids);
            }
            Event::TokenKeyRotated(event) => self.put("keyId", &*event.key_id),
            Event::OwnerTookOver(event) => {
                self.put("epoch", event.epoch);
                self.put("node", &*event.node);
            }
        }
    }

    fn created(&mut self, event: &TaskCreated) {
        self.queue(&event.queue);
        self.put("priority", event.priority);
        self.time("notBefore", event.not_before);
        if !event.properties.is_empty() {
            let pairs = event.properties.iter().map(|(name, value)| (name.to_string(), json!(**value)));
            self.put("properties", Value::Object(pairs.collect()));
        }
        if let Some(options) = &event.options {
            self.options(options);
        }
        self.put("operation", event.operation.as_deref());
        self.raw("payload", &event.payload);
    }

    fn options(&mut self, options: &TaskOptions) {
        self.put("dedupKey", options.dedup.as_ref().map(|dedup| &*dedup.key));
        self.put("contentDigest", options.dedup.as_ref().map(|dedup| format!("{:?}", dedup.content)));
        self.time("deadline", options.deadline);
        self.put("timeoutMs", options.timeout_ms);
        self.put("leaseMs", options.lease_ms);
        self.put("maxAttempts", options.max_attempts);
        self.put("backoff", options.backoff.map(backoff));
        self.put("runId", options.run_id.as_deref());
        self.put("assetId", options.asset_id.as_deref());
        self.put("taskKey", options.task_key.as_deref());
        self.put("redriveOf", options.redrive_of.map(|task| task.to_string()));
        if let Some(resources) = &options.resources {
            self.raw("resources", resources);
        }
    }

    pub fn queue(&mut self, key: &QueueKey) {
        self.put("tenant", &*key.scope.tenant);
        self.put("workspace", &*key.scope.workspace);
        self.put("queue", &*key.name);
    }

    pub fn time(&mut self, name: &'static str, time: Option<Time>) {
        self.put(name, time.map(server::to_wire::time));
    }

    /// Leaves out what is not set.
    pub fn put(&mut self, name: &'static str, value: impl Serialize) {
        // Text, numbers and lists of them always become JSON.
        let json = Json::from_value(&value).unwrap_or_else(|_| Json::null());
        if json != Json::null() {
            self.0.push((name, json));
        }
    }

    /// Content as it was sent; a null is kept.
    fn raw(&mut self, name: &'static str, bytes: &[u8]) {
        self.0.push((name, server::to_wire::json(bytes)));
    }
}

impl Serialize for Fields {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        self.0.iter().try_for_each(|(name, value)| map.serialize_entry(name, value))?;
        map.end()
    }
}

pub fn error(error: &TaskError) -> Value {
    let mut value = json!({"category": error.category.name(), "message": &*error.message});
    if let Some(code) = &error.code {
        value["code"] = json!(**code);
    }
    value
}

fn config(config: &QueueConfig) -> Value {
    let mut fields = Fields::default();
    fields.put("maxAttempts", config.max_attempts);
    fields.put("leaseMs", config.lease_ms);
    fields.put("heartbeatIntervalMs", config.heartbeat_interval_ms);
    fields.put("cancelGracePeriodMs", config.cancel_grace_ms);
    fields.put("backoff", config.backoff.map(backoff));
    let names = |list: &Vec<authority::Category>| list.iter().map(|one| one.name()).collect::<Vec<_>>();
    fields.put("retryOn", config.retry_on.as_ref().map(names));
    fields.put("push", config.push.as_deref().map(server::to_wire::push_target));
    fields.put("maxQueueSize", config.max_queue_size);
    fields.put("retentionMs", config.retention_ms);
    serde_json::to_value(fields).unwrap_or_default()
}

fn backoff(backoff: Backoff) -> Value {
    json!({
        "initialMs": backoff.initial_ms,
        "factor": f64::from(backoff.factor_permille) / 1_000.0,
        "maxMs": backoff.max_ms,
        "jitter": f64::from(backoff.jitter_permille) / 1_000.0,
    })
}

pub fn expiry_cause(cause: ExpiryCause) -> &'static str {
    match cause {
        ExpiryCause::Silence => "SILENCE",
        ExpiryCause::Timeout => "TIMEOUT",
    }
}

pub fn release_cause(cause: ReleaseCause) -> &'static str {
    match cause {
        ReleaseCause::Worker => "WORKER",
        ReleaseCause::Undelivered => "UNDELIVERED",
        ReleaseCause::Session => "SESSION",
    }
}

pub fn cancel_cause(cause: CancelCause) -> &'static str {
    match cause {
        CancelCause::User => "USER",
        CancelCause::Deadline => "DEADLINE",
    }
}
