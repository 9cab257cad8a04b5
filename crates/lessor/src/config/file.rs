//! Configuration files of any kind: read as a whole or not at all. Nothing is guessed: an unknown key is an error that
//! names the nearest known one.

use std::path::Path;

use anyhow::{Context, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::unknown;

/// Longest file that is read: anything longer is not a configuration.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// The file is not right; each line says where and why.
#[derive(Debug, thiserror::Error)]
#[error("{file} is not right:\n{}", .faults.join("\n"))]
pub struct Invalid {
    file: String,
    faults: Vec<String>,
}

/// What a file can say.
pub trait Document: Serialize + DeserializeOwned {
    /// One in which no key is left out, to learn the keys from. An empty table is one whose keys are free.
    fn with_every_key() -> Self;

    /// What no type can say, each naming its key.
    fn faults(&self) -> Vec<String>;
}

pub fn read<D: Document>(path: &Path) -> Result<D> {
    parse(&text(path)?).map_err(|faults| Invalid { file: path.display().to_string(), faults }.into())
}

pub fn text(path: &Path) -> Result<String> {
    let length = std::fs::metadata(path).map(|file| file.len());
    match length {
        Ok(length) if length > MAX_FILE_BYTES => {
            anyhow::bail!("{} is too long for a configuration", path.display())
        }
        _ => std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display())),
    }
}

/// What the types cannot say of a document that came from elsewhere.
pub fn check<D: Document>(document: D, from: &str) -> Result<D> {
    match document.faults() {
        faults if faults.is_empty() => Ok(document),
        faults => Err(Invalid { file: from.to_owned(), faults }.into()),
    }
}

pub fn parse<D: Document>(text: &str) -> Result<D, Vec<String>> {
    let tidy = |error: toml::de::Error| vec![error.to_string().trim_end().to_owned()];
    let unknown = unknown::keys(text, &D::with_every_key()).map_err(tidy)?;
    if !unknown.is_empty() {
        return Err(unknown);
    }
    let document: D = toml::from_str(text).map_err(tidy)?;
    match document.faults() {
        faults if faults.is_empty() => Ok(document),
        faults => Err(faults),
    }
}

/// The fault of a number that must lie within bounds, if it does not.
pub fn within(key: &str, value: u64, range: std::ops::RangeInclusive<u64>) -> Option<String> {
    let (low, high) = (range.start(), range.end());
    let fault = match *high == u64::MAX {
        true => format!("{key} must be at least {low}, but is {value}"),
        false => format!("{key} must be between {low} and {high}, but is {value}"),
    };
    (!range.contains(&value)).then_some(fault)
}
