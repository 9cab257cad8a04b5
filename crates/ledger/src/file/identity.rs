//! The identity file: which cluster a data directory belongs to.
//!
//! It is the last thing that initialising a directory makes, and it never changes. A directory without it
//! holds no ledger of ours (D26).

use files::{IDENTITY_BYTES, Identity};

use super::frame::FORMAT_VERSION;
use crate::ClusterId;

const MAGIC: [u8; 8] = *b"LESSOR-L";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IdentityFault {
    Damaged,
    NewerVersion(u16),
}

pub(super) fn encode(cluster: ClusterId) -> [u8; IDENTITY_BYTES] {
    Identity { magic: MAGIC, version: FORMAT_VERSION.into(), id: cluster.0 }.encode()
}

/// Decodes the whole content of an identity file.
pub(super) fn decode(bytes: &[u8]) -> Result<ClusterId, IdentityFault> {
    let identity = Identity::decode(MAGIC, bytes).ok_or(IdentityFault::Damaged)?;
    if identity.version > FORMAT_VERSION.into() {
        return Err(IdentityFault::NewerVersion(u16::try_from(identity.version).unwrap_or(u16::MAX)));
    }
    Ok(ClusterId(identity.id))
}
