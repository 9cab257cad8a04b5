//! A record as JSON, with every field that it has. Names are those of the HTTP contract where it has one.

use authority::{Actor, Backoff, FieldValue, NamedField, Position, QueueKey, TaskError, Time};
use ledger::record::Record;
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::{Value, json};
use wire::Json;

/// An object that keeps its order, and payloads as they were sent.
#[derive(Default)]
pub(super) struct Fields(Vec<(&'static str, Json)>);

impl Fields {
    pub(super) fn of(position: Position, record: &Record) -> Fields {
        let mut fields = Fields::default();
        fields.put("position", position.0);
        fields.time("at", Some(record.at));
        fields.put("type", record.event.name());
        fields.put("prev", record.prev.map(|prev| prev.0));
        let (content, plain): (Vec<_>, Vec<_>) =
            record.event.fields().into_iter().partition(|(_, value)| matches!(value, FieldValue::Content(_)));
        // A payload may be long: it comes last.
        fields.extend(plain);
        fields.extend(content);
        fields
    }

    pub(super) fn extend<'a>(&mut self, named: impl IntoIterator<Item = NamedField<'a>>) {
        for (name, value) in named {
            match value {
                FieldValue::Number(number) => self.put(name, number),
                FieldValue::Signed(number) => self.put(name, number),
                FieldValue::Flag(flag) => self.put(name, flag),
                FieldValue::Text(text) => self.put(name, text),
                FieldValue::Time(time) => self.time(name, Some(time)),
                FieldValue::Task(task) => self.put(name, task.to_string()),
                FieldValue::Tasks(tasks) => {
                    self.put(name, tasks.iter().map(|task| task.to_string()).collect::<Vec<_>>());
                }
                FieldValue::Digest(digest) => self.put(name, format!("{digest:?}")),
                FieldValue::Content(bytes) => self.raw(name, bytes),
                FieldValue::Queue(key) => self.queue(key),
                FieldValue::Properties(properties) => {
                    let pairs = properties.iter().map(|(name, value)| (name.to_string(), json!(**value)));
                    self.put(name, Value::Object(pairs.collect()));
                }
                FieldValue::Error(failure) => self.put(name, error(failure)),
                FieldValue::Backoff(value) => self.put(name, backoff(value)),
                FieldValue::Categories(list) => {
                    self.put(name, list.iter().map(|category| category.name()).collect::<Vec<_>>());
                }
                FieldValue::Push(target) => self.put(name, server::to_wire::push_target(target)),
                FieldValue::Config(config) => {
                    let mut settings = Fields::default();
                    settings.extend(config.fields());
                    self.put(name, settings);
                }
                FieldValue::Options(options) => self.extend(options.fields()),
                FieldValue::Texts(texts) => {
                    self.put(name, texts.iter().map(|text| &**text).collect::<Vec<_>>());
                }
                FieldValue::Actor(by) => self.put(name, actor(by)),
                FieldValue::Roles(roles) => {
                    self.put(name, roles.iter().map(|role| role.name()).collect::<Vec<_>>());
                }
            }
        }
    }

    pub(super) fn queue(&mut self, key: &QueueKey) {
        self.put("tenant", &*key.scope.tenant);
        self.put("workspace", &*key.scope.workspace);
        self.put("queue", &*key.name);
    }

    pub(super) fn time(&mut self, name: &'static str, time: Option<Time>) {
        self.put(name, time.map(server::to_wire::time));
    }

    /// Leaves out what is not set.
    pub(super) fn put(&mut self, name: &'static str, value: impl Serialize) {
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

pub(super) fn actor(actor: &Actor) -> Value {
    json!({"kind": actor.kind.name(), "id": &*actor.id, "name": &*actor.name})
}

pub(super) fn error(error: &TaskError) -> Value {
    let mut value = json!({"category": error.category.name(), "message": &*error.message});
    if let Some(code) = &error.code {
        value["code"] = json!(**code);
    }
    value
}

fn backoff(backoff: Backoff) -> Value {
    json!({
        "initialMs": backoff.initial_ms,
        "factor": f64::from(backoff.factor_permille) / 1_000.0,
        "maxMs": backoff.max_ms,
        "jitter": f64::from(backoff.jitter_permille) / 1_000.0,
    })
}
