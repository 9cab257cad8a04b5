//! The limits of tenants on requests, connections, polls, streams and executions, and the pools that tenants share. Open
//! tasks and their memory are limited by the authority, and blobs by the content store.
//!
//! Where no tenant has a limit, nothing is counted and no layer is added.

mod connection_tenants;
mod layer;
mod shared_pool;
mod table;
mod tenant_gates;

pub(crate) use connection_tenants::ConnectionTenants;
pub(crate) use layer::layer;
pub(crate) use shared_pool::{PoolPermit, SharedPool};
pub(crate) use table::{InUse, LimitTable};
pub(crate) use tenant_gates::{GatePermit, TenantGates};

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::{Arc, LazyLock};

use axum::http::{Extensions, HeaderMap};

use super::auth::{AuthMode, Caller};
use crate::convert::{Limit, scope};

/// What one tenant may use at most; no limit where there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TenantLimits {
    pub requests_per_second: Option<NonZeroU32>,
    /// Requests that may come at once; as many as in one second if there is none.
    pub request_burst: Option<NonZeroU32>,
    pub connections: Option<usize>,
    pub polls: Option<usize>,
    pub streams: Option<usize>,
    pub executions: Option<usize>,
}

impl TenantLimits {
    /// The most of what is counted; none for the rate of requests, which is no count.
    fn max(&self, limit: Limit) -> Option<usize> {
        match limit {
            Limit::Connections => self.connections,
            Limit::Polls => self.polls,
            Limit::Streams => self.streams,
            Limit::Executions => self.executions,
            Limit::Requests | Limit::OpenTasks | Limit::StateBytes | Limit::BlobBytes => None,
        }
    }
}

/// The limits of all tenants.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LimitsByTenant {
    /// Of tenants that have no limits of their own.
    pub others: TenantLimits,
    pub tenants: HashMap<String, TenantLimits>,
}

impl LimitsByTenant {
    fn of(&self, tenant: &str) -> TenantLimits {
        self.tenants.get(tenant).copied().unwrap_or(self.others)
    }

    /// Whether any tenant has a limit that `has` finds.
    fn any(&self, has: impl Fn(&TenantLimits) -> bool) -> bool {
        has(&self.others) || self.tenants.values().any(has)
    }
}

/// Callers without a credential, where one is needed: together they are one more tenant, which no header can name.
static UNKNOWN: LazyLock<Arc<str>> = LazyLock::new(|| Arc::from(""));

/// The tenant whose share of a pool a request takes.
pub(crate) fn tenant_of(auth: AuthMode, extensions: &Extensions, headers: &HeaderMap) -> Arc<str> {
    if auth == AuthMode::Keys && Caller::of(extensions).identity().is_none() {
        return UNKNOWN.clone();
    }
    scope::tenant_of(headers).unwrap_or_else(|_| UNKNOWN.clone())
}
