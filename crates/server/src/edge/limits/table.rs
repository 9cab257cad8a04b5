//! The table of tenants that have limits: what each uses, and whether it may use more.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use authority::limits::MAX_TENANTS;
use governor::clock::Clock;
use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};

use super::{LimitsByTenant, TenantLimits};
use crate::convert::{Code, Limit, Problem};
use crate::metrics::Metrics;

pub(crate) struct LimitTable {
    limits: LimitsByTenant,
    /// Whether any tenant has a limit at all; without one nothing is looked up.
    has_limits: bool,
    /// At most [`MAX_TENANTS`] and those that are configured; see [`LimitTable::make_room`].
    tenants: Mutex<HashMap<Arc<str>, Arc<TenantUse>>>,
    max_tenants: usize,
    began: Instant,
    metrics: Metrics,
}

/// What a tenant uses.
struct TenantUse {
    limits: TenantLimits,
    requests: Option<DefaultDirectRateLimiter>,
    connections: AtomicUsize,
    polls: AtomicUsize,
    streams: AtomicUsize,
    executions: AtomicUsize,
    /// When it was last looked up, in milliseconds since the table was made.
    last_use_ms: AtomicU64,
}

impl TenantUse {
    fn new(limits: TenantLimits) -> TenantUse {
        let requests = limits.requests_per_second.map(|rate| {
            RateLimiter::direct(Quota::per_second(rate).allow_burst(limits.request_burst.unwrap_or(rate)))
        });
        TenantUse {
            limits,
            requests,
            connections: AtomicUsize::new(0),
            polls: AtomicUsize::new(0),
            streams: AtomicUsize::new(0),
            executions: AtomicUsize::new(0),
            last_use_ms: AtomicU64::new(0),
        }
    }

    /// The count of what is in use; none for what is no count.
    fn count(&self, limit: Limit) -> Option<&AtomicUsize> {
        match limit {
            Limit::Connections => Some(&self.connections),
            Limit::Polls => Some(&self.polls),
            Limit::Streams => Some(&self.streams),
            Limit::Executions => Some(&self.executions),
            Limit::Requests | Limit::OpenTasks | Limit::StateBytes | Limit::BlobBytes => None,
        }
    }

    /// After so long without a request it may send a whole burst again, as if it had never sent any.
    fn refill_ms(&self) -> u64 {
        let Some(rate) = self.limits.requests_per_second else { return 0 };
        let burst = self.limits.request_burst.unwrap_or(rate);
        u64::from(burst.get()) * 1_000 / u64::from(rate.get()) + 1_000
    }
}

/// Something that counts against a limit until this is dropped.
pub(crate) struct InUse {
    tenant: Arc<TenantUse>,
    limit: Limit,
}

