//! The metrics of the server, for Prometheus (S3-57, S3-58). The figures of all tenants together are for whoever may act for
//! all of them; others see those of their own tenant.
//!
//! Counting costs an atomic; the state of the coordinator is read at a scrape. Labels come from fixed sets: clients choose
//! the names of queues, so only those that the operator names become labels, and all other queues share one (X20).

mod counted_blobs;
mod scrape;
mod tenant;

use std::sync::Arc;

use blobs::Blobs;
use coordinator::limited_counter;
use jiff::Timestamp;
use prometheus::core::Collector;
use prometheus::{Gauge, GaugeVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::io::{InspectReader, InspectWriter};

use crate::convert::Limit;
use counted_blobs::CountedBlobs;
pub(crate) use scrape::serve;

/// Most queues that an operator may name: each adds two series.
pub const MAX_NAMED_QUEUES: usize = 100;
/// Where remote executions wait is always of interest.
const ALWAYS_NAMED: &str = execution::EXECUTION_QUEUE;
/// What all queues without a label of their own are shown as.
const OTHERS: &str = "other";

/// The limits of tenants that are decided here; the coordinator counts the others.
const LIMITED: [Limit; 6] =
    [Limit::Requests, Limit::Connections, Limit::Polls, Limit::Streams, Limit::Executions, Limit::BlobBytes];

/// Cheap to clone: clones count together.
#[derive(Clone, Debug)]
pub struct Metrics(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    registry: Registry,
    /// The queues that have a label.
    named: Arc<[String]>,
    /// [`scrape::GAUGES`], in their order.
    gauges: Vec<IntGauge>,
    avg_queue_time: Gauge,
    avg_execution_time: Gauge,
    clock_skew: Gauge,
    worker_clock_skew: Gauge,
    depth: IntGaugeVec,
    oldest_age: GaugeVec,
    connections: IntGauge,
    accepted: IntCounter,
    received: IntCounter,
    sent: IntCounter,
    tls_failures: IntCounter,
    tls_reload_failures: IntCounter,
    /// Without a series until there is a certificate.
    tls_expiry: IntGaugeVec,
    /// [`LIMITED`], in their order.
    limited: [IntCounter; LIMITED.len()],
    content_lookups: IntCounterVec,
    content_read: IntCounter,
    content_written: IntCounter,
    action_cache_lookups: IntCounterVec,
    http_cache_lookups: IntCounterVec,
    redis: RedisMetrics,
}

impl Default for Metrics {
    fn default() -> Metrics {
        Metrics::new(Vec::new())
    }
}

impl Metrics {
    /// Tells these queues apart from all others, and from each other.
    pub fn new(mut named: Vec<String>) -> Metrics {
        named.push(ALWAYS_NAMED.to_owned());
        named.retain(|name| name != OTHERS);
        named.sort_unstable();
        named.dedup();
        named.truncate(MAX_NAMED_QUEUES);
        let registry = Registry::new();
        let gauge = |name: &str, help: &str| registered(&registry, IntGauge::new(name, help));
        let counter = |name: &str, help: &str| registered(&registry, IntCounter::new(name, help));
        let lookups = |name: &str, help: &str| {
            let lookups = registered(&registry, IntCounterVec::new(Opts::new(name, help), &["result"]));
            // Both results begin at zero.
            ["hit", "miss"].iter().for_each(|result| drop(lookups.with_label_values(&[result])));
            lookups
        };
        let real = |name: &str, help: &str| registered(&registry, Gauge::new(name, help));
        let depth = Opts::new("lessor_queue_depth", "Tasks that wait, by queue.");
        let oldest_age = Opts::new(
            "lessor_queue_oldest_age_seconds",
            "Age of the oldest task that could be leased, by queue; 0 without one.",
        );
        let tls_expiry = Opts::new(
            "lessor_tls_certificate_expiry_seconds",
            "When the TLS certificate in use expires, in seconds since 1970.",
        );
        Metrics(Arc::new(Inner {
            named: named.into(),
            gauges: scrape::GAUGES.iter().map(|(name, help, _)| gauge(name, help)).collect(),
            avg_queue_time: real(
                "lessor_avg_queue_time_seconds",
                "How long tasks could have been leased before they were, on average since the start.",
            ),
            avg_execution_time: real(
                "lessor_avg_execution_time_seconds",
                "Time from a lease to the report that was accepted on it, on average since the start.",
            ),
            clock_skew: real(
                "lessor_clock_skew_seconds",
                "Wall clock minus the clock of the coordinator, by which everything is decided.",
            ),
            worker_clock_skew: real(
                "lessor_worker_clock_skew_seconds",
                "Time that a worker gave in the newest callback with one, minus the time of its receipt.",
            ),
            depth: registered(&registry, IntGaugeVec::new(depth, &["queue"])),
            oldest_age: registered(&registry, GaugeVec::new(oldest_age, &["queue"])),
            connections: gauge("lessor_connections", "Open connections."),
            accepted: counter("lessor_accepted_connections_total", "Connections that were accepted."),
            received: counter("lessor_received_bytes_total", "Bytes that came over connections."),
            sent: counter("lessor_sent_bytes_total", "Bytes that went over connections."),
            tls_failures: counter(
                "lessor_tls_handshake_failures_total",
                "TLS handshakes that failed or took too long.",
            ),
            tls_reload_failures: counter(
                "lessor_tls_reload_failures_total",
                "Replacements of the TLS files that were refused.",
            ),
            tls_expiry: registered(&registry, IntGaugeVec::new(tls_expiry, &[])),
            limited: LIMITED.map(|limit| registered(&registry, Ok(limited_counter(limit.name())))),
            content_lookups: lookups(
                "lessor_content_lookups_total",
                "Blobs that were looked for, by result.",
            ),
            content_read: counter("lessor_content_read_bytes_total", "Bytes of blobs that were asked for."),
            content_written: counter(
                "lessor_content_written_bytes_total",
                "Bytes of blobs that were stored.",
            ),
            action_cache_lookups: lookups(
                "lessor_action_cache_lookups_total",
                "Results of actions that were looked for, by result.",
            ),
            http_cache_lookups: lookups(
                "lessor_http_cache_lookups_total",
                "Entries of the HTTP cache that were looked for, by result.",
            ),
            redis: RedisMetrics {
                connected: gauge("lessor_redis_connected", "Whether Redis answers; 0 also without Redis."),
                pending: gauge(
                    "lessor_redis_pending_changes",
                    "Entries that are to be added to streams of Redis or removed from them.",
                ),
                added: counter("lessor_redis_added_entries_total", "Entries that were added to streams."),
                removed: counter(
                    "lessor_redis_removed_entries_total",
                    "Entries that were removed from streams.",
                ),
                reconciled: counter(
                    "lessor_redis_reconciled_streams_total",
                    "Streams that were compared with the open tasks and corrected, as after a start.",
                ),
                failures: counter(
                    "lessor_redis_failures_total",
                    "Connections to Redis that failed or were lost.",
                ),
            },
            registry,
        }))
    }

    /// The metrics of Redis Streams.
    pub(crate) fn redis(&self) -> &RedisMetrics {
        &self.0.redis
    }

    /// Shows what the coordinator counts as well. Once, when the server is made.
    pub(crate) fn show(&self, coordinator: &coordinator::Metrics) {
        if let Err(error) = coordinator.register(&self.0.registry) {
            tracing::error!(%error, "what the coordinator counts is not shown");
        }
    }

    /// The same store, with its lookups and bytes counted.
    pub fn blobs(&self, inner: Arc<dyn Blobs>) -> Arc<dyn Blobs> {
        Arc::new(CountedBlobs { inner, metrics: self.clone() })
    }

    /// The bytes of blobs that were asked for.
    #[cfg(test)]
    pub(crate) fn content_read(&self) -> u64 {
        self.0.content_read.get()
    }

    /// A result of an action was looked for.
    pub(crate) fn action_looked(&self, found: bool) {
        looked(&self.0.action_cache_lookups, usize::from(found), usize::from(!found));
    }

    /// An entry of the HTTP cache was looked for.
    pub(crate) fn http_cache_looked(&self, found: bool) {
        looked(&self.0.http_cache_lookups, usize::from(found), usize::from(!found));
    }

    /// The connections that are open.
    pub fn open_connections(&self) -> u64 {
        self.0.connections.get().max(0) as u64
    }

    /// Counts a connection as accepted, and as open until this is dropped.
    pub(crate) fn connection(&self) -> OpenConnection {
        self.0.accepted.inc();
        OpenConnection::new(self.clone())
    }

    /// The same bytes, counted.
    pub(crate) fn count_bytes<T: AsyncRead + AsyncWrite>(
        &self,
        io: T,
    ) -> impl AsyncRead + AsyncWrite + use<T> {
        let (sender, receiver) = (self.clone(), self.clone());
        let io = InspectWriter::new(io, move |sent: &[u8]| sender.0.sent.inc_by(sent.len() as u64));
        InspectReader::new(io, move |received: &[u8]| receiver.0.received.inc_by(received.len() as u64))
    }

    /// A worker gave the time of its own clock with something that was received at this time (C30).
    pub(crate) fn worker_clock(&self, said: Timestamp, received_at: Timestamp) {
        self.0.worker_clock_skew.set(said.duration_since(received_at).as_secs_f64());
    }

    /// A request was refused because its tenant is at a limit.
    pub(crate) fn limited(&self, limit: Limit) {
        if let Some(at) = LIMITED.iter().position(|counted| *counted == limit) {
            self.0.limited[at].inc();
        }
    }

    /// A TLS handshake failed.
    pub(crate) fn tls_handshake_failed(&self) {
        self.0.tls_failures.inc();
    }

    /// A replacement of the TLS files was refused.
    pub(crate) fn tls_reload_failed(&self) {
        self.0.tls_reload_failures.inc();
    }

    /// The TLS certificate that is in use from now on expires then.
    pub(crate) fn tls_certificate_expires(&self, unix_seconds: i64) {
        self.0.tls_expiry.with_label_values::<&str>(&[]).set(unix_seconds);
    }
}

#[derive(Debug)]
pub(crate) struct RedisMetrics {
    pub connected: IntGauge,
    pub pending: IntGauge,
    pub added: IntCounter,
    pub removed: IntCounter,
    pub reconciled: IntCounter,
    pub failures: IntCounter,
}

/// Counts a connection until it is dropped.
pub(crate) struct OpenConnection(Metrics);

impl OpenConnection {
    fn new(metrics: Metrics) -> OpenConnection {
        metrics.0.connections.inc();
        OpenConnection(metrics)
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.0.connections.dec();
    }
}

fn registered<M: Collector + Clone + 'static>(registry: &Registry, made: prometheus::Result<M>) -> M {
    let metric = made.expect("the names are written here and are good ones");
    registry.register(Box::new(metric.clone())).expect("each name is written here once");
    metric
}

fn looked(counters: &IntCounterVec, hits: usize, misses: usize) {
    for (result, count) in [("hit", hits), ("miss", misses)] {
        if count > 0 {
            counters.with_label_values(&[result]).inc_by(count as u64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn x20_only_queues_that_the_operator_names_are_told_apart() {
        let many = (0..1_000).map(|n| format!("q{n:04}")).chain(["other".to_owned(), "exec".to_owned()]);
        let metrics = Metrics::new(many.collect());
        assert_eq!(metrics.0.named.len(), MAX_NAMED_QUEUES);
        assert_eq!(&*metrics.0.named[0], "exec", "it stays among many");
        assert!(!metrics.0.named.iter().any(|name| name == OTHERS));
        assert_eq!(&*Metrics::default().0.named, ["exec"]);
    }
}
