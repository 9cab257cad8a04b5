//! Names that nobody else has.

use crate::Error;

/// Sixteen random bytes as text.
pub fn random() -> Result<String, Error> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| Error::Setup(format!("no randomness to be had: {error}")))?;
    Ok(format!("{:032x}", u128::from_be_bytes(bytes)))
}
