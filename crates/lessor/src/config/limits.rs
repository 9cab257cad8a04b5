//! The limits of tenants: the tables `limits.tenant` and `limits.tenants.NAME` of the file.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use authority::limits::MAX_TENANTS;
use blobs::{Tenant, TenantQuotas};
use serde::{Deserialize, Serialize};

use super::file::within;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Limits {
    /// Of every tenant, where its own table does not say otherwise.
    pub tenant: TenantLimits,
    /// Of single tenants, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub tenants: BTreeMap<String, TenantLimits>,
}

/// A limit that is left out is none, or that of all tenants.
#[serde_with::skip_serializing_none]
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct TenantLimits {
    pub requests_per_second: Option<u32>,
    /// Requests at once; as many as in a second if it is left out.
    pub request_burst: Option<u32>,
    pub connections: Option<u64>,
    pub polls: Option<u64>,
    pub streams: Option<u64>,
    pub executions: Option<u64>,
    pub open_tasks: Option<u64>,
    pub state_mib: Option<u64>,
    pub blob_mib: Option<u64>,
}

impl TenantLimits {
    pub(super) fn with_every_key() -> TenantLimits {
        TenantLimits {
            requests_per_second: Some(1),
            request_burst: Some(1),
            connections: Some(1),
            polls: Some(1),
            streams: Some(1),
            executions: Some(1),
            open_tasks: Some(1),
            state_mib: Some(1),
            blob_mib: Some(1),
        }
    }

    fn or(self, other: TenantLimits) -> TenantLimits {
        TenantLimits {
            requests_per_second: self.requests_per_second.or(other.requests_per_second),
            request_burst: self.request_burst.or(other.request_burst),
            connections: self.connections.or(other.connections),
            polls: self.polls.or(other.polls),
            streams: self.streams.or(other.streams),
            executions: self.executions.or(other.executions),
            open_tasks: self.open_tasks.or(other.open_tasks),
            state_mib: self.state_mib.or(other.state_mib),
            blob_mib: self.blob_mib.or(other.blob_mib),
        }
    }

    fn faults(&self, table: &str) -> Vec<String> {
        let values = [
            ("requests_per_second", self.requests_per_second.map(u64::from)),
            ("request_burst", self.request_burst.map(u64::from)),
            ("connections", self.connections),
            ("polls", self.polls),
            ("streams", self.streams),
            ("executions", self.executions),
            ("open_tasks", self.open_tasks),
            ("state_mib", self.state_mib),
            ("blob_mib", self.blob_mib),
        ];
        let fault =
            |(key, value): (&str, Option<u64>)| within(&format!("{table}.{key}"), value?, 1..=u64::MAX);
        values.into_iter().filter_map(fault).collect()
    }

    fn of_requests(&self) -> server::TenantLimits {
        server::TenantLimits {
            requests_per_second: self.requests_per_second.and_then(NonZeroU32::new),
            request_burst: self.request_burst.and_then(NonZeroU32::new),
            connections: self.connections.map(size),
            polls: self.polls.map(size),
            streams: self.streams.map(size),
            executions: self.executions.map(size),
        }
    }

    fn of_tasks(&self) -> authority::TenantLimits {
        authority::TenantLimits {
            open_tasks: self.open_tasks.map(size),
            bytes: self.state_mib.map(|mib| size(bytes(mib))),
        }
    }
}

impl Limits {
    pub(super) fn faults(&self) -> Vec<String> {
        let mut faults = self.tenant.faults("limits.tenant");
        for (name, limits) in &self.tenants {
            let table = format!("limits.tenants.{name}");
            faults.extend(limits.faults(&table));
            faults
                .extend(server::fault_of_scope_name(name).map(|fault| format!("{table}: the name {fault}")));
            if limits.request_burst.is_some() && limits.or(self.tenant).requests_per_second.is_none() {
                faults.push(format!("{table}.request_burst needs requests_per_second"));
            }
        }
        if self.tenant.request_burst.is_some() && self.tenant.requests_per_second.is_none() {
            faults.push("limits.tenant.request_burst needs limits.tenant.requests_per_second".to_owned());
        }
        if self.tenants.len() > MAX_TENANTS {
            faults.push(format!("limits.tenants must name at most {MAX_TENANTS} tenants"));
        }
        faults
    }

    /// The limits of requests and of what they hold.
    pub(crate) fn of_requests(&self) -> server::LimitsByTenant {
        let tenants = self.each().map(|(name, limits)| (name.to_owned(), limits.of_requests()));
        server::LimitsByTenant { others: self.tenant.of_requests(), tenants: tenants.collect() }
    }

    /// The limits of tasks.
    pub(crate) fn of_tasks(&self) -> authority::LimitsByTenant {
        let tenants = self.each().map(|(name, limits)| (name.into(), limits.of_tasks()));
        authority::LimitsByTenant { others: self.tenant.of_tasks(), tenants: tenants.collect() }
    }

    /// The limits of blobs.
    pub(crate) fn of_blobs(&self) -> TenantQuotas {
        let quota = |limits: &TenantLimits| limits.blob_mib.map(bytes);
        // Names that are no tenants were refused.
        let tenants =
            self.each().filter_map(|(name, limits)| Some((Tenant::new(name).ok()?, quota(&limits))));
        TenantQuotas::new(quota(&self.tenant), tenants)
    }

    /// The tenants with a table of their own, and all of their limits.
    fn each(&self) -> impl Iterator<Item = (&str, TenantLimits)> {
        self.tenants.iter().map(|(name, limits)| (name.as_str(), limits.or(self.tenant)))
    }
}

fn bytes(mib: u64) -> u64 {
    mib.saturating_mul(1 << 20)
}

fn size(count: u64) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}
