//! Reads configuration files of servers and workers. Nothing is guessed: an unknown key is an error that names the
//! nearest known key.

use std::path::Path;

use anyhow::{Context, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::unknown;

/// The longest file that is read: anything longer is not a configuration.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// The file is not valid; each line says where and why.
#[derive(Debug, thiserror::Error)]
#[error("{file} is not valid:\n{}", .faults.join("\n"))]
pub(crate) struct Invalid {
    file: String,
    faults: Vec<String>,
}

pub(crate) trait Document: Serialize + DeserializeOwned {
    /// A document in which no key is left out, to suggest known keys from.
    fn with_every_key() -> Self;

    /// Errors that the types cannot express, one message each, which names its key.
    fn faults(&self) -> Vec<String>;
}

pub(crate) fn read<D: Document>(path: &Path) -> Result<D> {
    parse(&text(path)?).map_err(|faults| Invalid { file: path.display().to_string(), faults }.into())
}

pub(crate) fn text(path: &Path) -> Result<String> {
    let length = std::fs::metadata(path).map(|file| file.len());
    match length {
        Ok(length) if length > MAX_FILE_BYTES => {
            anyhow::bail!("{} is too long for a configuration", path.display())
        }
        _ => std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display())),
    }
}

pub(crate) fn check<D: Document>(document: D, from: &str) -> Result<D> {
    validated(document).map_err(|faults| Invalid { file: from.to_owned(), faults }.into())
}

pub(crate) fn parse<D: Document>(text: &str) -> Result<D, Vec<String>> {
    validated(unknown::parse(text, &D::with_every_key())?)
}

fn validated<D: Document>(document: D) -> Result<D, Vec<String>> {
    let faults = document.faults();
    if faults.is_empty() { Ok(document) } else { Err(faults) }
}

pub(crate) fn within(key: &str, value: u64, range: std::ops::RangeInclusive<u64>) -> Option<String> {
    let (low, high) = (range.start(), range.end());
    let fault = if *high == u64::MAX {
        format!("{key} must be at least {low}, but is {value}")
    } else {
        format!("{key} must be between {low} and {high}, but is {value}")
    };
    (!range.contains(&value)).then_some(fault)
}
