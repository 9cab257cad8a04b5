//! Tenants, which own content.

use std::{fmt, sync::Arc};

/// Longest name of a tenant.
pub const MAX_TENANT_BYTES: usize = 256;
const FINGERPRINT_BYTES: usize = 16;
const FINGERPRINT_CONTEXT: &str = "lessor 2026 blobs tenant";

/// A tenant by name. Every blob and entry of a store belongs to exactly one tenant, and no tenant can see or detect
/// content of another. Cheap to clone.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Tenant {
    name: Arc<str>,
    fingerprint: [u8; FINGERPRINT_BYTES],
}

impl Tenant {
    pub fn new(name: &str) -> Result<Tenant, BadTenant> {
        if name.is_empty() || name.len() > MAX_TENANT_BYTES {
            return Err(BadTenant(name.len()));
        }
        let hash = blake3::derive_key(FINGERPRINT_CONTEXT, name.as_bytes());
        let mut fingerprint = [0; FINGERPRINT_BYTES];
        fingerprint.copy_from_slice(&hash[..FINGERPRINT_BYTES]);
        Ok(Tenant { name: name.into(), fingerprint })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// The name of the tenant on disk: of fixed length and safe in a path.
    pub(crate) fn fingerprint(&self) -> [u8; FINGERPRINT_BYTES] {
        self.fingerprint
    }
}

impl fmt::Debug for Tenant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tenant({:?})", self.name)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a tenant's name has 1 to {MAX_TENANT_BYTES} bytes, not {0}")]
pub struct BadTenant(usize);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_differ_have_fingerprints_that_differ() {
        let one = Tenant::new("a/../b").unwrap();
        let other = Tenant::new("a/../c").unwrap();
        assert_ne!(one.fingerprint(), other.fingerprint());
        assert_eq!(one, Tenant::new("a/../b").unwrap());
    }

    #[test]
    fn empty_and_endless_names_are_refused() {
        assert_eq!(Tenant::new("").unwrap_err(), BadTenant(0));
        assert_eq!(Tenant::new(&"x".repeat(257)).unwrap_err(), BadTenant(257));
    }
}
