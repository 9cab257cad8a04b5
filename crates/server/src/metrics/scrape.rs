//! GET /metrics.

use std::time::Duration;

use authority::Time;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use coordinator::engine::DiskSpace;
use coordinator::{Depth, Status, wall};
use prometheus::{Encoder, Registry, TextEncoder};
use tokio::time::error::Elapsed;
use tokio::time::timeout;

use super::{Metrics, OTHERS, tenant};
use crate::convert::{Code, Problem, Scoped, to_timestamp};
use crate::edge::auth::Caller;

/// How long the coordinator may take to say what waits and runs.
pub(super) const MAX_WAIT: Duration = Duration::from_secs(5);

/// All metrics in the text format of Prometheus, or those of the caller's tenant; an error while the coordinator does not
/// answer, never old figures.
pub(crate) async fn serve(Scoped { app, scope }: Scoped, caller: Caller) -> Result<Response, Problem> {
    if caller.identity().is_some_and(|identity| !identity.is_of_all_tenants()) {
        return text(&tenant::registry(&app, &scope.tenant).await?);
    }
    let metrics = &app.metrics;
    let ask = async {
        let depths = app.handle.depths(metrics.0.named.clone()).await?;
        let registered = app.handle.registered_count().await?;
        Ok::<_, Problem>((depths, app.handle.status().await?, registered))
    };
    let (depths, status, registered) = timeout(MAX_WAIT, ask).await.map_err(silent)??;
    let now = app.handle.now();
    metrics.set(&Snapshot { status, depths, registered }, now);
    metrics.0.avg_queue_time.set(app.handle.metrics().avg_queue_time_s());
    metrics.0.avg_execution_time.set(app.handle.metrics().avg_execution_time_s());
    metrics.0.clock_skew.set(to_timestamp(wall()).duration_since(to_timestamp(now)).as_secs_f64());
    text(&metrics.0.registry)
}

pub(super) fn silent(_: Elapsed) -> Problem {
    Problem::new(Code::NotServing, "the coordinator does not answer")
}

fn text(registry: &Registry) -> Result<Response, Problem> {
    let encoder = TextEncoder::new();
    let mut text = Vec::new();
    let encoded = encoder.encode(&registry.gather(), &mut text);
    encoded.map_err(|error| {
        tracing::error!(%error, "the metrics cannot be written");
        Problem::new(Code::Internal, "the metrics cannot be written")
    })?;
    Ok(([(CONTENT_TYPE, encoder.format_type().to_owned())], text).into_response())
}

/// The coordinator's state at a scrape.
pub(super) struct Snapshot {
    status: Status,
    depths: Vec<Depth>,
    registered: u64,
}

impl Snapshot {
    fn sum(&self, count: fn(&Depth) -> u64) -> u64 {
        self.depths.iter().map(count).sum()
    }
}

/// A name, a help text and the value.
type Gauge = (&'static str, &'static str, fn(&Snapshot) -> u64);

/// The gauges of the coordinator's state, which are set with each scrape.
pub(super) const GAUGES: [Gauge; 14] = [
    ("lessor_queue_length", "Tasks that wait, over all queues.", |at| at.sum(|depth| depth.waiting)),
    ("lessor_active_tasks", "Tasks that are leased, over all queues.", |at| at.sum(|depth| depth.leased)),
    ("lessor_registered_workers", "Workers that are registered.", |at| at.registered),
    ("lessor_kept_tasks", "Tasks that are kept, also those that are over.", |at| at.status.tasks as u64),
    ("lessor_state_bytes", "Memory for tasks in use.", |at| at.status.state_bytes as u64),
    ("lessor_state_limit_bytes", "Memory that tasks may use.", |at| at.status.max_state_bytes as u64),
    ("lessor_final_state_bytes", "Memory for tasks that final tasks use.", |at| at.status.final_bytes as u64),
    ("lessor_final_state_limit_bytes", "Memory that final tasks may use.", |at| {
        at.status.max_final_bytes as u64
    }),
    ("lessor_largest_tenant_state_bytes", "Memory for tasks that the tenant with most uses.", |at| {
        at.status.largest_tenant_bytes as u64
    }),
    ("lessor_queues", "Queues, over all tenants.", |at| at.status.queues as u64),
    ("lessor_tenants", "Tenants that have a queue.", |at| at.status.tenants as u64),
    ("lessor_waiting_polls", "Polls that wait for work.", |at| at.status.polls as u64),
    ("lessor_ledger_position", "Number of the newest record.", |at| at.status.position.0),
    ("lessor_disk_full", "1 while new work is refused for lack of disk space.", |at| {
        u64::from(at.status.disk_space != DiskSpace::Plenty)
    }),
];

impl Metrics {
    fn set(&self, snapshot: &Snapshot, now: Time) {
        for (gauge, (.., value)) in self.0.gauges.iter().zip(GAUGES) {
            gauge.set(whole(value(snapshot)));
        }
        let names = self.0.named.iter().map(String::as_str).chain([OTHERS]);
        for (name, depth) in names.zip(&snapshot.depths) {
            let age_ms = depth.oldest_waiting.map_or(0, |oldest| now.since_ms(oldest));
            self.0.depth.with_label_values(&[name]).set(whole(depth.waiting));
            self.0.oldest_age.with_label_values(&[name]).set(Duration::from_millis(age_ms).as_secs_f64());
        }
    }
}

pub(super) fn whole(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
