//! Names that nobody else has.

use crate::Error;

/// Sixteen random bytes as text.
pub fn random() -> Result<String, Error> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| Error::Setup(format!("no randomness to be had: {error}")))?;
    Ok(format!("{:032x}", u128::from_be_bytes(bytes)))
}

/// A worker's name: random, with the host in it for people who look for a worker.
pub fn worker_id() -> Result<String, Error> {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let host = if host.is_empty() { "worker".to_owned() } else { host };
    Ok(format!("{host}-{}", random()?))
}
