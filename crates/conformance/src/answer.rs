//! An answer over HTTP, and expectations on it. A failed expectation names the call, the answer and what was expected.

use jiff::Timestamp;
use reqwest::header::{CONTENT_TYPE, HeaderMap};
use serde_json::Value;

use crate::Finding;
use crate::finding::{must, short};

/// In place of a status, for a request that the coordinator sent to the suite.
pub(crate) const PUSHED: u16 = 0;

/// An answer of the coordinator.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    /// Method and path.
    pub call: String,
    pub status: u16,
    pub headers: HeaderMap,
    /// Null if the text is not JSON.
    pub body: Value,
    pub raw: String,
}

impl Answer {
    pub(crate) fn broken(&self, what: impl AsRef<str>) -> Finding {
        let (call, raw, what) = (&self.call, short(&self.raw), what.as_ref());
        Finding::broken(match self.status {
            PUSHED => format!("{call} was {raw}: {what}"),
            status => format!("{call} answered {status} {raw}: {what}"),
        })
    }

    fn must(&self, holds: bool, what: impl FnOnce() -> String) -> Result<&Answer, Finding> {
        if holds { Ok(self) } else { Err(self.broken(what())) }
    }

    pub(crate) fn is(&self, status: u16) -> Result<&Answer, Finding> {
        self.must(self.status == status, || format!("{status} was expected"))
    }

    pub(crate) fn is_one_of(&self, statuses: &[u16]) -> Result<&Answer, Finding> {
        self.must(statuses.contains(&self.status), || format!("one of {statuses:?} was expected"))
    }

    /// A field, by its name or as a JSON pointer.
    pub(crate) fn get(&self, field: &str) -> &Value {
        let pointer = if field.starts_with('/') { field.to_owned() } else { format!("/{field}") };
        self.body.pointer(&pointer).unwrap_or(&Value::Null)
    }

    pub(crate) fn has(&self, field: &str, value: impl Into<Value>) -> Result<&Answer, Finding> {
        let value = value.into();
        self.must(same(self.get(field), &value), || format!("`{field}` should be {value}"))
    }

    /// The field is missing or null.
    pub(crate) fn has_no(&self, field: &str) -> Result<&Answer, Finding> {
        self.must(self.get(field).is_null(), || format!("`{field}` should not be there"))
    }

    /// A string field that is not empty.
    pub(crate) fn text(&self, field: &str) -> Result<String, Finding> {
        let text = self.get(field).as_str().filter(|text| !text.is_empty()).map(str::to_owned);
        text.ok_or_else(|| self.broken(format!("`{field}` should be a text")))
    }

    pub(crate) fn whole(&self, field: &str) -> Result<u64, Finding> {
        self.get(field).as_u64().ok_or_else(|| self.broken(format!("`{field}` should be a whole number")))
    }

    /// A time in RFC 3339, in UTC.
    pub(crate) fn time(&self, field: &str) -> Result<Timestamp, Finding> {
        let wrong = || self.broken(format!("`{field}` should be a time in RFC 3339, in UTC"));
        let text = self.get(field).as_str().filter(|text| text.ends_with('Z')).ok_or_else(wrong)?;
        text.parse().map_err(|_| wrong())
    }

    pub(crate) fn has_type(&self, media_type: &str) -> Result<&Answer, Finding> {
        let is = self.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let bare = is.split(';').next().unwrap_or_default().trim();
        self.must(bare == media_type, || format!("the content type should be {media_type}, not {is:?}"))
    }

    /// The names of all fields are in camelCase, or in snake_case.
    pub(crate) fn is_spelt(&self, spelling: Spelling) -> Result<&Answer, Finding> {
        let Some(fields) = self.body.as_object() else { return Err(self.broken("an object was expected")) };
        let wrong = fields.keys().find(|name| match spelling {
            Spelling::Camel => name.contains('_'),
            Spelling::Snake => name.chars().any(char::is_uppercase),
        });
        match wrong {
            Some(name) => Err(self.broken(format!("`{name}` should be spelt in {spelling:?} case"))),
            None => Ok(self),
        }
    }

    /// Expects the same answer as another one.
    pub(crate) fn repeats(&self, first: &Answer) -> Result<&Answer, Finding> {
        self.is(first.status)?;
        self.must(same(&self.body, &first.body), || format!("the first answer was {}", short(&first.raw)))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spelling {
    Camel,
    Snake,
}

/// Whether two values are the same JSON, whole numbers with a fraction of zero included.
pub(crate) fn same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => one == other || one.as_f64() == other.as_f64(),
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| same(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            one.len() == other.len()
                && one.iter().all(|(name, value)| other.get(name).is_some_and(|other| same(value, other)))
        }
        (one, other) => one == other,
    }
}

/// Expects two values to differ.
pub(crate) fn must_differ(what: &str, one: &str, other: &str) -> Result<(), Finding> {
    must(one != other, || format!("{what} should be another one each time, and was {one:?} twice"))
}
