//! The fields of an event as named values, for everything that shows events: histories, `lessor log`, tests.

use std::sync::Arc;

use crate::event::{ExpiryCause, NextStep, ReleaseCause};
use crate::tables::{Actor, ActorKind, ApiKey, DeadReport, QueueConfig, ReportDetails, Role, TaskOptions};
use crate::{
    Backoff, CancelCause, Category, Contract, DeadReason, Dedup, Digest, Position, Properties, PushTarget,
    QueueKey, SecretHash, TaskError, TaskId, Time,
};

/// A field's name in JSON and its value. A field that is not set has no entry.
pub type NamedField<'a> = (&'static str, FieldValue<'a>);

#[derive(Clone, Debug, PartialEq)]
pub enum FieldValue<'a> {
    Number(u64),
    Signed(i64),
    Flag(bool),
    Text(&'a str),
    Time(Time),
    Task(TaskId),
    Tasks(&'a [TaskId]),
    Digest(Digest),
    /// JSON as it was sent: a payload, a result, resources.
    Content(&'a [u8]),
    Queue(&'a QueueKey),
    Properties(&'a Properties),
    Error(&'a TaskError),
    Backoff(Backoff),
    Categories(&'a [Category]),
    Push(&'a PushTarget),
    Config(&'a QueueConfig),
    Options(&'a TaskOptions),
    /// Names; an empty list has no entry.
    Texts(&'a [Arc<str>]),
    Roles(&'a [Role]),
    Actor(&'a Actor),
}

/// Adds up the memory of fields beyond their own size; a fair estimate.
#[derive(Default)]
pub(crate) struct HeapBytes(pub usize);

impl<'a> Extend<NamedField<'a>> for HeapBytes {
    fn extend<T: IntoIterator<Item = NamedField<'a>>>(&mut self, fields: T) {
        for (_, value) in fields {
            self.0 += match value {
                FieldValue::Text(text) => text.len() + 16,
                FieldValue::Content(bytes) => bytes.len() + 16,
                FieldValue::Digest(_) => 16,
                _ => 0,
            };
        }
    }
}

/// Adds a field's value under its name. A few types stand for several fields and name each of them.
pub(crate) trait Describe {
    fn describe<'a>(&'a self, name: &'static str, fields: &mut impl Extend<NamedField<'a>>);
}

macro_rules! describe {
    ($($type:ty: $value:ident => $field:expr;)*) => {
        $(impl Describe for $type {
            fn describe<'a>(&'a self, name: &'static str, fields: &mut impl Extend<NamedField<'a>>) {
                let $value = self;
                fields.extend([(name, $field)]);
            }
        })*
    };
}

describe! {
    u32: value => FieldValue::Number(u64::from(*value));
    u64: value => FieldValue::Number(*value);
    i32: value => FieldValue::Signed(i64::from(*value));
    bool: value => FieldValue::Flag(*value);
    Position: value => FieldValue::Number(value.0);
    Time: value => FieldValue::Time(*value);
    TaskId: value => FieldValue::Task(*value);
    Digest: value => FieldValue::Digest(*value);
    Arc<str>: value => FieldValue::Text(value);
    Arc<[u8]>: value => FieldValue::Content(value);
    Arc<QueueKey>: value => FieldValue::Queue(value);
    Arc<PushTarget>: value => FieldValue::Push(value);
    Arc<TaskOptions>: value => FieldValue::Options(value);
    Vec<TaskId>: value => FieldValue::Tasks(value);
    Vec<Category>: value => FieldValue::Categories(value);
    Vec<Role>: value => FieldValue::Roles(value);
    Backoff: value => FieldValue::Backoff(*value);
    TaskError: value => FieldValue::Error(value);
    QueueConfig: value => FieldValue::Config(value);
    ExpiryCause: value => FieldValue::Text(value.name());
    ReleaseCause: value => FieldValue::Text(value.name());
    Contract: value => FieldValue::Text(value.name());
    CancelCause: value => FieldValue::Text(value.name());
    DeadReason: value => FieldValue::Text(value.name());
    ActorKind: value => FieldValue::Text(value.name());
    Arc<Actor>: value => FieldValue::Actor(value);
}

impl<T: Describe> Describe for Option<T> {
    fn describe<'a>(&'a self, name: &'static str, fields: &mut impl Extend<NamedField<'a>>) {
        if let Some(value) = self {
            value.describe(name, fields);
        }
    }
}

impl Describe for Arc<Properties> {
    fn describe<'a>(&'a self, name: &'static str, fields: &mut impl Extend<NamedField<'a>>) {
        if !self.is_empty() {
            fields.extend([(name, FieldValue::Properties(self))]);
        }
    }
}

impl Describe for NextStep {
    fn describe<'a>(&'a self, name: &'static str, fields: &mut impl Extend<NamedField<'a>>) {
        fields.extend([match self {
            NextStep::RetryAt(time) => (name, FieldValue::Time(*time)),
            NextStep::Final => ("final", FieldValue::Flag(true)),
        }]);
    }
}

impl Describe for Dedup {
    fn describe<'a>(&'a self, _: &'static str, fields: &mut impl Extend<NamedField<'a>>) {
        fields.extend([
            ("dedupKey", FieldValue::Text(&self.key)),
            ("contentDigest", FieldValue::Digest(self.content)),
        ]);
    }
}

impl Describe for DeadReport {
    fn describe<'a>(&'a self, _: &'static str, fields: &mut impl Extend<NamedField<'a>>) {
        fields.extend(self.fields());
    }
}

impl Describe for Arc<ReportDetails> {
    fn describe<'a>(&'a self, _: &'static str, fields: &mut impl Extend<NamedField<'a>>) {
        fields.extend(self.fields());
    }
}

impl Describe for Vec<Arc<str>> {
    fn describe<'a>(&'a self, name: &'static str, fields: &mut impl Extend<NamedField<'a>>) {
        if !self.is_empty() {
            fields.extend([(name, FieldValue::Texts(self))]);
        }
    }
}

/// Nothing that shows events has a use for it.
impl Describe for SecretHash {
    fn describe<'a>(&'a self, _: &'static str, _: &mut impl Extend<NamedField<'a>>) {}
}

impl Describe for Arc<ApiKey> {
    fn describe<'a>(&'a self, _: &'static str, fields: &mut impl Extend<NamedField<'a>>) {
        fields.extend(self.fields());
    }
}
