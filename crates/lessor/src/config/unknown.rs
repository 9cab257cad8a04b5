//! Parses a document and finds the keys that no field reads: a misspelt key must not be taken for a default.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_ignored::Path;
use toml::de::{DeTable, DeValue, Deserializer};
use toml::{Table, Value};

/// Below this similarity a suggestion would be a guess.
const MIN_SIMILARITY: f64 = 0.75;

/// Parses a document. Fails with the error of a text that is not such a document, or with one message for each unknown
/// key. `every_key` is a document with all keys, to suggest the nearest known key from.
pub(super) fn parse<D: DeserializeOwned>(text: &str, every_key: &impl Serialize) -> Result<D, Vec<String>> {
    let mut unknown = Vec::new();
    let parsed = Deserializer::parse(text).and_then(|deserializer| {
        serde_ignored::deserialize(deserializer, |path| unknown.push(keys_of(&path)))
    });
    if unknown.is_empty() {
        return parsed.map_err(|error| vec![error.to_string().trim_end().to_owned()]);
    }
    let known = Table::try_from(every_key).unwrap_or_default();
    Err(unknown.iter().map(|keys| message(text, keys, &known)).collect())
}

/// The keys that lead to an ignored value.
fn keys_of(path: &Path<'_>) -> Vec<String> {
    match path {
        Path::Root => Vec::new(),
        Path::Map { parent, key } => [keys_of(parent), vec![key.clone()]].concat(),
        Path::Seq { parent, .. }
        | Path::Some { parent }
        | Path::NewtypeStruct { parent }
        | Path::NewtypeVariant { parent } => keys_of(parent),
    }
}

fn message(text: &str, keys: &[String], known: &Table) -> String {
    let line = DeTable::parse(text).ok().and_then(|table| position(table.get_ref(), keys));
    let line = line.map(|at| format!("line {}: ", text[..at].matches('\n').count() + 1)).unwrap_or_default();
    format!("{line}unknown key {}{}", keys.join("."), suggestion(keys, known))
}

/// The byte at which the last of the keys begins.
fn position(table: &DeTable<'_>, keys: &[String]) -> Option<usize> {
    let (first, rest) = keys.split_first()?;
    let (key, value) = table.iter().find(|(key, _)| key.get_ref().as_ref() == first)?;
    match value.get_ref() {
        DeValue::Table(inner) if !rest.is_empty() => position(inner, rest),
        DeValue::Array(list) if !rest.is_empty() => list.iter().find_map(|element| match element.get_ref() {
            DeValue::Table(inner) => position(inner, rest),
            _ => None,
        }),
        _ => Some(key.span().start),
    }
}

fn suggestion(keys: &[String], known: &Table) -> String {
    let (name, path) = (keys.join("."), keys[..keys.len().saturating_sub(1)].join("."));
    let siblings = keys[..keys.len().saturating_sub(1)]
        .iter()
        .try_fold(known, |table, key| table.get(key).and_then(inner_table))
        .unwrap_or(known);
    let mut candidates: Vec<String> = siblings.keys().map(|key| join(&path, key)).collect();
    collect_names(known, "", &mut candidates);
    let nearest = candidates.into_iter().map(|known| (similarity(&name, &known), known));
    match nearest.max_by(|one, other| one.0.total_cmp(&other.0)) {
        Some((similarity, known)) if similarity >= MIN_SIMILARITY => format!("; did you mean {known}?"),
        _ => {
            let keys: Vec<&str> = siblings.keys().map(String::as_str).collect();
            let table = if path.is_empty() { "the top".to_owned() } else { format!("[{path}]") };
            format!("; known at {table}: {}", keys.join(", "))
        }
    }
}

/// A table, or the tables of a list, which have the same keys.
fn inner_table(value: &Value) -> Option<&Table> {
    match value {
        Value::Array(list) => list.first().and_then(Value::as_table),
        value => value.as_table(),
    }
}

/// Collects the dotted names of all values of a table.
fn collect_names(table: &Table, path: &str, names: &mut Vec<String>) {
    for (key, value) in table {
        let name = join(path, key);
        match inner_table(value) {
            Some(inner) => collect_names(inner, &name, names),
            None => names.push(name),
        }
    }
}

/// The similarity of two dotted names. A key that is right but stands in the wrong table is similar too.
fn similarity(name: &str, known: &str) -> f64 {
    let last = |name: &str| name.rsplit('.').next().unwrap_or_default().to_owned();
    let whole = strsim::normalized_damerau_levenshtein(name, known);
    let ends = strsim::normalized_damerau_levenshtein(&last(name), &last(known));
    whole.max(ends * 0.99)
}

fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}
