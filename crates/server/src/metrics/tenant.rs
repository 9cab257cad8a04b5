//! The metrics of one tenant, which a reader or an operator of the tenant gets. Each has the tenant as a label and says
//! nothing about others.

use std::sync::Arc;

use coordinator::TenantStatus;
use prometheus::{GaugeVec, IntGauge, IntGaugeVec, Opts, Registry};
use tokio::time::timeout;

use super::scrape::{MAX_WAIT, silent, whole};
use super::{OTHERS, registered};
use crate::app::App;
use crate::convert::Problem;

/// The figures of a tenant as they are now.
pub(super) async fn registry(app: &App, tenant: &Arc<str>) -> Result<Registry, Problem> {
    let names = app.metrics.0.named.clone();
    let ask = async {
        let workers = app.handle.registered_in_tenant(tenant).await?;
        Ok::<_, Problem>((*app.handle.tenant(tenant.clone(), names.clone()).await?, workers))
    };
    let (TenantStatus { usage, depths }, workers) = timeout(MAX_WAIT, ask).await.map_err(silent)??;
    let now = app.handle.now();
    let registry = Registry::new();
    let opts = |name: &str, help: &str| Opts::new(name, help).const_label("tenant", &**tenant);
    let gauge = |name: &str, help: &str, value: u64| {
        registered(&registry, IntGauge::with_opts(opts(name, help))).set(whole(value));
    };
    gauge("lessor_queue_length", "Tasks that wait.", depths.iter().map(|depth| depth.waiting).sum());
    gauge("lessor_active_tasks", "Tasks that are leased.", depths.iter().map(|depth| depth.leased).sum());
    gauge("lessor_open_tasks", "Tasks that wait or are leased.", usage.open_tasks as u64);
    gauge("lessor_registered_workers", "Workers that are registered.", workers);
    gauge("lessor_state_bytes", "Memory for tasks in use.", usage.bytes as u64);
    gauge("lessor_queues", "Queues.", usage.queues as u64);
    let depth = opts("lessor_queue_depth", "Tasks that wait, by queue.");
    let depth_by_queue = registered(&registry, IntGaugeVec::new(depth, &["queue"]));
    let age = opts(
        "lessor_queue_oldest_age_seconds",
        "Age of the oldest task that could be leased, by queue; 0 without one.",
    );
    let age_by_queue = registered(&registry, GaugeVec::new(age, &["queue"]));
    for (name, depth) in names.iter().map(String::as_str).chain([OTHERS]).zip(&depths) {
        let age_ms = depth.oldest_waiting.map_or(0, |oldest| now.since_ms(oldest));
        depth_by_queue.with_label_values(&[name]).set(whole(depth.waiting));
        age_by_queue.with_label_values(&[name]).set(age_ms as f64 / 1_000.0);
    }
    Ok(registry)
}
