//! A JSON value that keeps the text in which it was sent.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// Opaque JSON, `null` by default. Two values compare equal when their texts do, white space included.
#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Json(Box<RawValue>);

impl Json {
    /// Takes a text that must be one JSON value.
    pub fn from_text(text: impl Into<String>) -> Result<Json, serde_json::Error> {
        RawValue::from_string(text.into()).map(Json)
    }

    /// Writes a value as JSON.
    pub fn from_value(value: &impl Serialize) -> Result<Json, serde_json::Error> {
        serde_json::value::to_raw_value(value).map(Json)
    }

    pub fn null() -> Json {
        Json::default()
    }

    /// `{}`.
    pub fn empty_object() -> Json {
        Json::from_text("{}").unwrap_or_default()
    }

    pub fn as_text(&self) -> &str {
        self.0.get()
    }

    /// Reads the value into a type.
    pub fn read<'a, T: Deserialize<'a>>(&'a self) -> Result<T, serde_json::Error> {
        serde_json::from_str(self.as_text())
    }
}

impl fmt::Debug for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_text())
    }
}

impl fmt::Display for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_text())
    }
}

impl PartialEq for Json {
    fn eq(&self, other: &Json) -> bool {
        self.as_text() == other.as_text()
    }
}

impl Eq for Json {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_is_kept_as_it_was_sent() {
        let text = r#"{"b" : 1.50,  "a":"\u0041"}"#;
        let json: Json = serde_json::from_str(text).unwrap();
        assert_eq!(json.as_text(), text);
        assert_eq!(serde_json::to_string(&json).unwrap(), text);
    }

    #[test]
    fn text_that_is_not_json_is_refused() {
        assert!(Json::from_text("{").is_err());
        assert!(Json::from_text("1 2").is_err());
    }

    #[test]
    fn null_is_a_value() {
        assert_eq!(serde_json::from_str::<Json>("null").unwrap(), Json::null());
    }
}
