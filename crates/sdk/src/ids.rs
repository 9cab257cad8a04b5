//! Random identifiers.

use std::sync::Arc;

use crate::Error;

/// 128 random bits in hexadecimal.
pub fn random_id() -> Result<String, Error> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes)
        .map_err(|error| Error::Setup(format!("the system has no randomness: {error}")))?;
    Ok(format!("{:032x}", u128::from_be_bytes(bytes)))
}

/// The given worker id, or a random one that begins with the host name, for people who look for a worker.
pub(crate) fn worker_id(given: &Option<String>) -> Result<Arc<str>, Error> {
    if let Some(given) = given {
        return Ok(given.as_str().into());
    }
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let host = if host.is_empty() { "worker".to_owned() } else { host };
    Ok(format!("{host}-{}", random_id()?).into())
}