impl Drop for InUse {
    fn drop(&mut self) {
        if let Some(count) = self.tenant.count(self.limit) {
            count.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl LimitTable {
    pub(crate) fn new(limits: LimitsByTenant, metrics: Metrics) -> LimitTable {
        let has_limits = limits.any(|limits| *limits != TenantLimits::default());
        let max_tenants = MAX_TENANTS + limits.tenants.len();
        let tenants = Mutex::default();
        LimitTable { limits, has_limits, tenants, max_tenants, began: Instant::now(), metrics }
    }

    /// Whether requests have to be looked at: some tenant has a limit on requests or connections.
    pub(crate) fn limits_requests(&self) -> bool {
        self.limits.any(|limits| limits.requests_per_second.is_some() || limits.connections.is_some())
    }

    /// Whether some tenant has a limit on connections.
    pub(crate) fn limits_connections(&self) -> bool {
        self.limits.any(|limits| limits.connections.is_some())
    }

    /// Counts a request of a tenant, unless it comes too soon.
    pub(crate) fn request(&self, tenant: &Arc<str>) -> Result<(), Problem> {
        let Some(known) = self.find(tenant)? else { return Ok(()) };
        let Some(requests) = &known.requests else { return Ok(()) };
        requests.check().map_err(|not_until| {
            let wait = not_until.wait_time_from(requests.clock().now());
            let rate = known.limits.requests_per_second.map_or(0, NonZeroU32::get);
            let detail = format!("tenant {tenant} may send {rate} requests per second, and sent more");
            self.refused(Limit::Requests, detail, Some(wait))
        })
    }

    /// Counts something of a tenant until the guard is dropped, unless the tenant has as much as it may have. Nothing is
    /// counted where there is no limit.
    pub(crate) fn take(&self, limit: Limit, tenant: &Arc<str>) -> Result<Option<InUse>, Problem> {
        let Some((known, max)) = self.limited(limit, tenant)? else { return Ok(None) };
        let more = |used: usize| (used < max).then_some(used + 1);
        let taken =
            known.count(limit).map(|count| count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more));
        if matches!(taken, Some(Err(_))) {
            let name = limit.name();
            let detail =
                format!("tenant {tenant} has {max} {name}, which is as many as it may have at one time");
            return Err(self.refused(limit, detail, None));
        }
        Ok(Some(InUse { tenant: known, limit }))
    }

    /// Counts something that is there already, also beyond the limit.
    pub(crate) fn count(&self, limit: Limit, tenant: &Arc<str>) -> Option<InUse> {
        let (known, _) = self.limited(limit, tenant).ok().flatten()?;
        known.count(limit)?.fetch_add(1, Ordering::Relaxed);
        Some(InUse { tenant: known, limit })
    }

    fn limited(&self, limit: Limit, tenant: &Arc<str>) -> Result<Option<(Arc<TenantUse>, usize)>, Problem> {
        let known = self.find(tenant)?;
        Ok(known.and_then(|known| known.limits.max(limit).map(|max| (known, max))))
    }

    fn refused(&self, limit: Limit, detail: String, wait: Option<Duration>) -> Problem {
        self.metrics.limited(limit);
        let retry_after_ms = wait.map(|wait| u32::try_from(wait.as_millis()).unwrap_or(u32::MAX).max(1));
        Problem { retry_after_ms, ..Problem::over_limit(limit, detail) }
    }

    /// What a tenant uses; none when it has no limits.
    fn find(&self, tenant: &Arc<str>) -> Result<Option<Arc<TenantUse>>, Problem> {
        if !self.has_limits {
            return Ok(None);
        }
        let limits = self.limits.of(tenant);
        if limits == TenantLimits::default() {
            return Ok(None);
        }
        let now_ms = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        let mut tenants = self.lock();
        let known = match tenants.get(tenant) {
            Some(known) => known.clone(),
            None => {
                self.make_room(&mut tenants, now_ms)?;
                let known = Arc::new(TenantUse::new(limits));
                tenants.insert(tenant.clone(), known.clone());
                known
            }
        };
        known.last_use_ms.store(now_ms, Ordering::Relaxed);
        Ok(Some(known))
    }

    /// Makes room for another tenant: tenants that use nothing and have not sent anything lately are forgotten.
    fn make_room(&self, tenants: &mut HashMap<Arc<str>, Arc<TenantUse>>, now_ms: u64) -> Result<(), Problem> {
        if tenants.len() < self.max_tenants {
            return Ok(());
        }
        tenants.retain(|_, known| {
            let is_idle = known.last_use_ms.load(Ordering::Relaxed) + known.refill_ms() < now_ms;
            Arc::strong_count(known) > 1 || !is_idle
        });
        if tenants.len() < self.max_tenants {
            return Ok(());
        }
        let detail = format!("{} tenants are active, which is as many as there may be", tenants.len());
        Err(Problem::new(Code::TooManyTenants, detail))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<str>, Arc<TenantUse>>> {
        // Every change is one insertion or removal, so the map is whole also after a panic.
        self.tenants.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(others: TenantLimits, own: TenantLimits) -> LimitTable {
        let tenants = HashMap::from([("own".to_owned(), own)]);
        LimitTable::new(LimitsByTenant { others, tenants }, Metrics::default())
    }

    fn tenant(name: &str) -> Arc<str> {
        Arc::from(name)
    }

    #[test]
    fn a_burst_is_admitted_and_the_next_request_is_told_when_to_come_back() {
        let rate = NonZeroU32::new(1);
        let limits = TenantLimits {
            requests_per_second: rate,
            request_burst: NonZeroU32::new(3),
            ..Default::default()
        };
        let table = table(TenantLimits::default(), limits);
        assert!(table.limits_requests() && !table.limits_connections());
        for _ in 0..3 {
            table.request(&tenant("own")).unwrap();
        }
        let refused = table.request(&tenant("own")).unwrap_err();
        assert_eq!((refused.code, refused.limit), (Code::TenantLimit, Some(Limit::Requests)));
        let wait_ms = refused.retry_after_ms.unwrap();
        assert!((1..=1_000).contains(&wait_ms), "{wait_ms}");
        (0..100).for_each(|_| table.request(&tenant("other")).unwrap());
    }

    #[test]
    fn what_is_dropped_counts_no_more_and_tenants_do_not_share_a_limit() {
        let two = TenantLimits { polls: Some(2), ..TenantLimits::default() };
        let one = TenantLimits { polls: Some(1), ..TenantLimits::default() };
        let table = table(two, one);
        let held = table.take(Limit::Polls, &tenant("own")).unwrap();
        let refused = table.take(Limit::Polls, &tenant("own")).err().unwrap();
        assert_eq!(refused.limit, Some(Limit::Polls));
        let others: Vec<_> = (0..2).map(|_| table.take(Limit::Polls, &tenant("a")).unwrap()).collect();
        assert!(table.take(Limit::Polls, &tenant("a")).is_err());
        assert!(table.take(Limit::Polls, &tenant("b")).is_ok());
        assert!(table.take(Limit::Streams, &tenant("own")).unwrap().is_none(), "it has no limit");
        drop((held, others));
        assert!(table.take(Limit::Polls, &tenant("own")).is_ok());
        let forced = (0..3).map(|_| table.count(Limit::Polls, &tenant("own"))).collect::<Vec<_>>();
        assert!(table.take(Limit::Polls, &tenant("own")).is_err());
        drop(forced);
        assert!(table.take(Limit::Polls, &tenant("own")).is_ok());
    }

    #[test]
    fn the_table_is_bounded_and_forgets_tenants_that_use_nothing() {
        let table =
            table(TenantLimits { polls: Some(1), ..TenantLimits::default() }, TenantLimits::default());
        let held: Vec<_> =
            (0..=MAX_TENANTS).map(|n| table.take(Limit::Polls, &tenant(&format!("t{n}"))).unwrap()).collect();
        let refused = table.take(Limit::Polls, &tenant("more")).err().unwrap();
        assert_eq!(refused.code, Code::TooManyTenants);
        drop(held);
        // Idle means: not used in this millisecond.
        let began = Instant::now();
        while began.elapsed() < Duration::from_millis(3) {}
        assert!(table.take(Limit::Polls, &tenant("more")).is_ok());
        assert_eq!(table.lock().len(), 1);
    }

    #[test]
    fn without_limits_nothing_is_counted() {
        let table = LimitTable::new(LimitsByTenant::default(), Metrics::default());
        assert!(!table.limits_requests());
        table.request(&tenant("t")).unwrap();
        assert!(table.take(Limit::Polls, &tenant("t")).unwrap().is_none());
        assert!(table.lock().is_empty());
    }
}
