//! Lease ids: opaque to workers, and a proof that the lease was granted.
//!
//! An id contains a version, the task, the attempt and the lease's number, and a 128-bit MAC over these and the tenant,
//! workspace and worker. So forged ids are recognized without stored leases; whether a lease is valid is decided by the
//! authority.

use std::sync::Arc;

use authority::{LeaseRef, Position, Scope, TaskId};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::names::name;
use super::{Code, Problem, parse_task_id};
use crate::app::App;

const VERSION: u8 = 1;
const CLAIM_BYTES: usize = 1 + 16 + 4 + 8;
const MAC_BYTES: usize = 16;
const ID_BYTES: usize = CLAIM_BYTES + MAC_BYTES;
/// Sixty characters; anything else is not read at all.
const ID_CHARS: usize = ID_BYTES / 3 * 4;

#[derive(Clone)]
pub(crate) struct LeaseIds {
    key: [u8; 32],
}

impl LeaseIds {
    pub(crate) fn new(secret: &[u8; 32]) -> LeaseIds {
        LeaseIds { key: blake3::derive_key("lessor 2026 lease id", secret) }
    }

    pub(crate) fn make(&self, lease: &LeaseRef) -> String {
        let mut id = [0; ID_BYTES];
        id[0] = VERSION;
        id[1..17].copy_from_slice(&lease.task.0.to_be_bytes());
        id[17..21].copy_from_slice(&lease.attempt.to_be_bytes());
        id[21..29].copy_from_slice(&lease.fencing_token.0.to_be_bytes());
        let mac = self.mac(&id[..CLAIM_BYTES], &lease.scope, &lease.worker);
        id[CLAIM_BYTES..].copy_from_slice(&mac);
        URL_SAFE_NO_PAD.encode(id)
    }

    /// The lease that the id names, if it was granted to this worker in this scope.
    pub(crate) fn verify(&self, id: &str, scope: &Scope, worker: &Arc<str>) -> Option<LeaseRef> {
        if id.len() != ID_CHARS {
            return None;
        }
        let id: [u8; ID_BYTES] = URL_SAFE_NO_PAD.decode(id).ok()?.try_into().ok()?;
        let (claim, mac) = id.split_at(CLAIM_BYTES);
        if !same(&self.mac(claim, scope, worker), mac) || claim[0] != VERSION {
            return None;
        }
        Some(LeaseRef {
            scope: scope.clone(),
            worker: worker.clone(),
            task: TaskId(u128::from_be_bytes(claim[1..17].try_into().ok()?)),
            attempt: u32::from_be_bytes(claim[17..21].try_into().ok()?),
            fencing_token: Position(u64::from_be_bytes(claim[21..29].try_into().ok()?)),
        })
    }

    fn mac(&self, claim: &[u8], scope: &Scope, worker: &str) -> [u8; MAC_BYTES] {
        mac(&self.key, [claim, scope.tenant.as_bytes(), scope.workspace.as_bytes(), worker.as_bytes()])
    }
}

/// The lease that the id names, if it was granted to this worker and, where the worker says, for this task.
pub(crate) fn reference(
    app: &App,
    scope: &Scope,
    lease_id: &str,
    worker_id: &str,
    task_id: Option<&str>,
) -> Result<LeaseRef, Problem> {
    let worker = name("workerId", worker_id)?;
    let lease = app.lease_ids.verify(lease_id, scope, &worker).ok_or_else(|| {
        Problem::new(Code::BadLeaseId, "the lease id is damaged, made up, or belongs to another worker")
    })?;
    match task_id {
        Some(task_id) if parse_task_id(task_id) != Some(lease.task) => {
            Err(Problem::new(Code::WrongTask, "taskId: is not the task that the lease was granted for"))
        }
        _ => Ok(lease),
    }
}

pub(crate) fn mac<'a>(key: &[u8; 32], parts: impl IntoIterator<Item = &'a [u8]>) -> [u8; MAC_BYTES] {
    hash_parts(blake3::Hasher::new_keyed(key), parts)
}

/// A hash over parts, each with its length, so that they cannot run into one another.
pub(crate) fn hash_parts<'a>(
    mut hasher: blake3::Hasher,
    parts: impl IntoIterator<Item = &'a [u8]>,
) -> [u8; MAC_BYTES] {
    for part in parts {
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part);
    }
    let mut hash = [0; MAC_BYTES];
    hasher.finalize_xof().fill(&mut hash);
    hash
}

/// Compares two MACs in constant time, as whole hashes are compared.
pub(crate) fn same(ours: &[u8; MAC_BYTES], theirs: &[u8]) -> bool {
    let padded = |mac: &[u8]| {
        let mut bytes = [0; 32];
        bytes[..MAC_BYTES].copy_from_slice(mac);
        blake3::Hash::from_bytes(bytes)
    };
    theirs.len() == MAC_BYTES && padded(ours) == padded(theirs)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ids() -> LeaseIds {
        LeaseIds::new(&[7; 32])
    }

    fn scope(tenant: &str, workspace: &str) -> Scope {
        Scope { tenant: tenant.into(), workspace: workspace.into() }
    }

    fn lease() -> LeaseRef {
        LeaseRef {
            scope: scope("acme", "main"),
            worker: "w".into(),
            task: TaskId(0x0190_0000_0000_7000_8000_0000_0000_0001),
            attempt: 3,
            fencing_token: Position(77),
        }
    }

    #[test]
    fn what_was_granted_verifies() {
        let id = ids().make(&lease());
        assert_eq!(id.len(), ID_CHARS);
        assert_eq!(ids().verify(&id, &lease().scope, &"w".into()), Some(lease()));
    }

    #[test]
    fn s0_14_another_worker_tenant_workspace_or_key_does_not() {
        let id = ids().make(&lease());
        let w: Arc<str> = "w".into();
        assert_eq!(ids().verify(&id, &lease().scope, &"v".into()), None);
        assert_eq!(ids().verify(&id, &scope("other", "main"), &w), None);
        assert_eq!(ids().verify(&id, &scope("acme", "other"), &w), None);
        assert_eq!(ids().verify(&id, &scope("acmem", "ain"), &w), None);
        assert_eq!(LeaseIds::new(&[8; 32]).verify(&id, &lease().scope, &w), None);
    }

    #[test]
    fn no_flipped_bit_verifies() {
        let bytes = URL_SAFE_NO_PAD.decode(ids().make(&lease())).unwrap();
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let id = URL_SAFE_NO_PAD.encode(flipped);
            assert_eq!(ids().verify(&id, &lease().scope, &"w".into()), None, "bit {bit}");
        }
    }

    #[test]
    fn a_cut_or_lengthened_id_does_not_verify() {
        let id = ids().make(&lease());
        for text in ["", &id[..59], &format!("{id}A"), &format!("{id}="), &id.replace('A', " ")] {
            assert!(ids().verify(text, &lease().scope, &"w".into()).is_none_or(|_| text == id));
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic_or_verify(text in ".{0,80}") {
            prop_assert_eq!(ids().verify(&text, &lease().scope, &"w".into()), None);
        }

        #[test]
        fn nothing_of_the_right_length_verifies(text in "[A-Za-z0-9_-]{60}") {
            prop_assert_eq!(ids().verify(&text, &lease().scope, &"w".into()), None);
        }
    }
}
