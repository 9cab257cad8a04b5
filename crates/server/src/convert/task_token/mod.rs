//! Task tokens: they authorize a worker to report about one attempt of one task.
//!
//! A token names scope, run, task, attempt, lease and holder, so that a callback finds its lease without anything being
//! stored. A token that verifies was made here; whether the lease is valid is decided by the authority.

mod jwt;
mod key_id;

use std::ops::RangeInclusive;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use authority::command::RotateTokenKey;
use authority::limits::MAX_PUSH_INTERVAL_MS;
use authority::{Actor, LeaseRef, Position, Scope, Time};
use coordinator::{Handle, Unavailable};
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;

use crate::convert::parse_task_id;
use jwt::Unverified;
use key_id::KeyId;

/// How long a token lives when its task has no deadline, unless configured, and the most that it may.
pub(crate) const DEFAULT_TTL: Duration = Duration::from_secs(3_600);
const MAX_TTL_MS: u64 = 7_200_000;
/// How long a token may be configured to live (S1-8).
pub const TOKEN_TTL_SECONDS: RangeInclusive<u64> = 60..=MAX_TTL_MS / 1_000;
// A token lives for two heartbeats: one of them is in the second half of its life, and renews it.
const _: () = assert!(2 * MAX_PUSH_INTERVAL_MS <= MAX_TTL_MS);
/// How far the clock that made a token and the one that checks it may differ. Leases know no such leeway.
const LEEWAY_S: u64 = 5;

pub(crate) struct TaskTokens {
    secret: [u8; 32],
    ttl_ms: u64,
    /// The newest key, or that there is none; while neither is known, the next callback asks the coordinator. What is known
    /// stays true where nobody else records keys; in a cluster, other nodes do.
    current: RwLock<Option<Option<KeyId>>>,
    /// Held while the newest key is looked up or replaced, over the coordinator's answer: a look-up that began before a
    /// rotation must not be remembered after it.
    changing: Mutex<()>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Claims {
    pub tenant_id: String,
    pub workspace_id: String,
    pub run_id: String,
    pub task_id: String,
    pub attempt: u32,
    /// The lease's number and its holder.
    pub lease: u64,
    pub holder: String,
    /// In seconds, as the standard has it.
    pub iat: u64,
    pub nbf: u64,
    pub exp: u64,
}

/// The keys that are good now: one signs, and perhaps the one before it is still believed.
pub(crate) struct KeyRing<'a> {
    secret: &'a [u8; 32],
    ttl_ms: u64,
    current: KeyId,
}

#[derive(Debug)]
pub(crate) struct Issued {
    pub token: String,
    pub expires_at: Time,
}

impl TaskTokens {
    /// Tokens live for `ttl` when their task has no deadline.
    pub(crate) fn new(secret: &[u8; 32], ttl: Duration) -> TaskTokens {
        let secret = blake3::derive_key("lessor 2026 task token", secret);
        let ttl_ms = ttl.as_millis() as u64;
        TaskTokens { secret, ttl_ms, current: RwLock::default(), changing: Mutex::default() }
    }

