//! What a task requires of a worker: names in rising order, each once.

use std::sync::{Arc, LazyLock};

use authority::Properties;

use crate::record::error::DecodeError;

#[derive(Clone, PartialEq, prost::Message)]
pub struct Property {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub value: String,
}

/// Most tasks require nothing; ten million of them share this.
static NOTHING: LazyLock<Arc<Properties>> = LazyLock::new(Arc::default);

pub(crate) fn pairs(properties: &Properties) -> Vec<Property> {
    let pair =
        |(name, value): (&Arc<str>, &Arc<str>)| Property { name: name.to_string(), value: value.to_string() };
    properties.iter().map(pair).collect()
}

pub(crate) fn nothing() -> Arc<Properties> {
    NOTHING.clone()
}

pub(crate) fn from_pairs(pairs: Vec<Property>) -> Result<Arc<Properties>, DecodeError> {
    if pairs.is_empty() {
        return Ok(nothing());
    }
    if !pairs.is_sorted_by(|a, b| a.name < b.name) {
        return Err(DecodeError::Invalid("properties are out of order"));
    }
    let pairs = pairs.into_iter().map(|pair| (Arc::from(pair.name), Arc::from(pair.value)));
    Ok(Arc::new(Properties::new(pairs)))
}
