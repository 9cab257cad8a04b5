//! Tenants, which own content.

use std::{collections::HashSet, fmt, sync::Arc};

/// Longest name of a tenant.
pub const MAX_TENANT_BYTES: usize = 256;
const FINGERPRINT_BYTES: usize = 16;
const FINGERPRINT_CONTEXT: &str = "lessor 2026 blobs tenant";
const STAGING_CONTEXT: &str = "lessor 2026 blobs staging area";
const SHARED_CONTEXT: &str = "lessor 2026 blobs shared cache";
/// The beginning of the names of staging areas on another server.
const STAGING_PREFIX: &str = "staging-";
/// The beginning of the fingerprints of staging areas, which no other tenant has.
const STAGING_MARK: [u8; 4] = [0xff; 4];

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
        if is_staging(&fingerprint) {
            fingerprint[0] = 0;
        }
        Ok(Tenant { name: name.into(), fingerprint })
    }

    /// A view of its own for what somebody uploads for the tenant, until [`crate::Blobs::promote`] moves it into the view of
    /// the tenant. Its quota is the largest one of a tenant; a promoted blob counts for the tenant.
    pub fn staging_area(&self, uploader: &str) -> Tenant {
        let text = [self.fingerprint.as_slice(), uploader.as_bytes()].concat();
        let hash = blake3::derive_key(STAGING_CONTEXT, &text);
        let mut fingerprint = [0; FINGERPRINT_BYTES];
        fingerprint.copy_from_slice(&hash[..FINGERPRINT_BYTES]);
        fingerprint[..STAGING_MARK.len()].copy_from_slice(&STAGING_MARK);
        Tenant { name: self.name.clone(), fingerprint }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// The name of this view on another server, which knows nothing of staging areas.
    pub fn name_elsewhere(&self) -> String {
        if is_staging(&self.fingerprint) {
            format!("{STAGING_PREFIX}{}", data_encoding::HEXLOWER.encode(&self.fingerprint))
        } else {
            self.name.to_string()
        }
    }

    /// The name of the tenant on disk: of fixed length and safe in a path.
    pub(crate) fn fingerprint(&self) -> [u8; FINGERPRINT_BYTES] {
        self.fingerprint
    }
}

/// Tenants that share their content, in a view that is none of theirs.
#[derive(Clone, Default)]
pub(crate) struct SharedCache(Option<Arc<(HashSet<Tenant>, Tenant)>>);

impl SharedCache {
    pub(crate) fn of(tenants: impl IntoIterator<Item = Tenant>) -> SharedCache {
        let members: HashSet<Tenant> = tenants.into_iter().collect();
        let hash = blake3::derive_key(SHARED_CONTEXT, b"");
        let mut view = Tenant { name: "shared cache".into(), fingerprint: [0; FINGERPRINT_BYTES] };
        view.fingerprint.copy_from_slice(&hash[..FINGERPRINT_BYTES]);
        SharedCache((!members.is_empty()).then(|| Arc::new((members, view))))
    }

    /// Where the content of a tenant is.
    pub(crate) fn view<'a>(&'a self, tenant: &'a Tenant) -> &'a Tenant {
        match self.0.as_deref() {
            Some((members, view)) if members.contains(tenant) => view,
            _ => tenant,
        }
    }
}

/// Whether a fingerprint is of a staging area.
pub(crate) fn is_staging(fingerprint: &[u8; FINGERPRINT_BYTES]) -> bool {
    fingerprint.starts_with(&STAGING_MARK)
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
    fn a_staging_area_is_none_of_the_tenants_and_each_uploader_has_its_own() {
        let (one, other) = (Tenant::new("one").unwrap(), Tenant::new("other").unwrap());
        let area = one.staging_area("ada");
        assert!(is_staging(&area.fingerprint()) && !is_staging(&one.fingerprint()));
        assert_eq!(area, one.staging_area("ada"));
        assert_eq!(one.name_elsewhere(), "one");
        assert_ne!(area.name_elsewhere(), one.staging_area("eve").name_elsewhere());
        assert!(area.name_elsewhere().starts_with(STAGING_PREFIX));
        for different in [one.staging_area("eve"), other.staging_area("ada"), one] {
            assert_ne!(area.fingerprint(), different.fingerprint());
        }
    }

    #[test]
    fn empty_and_endless_names_are_refused() {
        assert_eq!(Tenant::new("").unwrap_err(), BadTenant(0));
        assert_eq!(Tenant::new(&"x".repeat(257)).unwrap_err(), BadTenant(257));
    }
}