    fn with_key(&self, current: KeyId) -> KeyRing<'_> {
        KeyRing { secret: &self.secret, ttl_ms: self.ttl_ms, current }
    }

    /// The keys to sign with. The first key is recorded when it is first needed.
    pub(crate) async fn key_ring(&self, handle: &Handle) -> Result<KeyRing<'_>, Unavailable> {
        let current = match self.newest(handle).await? {
            Some(newest) => newest,
            None => {
                let _changing = self.changing.lock().await;
                let first = match recorded(handle).await? {
                    Some(recorded_meanwhile) => recorded_meanwhile,
                    None => {
                        // Nothing is known until the answer, which may not come.
                        self.forget();
                        record(handle, KeyId::FIRST, None).await?;
                        KeyId::FIRST
                    }
                };
                self.remember(Some(first));
                first
            }
        };
        Ok(self.with_key(current))
    }

    /// The keys to check with; none while nothing was ever signed, so that a made-up token records nothing.
    pub(crate) async fn key_ring_if_any(&self, handle: &Handle) -> Result<Option<KeyRing<'_>>, Unavailable> {
        let newest = self.newest(handle).await?;
        Ok(newest.map(|current| self.with_key(current)))
    }

    /// From now on another key signs.
    pub(crate) async fn rotate(
        &self,
        handle: &Handle,
        retire_old: bool,
        by: Option<Arc<Actor>>,
    ) -> Result<KeyId, Unavailable> {
        let _changing = self.changing.lock().await;
        let next = recorded(handle).await?.map_or(KeyId::FIRST, |newest| newest.next(retire_old));
        // The caller may hang up before the answer; then the next call looks the key up.
        self.forget();
        record(handle, next, by).await?;
        self.remember(Some(next));
        Ok(next)
    }

    async fn newest(&self, handle: &Handle) -> Result<Option<KeyId>, Unavailable> {
        if handle.has_other_nodes() {
            return recorded(handle).await;
        }
        if let Some(known) = self.known() {
            return Ok(known);
        }
        let _changing = self.changing.lock().await;
        if let Some(known) = self.known() {
            return Ok(known);
        }
        let newest = recorded(handle).await?;
        self.remember(newest);
        Ok(newest)
    }

    fn known(&self) -> Option<Option<KeyId>> {
        *self.current.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn remember(&self, key: Option<KeyId>) {
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = Some(key);
    }

    fn forget(&self) {
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

/// Whether a text has the form of a task token; what is checked before anything is asked.
pub(crate) fn is_well_formed(token: &str) -> bool {
    Unverified::parse(token).is_some_and(|token| KeyId::parse(token.kid()).is_some())
}

async fn record(handle: &Handle, id: KeyId, by: Option<Arc<Actor>>) -> Result<(), Unavailable> {
    handle.rotate_token_key(RotateTokenKey { key_id: id.to_string().into(), by }).await.map(|_| ())
}

/// The newest key in the ledger. A name that is not ours signs nothing and is replaced like none.
async fn recorded(handle: &Handle) -> Result<Option<KeyId>, Unavailable> {
    Ok(handle.token_key().await?.and_then(|key| KeyId::parse(&key.id)))
}

impl<'a> KeyRing<'a> {
    /// The keys of a server that has never rotated its key.
    pub(crate) fn first(tokens: &'a TaskTokens) -> KeyRing<'a> {
        tokens.with_key(KeyId::FIRST)
    }

    /// A token for one attempt. It covers the task's deadline and the grace after it as far as it may. Without a deadline it
    /// lives as long as configured, but for at least two heartbeats, so that one of them can renew it.
    pub(crate) fn issue(
        &self,
        lease: &LeaseRef,
        run_id: &str,
        deadline: Option<Time>,
        (grace_ms, heartbeat_interval_ms): (u64, u64),
        now: Time,
    ) -> Issued {
        let ttl_ms = match deadline {
            Some(deadline) => deadline.since_ms(now).saturating_add(grace_ms),
            None => self.ttl_ms.max(heartbeat_interval_ms.saturating_mul(2)),
        };
        let ttl_ms = ttl_ms.min(MAX_TTL_MS);
        let (iat, exp) = (now.0 / 1_000, now.plus_ms(ttl_ms).0 / 1_000);
        let claims = Claims {
            tenant_id: lease.scope.tenant.to_string(),
            workspace_id: lease.scope.workspace.to_string(),
            run_id: run_id.to_owned(),
            task_id: lease.task.to_string(),
            attempt: lease.attempt,
            lease: lease.fencing_token.0,
            holder: lease.worker.to_string(),
            iat,
            nbf: iat,
            exp,
        };
        let token = jwt::sign(&self.current.to_string(), &self.current.key(self.secret), &claims);
        // Claims of texts and numbers are always JSON.
        Issued { token: token.unwrap_or_default(), expires_at: Time(exp * 1_000) }
    }

    /// What the token says, and whether its key is the newest; nothing if it was not made here or not for now.
    pub(crate) fn verify(&self, token: &str, now: Time) -> Option<(Claims, bool)> {
        let token = Unverified::parse(token)?;
        let id = KeyId::parse(token.kid()).filter(|id| self.current.accepts(*id))?;
        let claims: Claims = token.verify(&id.key(self.secret))?;
        let now_s = now.0 / 1_000;
        let timely = now_s <= claims.exp.saturating_add(LEEWAY_S) && now_s + LEEWAY_S >= claims.nbf;
        timely.then_some((claims, id == self.current))
    }
}

impl Claims {
    pub(crate) fn lease(&self) -> Option<LeaseRef> {
        let scope =
            Scope { tenant: self.tenant_id.as_str().into(), workspace: self.workspace_id.as_str().into() };
        Some(LeaseRef {
            scope,
            worker: self.holder.as_str().into(),
            task: parse_task_id(&self.task_id)?,
            attempt: self.attempt,
            fencing_token: Position(self.lease),
        })
    }

    /// Whether half of the token's life is over.
    pub(crate) fn is_ageing(&self, now: Time) -> bool {
        now.0 / 1_000 >= self.iat + self.exp.saturating_sub(self.iat) / 2
    }
}

#[cfg(test)]
mod tests {
    use authority::TaskId;

    use super::*;

    const NOW: Time = Time(1_700_000_000_000);
    const SECRET: [u8; 32] = [7; 32];

    fn key_ring(current: &str) -> KeyRing<'static> {
        KeyRing { secret: &SECRET, ttl_ms: 3_600_000, current: KeyId::parse(current).unwrap() }
    }

    fn lease() -> LeaseRef {
        LeaseRef {
            scope: Scope { tenant: "acme".into(), workspace: "main".into() },
            worker: "push:q".into(),
            task: TaskId(0x0190_0000_0000_7000_8000_0000_0000_0001),
            attempt: 3,
            fencing_token: Position(77),
        }
    }

    fn issue(deadline: Option<Time>) -> Issued {
        key_ring("k1.1").issue(&lease(), "run_1", deadline, (30_000, 30_000), NOW)
    }

    fn ttl_s(issued: &Issued) -> u64 {
        issued.expires_at.since_ms(NOW) / 1_000
    }

    #[test]
    fn s1_7_a_token_names_its_scope_and_its_lease() {
        let (claims, newest) = key_ring("k1.1").verify(&issue(None).token, NOW).unwrap();
        assert_eq!(claims.lease(), Some(lease()));
        assert_eq!((claims.run_id.as_str(), newest), ("run_1", true));
    }

    #[test]
    fn s1_8_a_token_lives_an_hour_and_never_more_than_two() {
        assert_eq!(ttl_s(&issue(None)), 3_600);
        assert_eq!(ttl_s(&issue(Some(NOW.plus_ms(100 * MAX_TTL_MS)))), 7_200);
        assert_eq!(ttl_s(&issue(Some(Time(u64::MAX)))), 7_200);
    }

    #[test]
    fn s1_8_a_configured_life_is_kept_but_no_token_ends_between_two_heartbeats() {
        let ring = KeyRing { ttl_ms: 90_000, ..key_ring("k1.1") };
        let ttl_s = |interval_ms| ttl_s(&ring.issue(&lease(), "r", None, (0, interval_ms), NOW));
        assert_eq!(ttl_s(30_000), 90);
        assert_eq!(ttl_s(60_000), 120);
        assert_eq!(ttl_s(u64::MAX), 7_200);
    }

    #[test]
    fn s1_11_a_token_covers_the_deadline_and_the_grace_after_it() {
        assert_eq!(ttl_s(&issue(Some(NOW.plus_ms(5_000_000)))), 5_030);
        assert_eq!(ttl_s(&issue(Some(NOW.plus_ms(10_000)))), 40);
        assert_eq!(ttl_s(&issue(Some(Time(0)))), 30, "a deadline that has passed leaves the grace");
    }

    #[test]
    fn t8_only_the_times_of_a_token_have_some_seconds_of_leeway() {
        let token = issue(None).token;
        let verify = |now: Time| key_ring("k1.1").verify(&token, now).is_some();
        assert!(verify(NOW.plus_ms(3_600_000)) && verify(NOW.plus_ms(3_605_999)));
        assert!(!verify(NOW.plus_ms(3_606_000)));
        assert!(verify(Time(NOW.0 - 5_000)) && !verify(Time(NOW.0 - 6_000)));
        assert!(!verify(Time(u64::MAX)) && !verify(Time(0)));
    }

    #[test]
    fn x4_tokens_of_the_last_key_stay_good_until_it_is_retired() {
        let old = issue(None).token;
        assert_eq!(key_ring("k2.1").verify(&old, NOW).map(|(_, newest)| newest), Some(false));
        assert!(key_ring("k2.2").verify(&old, NOW).is_none());
        assert!(key_ring("k3.2").verify(&old, NOW).is_none());
    }

    #[test]
    fn x1_a_token_under_another_key_or_secret_is_nothing() {
        let other = KeyRing { secret: &[8; 32], ttl_ms: 1_000, current: KeyId::FIRST };
        let other = other.issue(&lease(), "r", None, (0, 0), NOW);
        assert!(key_ring("k1.1").verify(&other.token, NOW).is_none());
        let claims = key_ring("k1.1").verify(&issue(None).token, NOW).unwrap().0;
        let key = KeyId::FIRST.key(&SECRET);
        assert!(key_ring("k1.1").verify(&jwt::sign("k1.1", &key, &claims).unwrap(), NOW).is_some());
        for kid in ["k2.1", "k2.2", "k1.2", "", "k1", "../k1.1"] {
            assert!(key_ring("k1.1").verify(&jwt::sign(kid, &key, &claims).unwrap(), NOW).is_none(), "{kid}");
        }
        assert!(key_ring("k1.1").verify(&jwt::sign("k1.1", &key, &()).unwrap(), NOW).is_none());
    }

    #[test]
    fn c22_a_token_is_renewed_when_half_of_its_life_is_over() {
        let (claims, _) = key_ring("k1.1").verify(&issue(None).token, NOW).unwrap();
        assert!(!claims.is_ageing(NOW) && !claims.is_ageing(NOW.plus_ms(1_799_000)));
        assert!(claims.is_ageing(NOW.plus_ms(1_800_000)));
    }
}
