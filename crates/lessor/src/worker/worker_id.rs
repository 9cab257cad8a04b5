//! The generated id of a worker: created once and stored, so that it is unique and the same at every start.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use anyhow::{Context, Result};

use crate::data_dir;

pub(crate) const FILE: &str = "worker.id";

/// The id that is stored in the directory, created at first use.
pub(crate) fn load_or_create(directory: &Path, prefix: &str) -> Result<String> {
    if let Some(id) = known(directory)? {
        return Ok(id);
    }
    fs::create_dir_all(directory).with_context(|| format!("cannot create {}", directory.display()))?;
    let random = getrandom::u32().map_err(|error| anyhow::anyhow!("no randomness to be had: {error}"))?;
    let id = format!("{prefix}-{random:08x}");
    data_dir::replace(directory, FILE, format!("{id}\n").as_bytes())?;
    Ok(id)
}

pub(crate) fn known(directory: &Path) -> Result<Option<String>> {
    let path = directory.join(FILE);
    match fs::read_to_string(&path) {
        Ok(id) => Ok(Some(id.trim().to_owned()).filter(|id| !id.is_empty())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
    }
}

pub(crate) fn host_name() -> String {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    if name.is_empty() { "worker".to_owned() } else { name }
}
