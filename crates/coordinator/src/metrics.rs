//! Metrics of the coordinator: atomics that the writer adds to once a batch is durable or an answer is sent. A scrape
//! reads them without stopping the writer.
//!
//! Labels come from fixed sets that are written here, so no stranger's words become one (X20).

use std::time::Duration;

use authority::command::{RedriveAnswer, Refusal, SubmitAnswer, Verdict};
use authority::{Answer, DeadReason};
use prometheus::{
    Histogram, HistogramOpts, IntCounter, IntCounterVec, IntGauge, Opts, Registry, exponential_buckets,
};

use crate::batch_stats::BatchStats;
use crate::request::Reply;

/// From a millisecond to about nine hours.
const TASK_BUCKETS: (f64, f64, usize) = (0.001, 4.0, 13);
/// From 50 microseconds to about three seconds.
const SYNC_BUCKETS: (f64, f64, usize) = (0.000_05, 2.0, 17);
/// Up to 16,384 records, and from 512 bytes to 8 MiB.
const RECORD_BUCKETS: (f64, f64, usize) = (1.0, 4.0, 8);
const BYTE_BUCKETS: (f64, f64, usize) = (512.0, 4.0, 8);

/// Defines the metrics: each with its type and how it is made.
macro_rules! define_metrics {
    ($($field:ident: $Type:ident = $make:ident($($argument:expr),*);)*) => {
        /// Cheap to clone: clones count together.
        #[derive(Clone, Debug)]
        pub struct Metrics { $($field: $Type,)* }

        impl Metrics {
            fn new() -> Metrics {
                Metrics { $($field: $make($($argument),*),)* }
            }

            /// Adds the metrics to a registry. A registry takes them once.
            pub fn register(&self, registry: &Registry) -> prometheus::Result<()> {
                $(registry.register(Box::new(self.$field.clone()))?;)*
                Ok(())
            }
        }
    };
}

define_metrics! {
    submitted: IntCounter = counter("lessor_submitted_tasks_total", "Tasks that were submitted.");
    completed: IntCounter = counter("lessor_completed_tasks_total", "Tasks that ended COMPLETED.");
    failed: IntCounter = counter("lessor_failed_tasks_total", "Tasks that ended FAILED.");
    retried: IntCounter =
        counter("lessor_retried_attempts_total", "Attempts that failed and whose task waits for the next one.");
    dead: IntCounterVec = counters("lessor_dead_tasks_total", "Tasks that ended DEAD, by reason.", "reason");
    granted: IntCounter = counter("lessor_granted_leases_total", "Leases that were granted.");
    extended: IntCounter = counter("lessor_extended_leases_total", "Extensions of leases that were recorded.");
    released: IntCounter = counter("lessor_released_leases_total", "Leases that were given back.");
    expired: IntCounterVec = counters("lessor_expired_leases_total", "Leases that expired, by cause.", "cause");
    verdicts: IntCounterVec = counters("lessor_verdicts_total", "Answers to reports, by verdict.", "verdict");
    limited_tasks: IntCounter = limited_counter("open_tasks");
    limited_memory: IntCounter = limited_counter("state_mib");
    queue_time: Histogram = histogram(
        "lessor_queue_time_seconds", "How long tasks could have been leased before they were.", TASK_BUCKETS
    );
    execution_time: Histogram = histogram(
        "lessor_execution_time_seconds", "Time from a lease to the report that was accepted on it.", TASK_BUCKETS
    );
    sync: Histogram =
        histogram("lessor_ledger_sync_seconds", "Time to write a batch of records and to sync it.", SYNC_BUCKETS);
    batch_records: Histogram = histogram("lessor_ledger_batch_records", "Records in a batch.", RECORD_BUCKETS);
    batch_bytes: Histogram = histogram("lessor_ledger_batch_bytes", "Size of a batch.", BYTE_BUCKETS);
    fed_standbys: IntGauge =
        gauge("lessor_fed_standbys", "Standbys that receive every batch from this node; 0 if it is not the owner.");
    forked: IntGauge = gauge(
        "lessor_ledger_forked", "1 when the database has another history than this node, which then owns nothing."
    );
}

impl Default for Metrics {
    fn default() -> Metrics {
        let metrics = Metrics::new();
        // What has not happened yet is shown as zero, so that its first time is seen as a change.
        DeadReason::ALL.iter().for_each(|reason| drop(metrics.dead.with_label_values(&[reason.name()])));
        for cause in ["silence", "timeout"] {
            metrics.expired.with_label_values(&[cause]);
        }
        for verdict in ["COMMITTED", "CANCELLED", "REJECTED"] {
            metrics.verdicts.with_label_values(&[verdict]);
        }
        metrics
    }
}

impl Metrics {
    /// A batch is durable.
    pub(crate) fn batch(&self, bytes: usize, took: Duration, stats: &BatchStats) {
        self.sync.observe(took.as_secs_f64());
        self.batch_bytes.observe(bytes as f64);
        self.batch_records.observe(stats.records as f64);
        self.submitted.inc_by(stats.submitted);
        self.completed.inc_by(stats.completed);
        self.failed.inc_by(stats.failed);
        self.retried.inc_by(stats.retried);
        self.granted.inc_by(stats.granted);
        self.extended.inc_by(stats.extended);
        self.released.inc_by(stats.released);
        add(&self.expired, "silence", stats.expired_by_silence);
        add(&self.expired, "timeout", stats.expired_by_timeout);
        add(&self.expired, "worker_lost", stats.expired_by_worker_loss);
        for (reason, count) in DeadReason::ALL.iter().zip(stats.dead) {
            add(&self.dead, reason.name(), count);
        }
        stats.waited_ms.iter().for_each(|ms| self.queue_time.observe(seconds(*ms)));
        stats.ran_ms.iter().for_each(|ms| self.execution_time.observe(seconds(*ms)));
    }

    /// How many standbys receive the batches of this node.
    pub fn set_fed_standbys(&self, standbys: usize) {
        self.fed_standbys.set(standbys as i64);
    }

    /// The storage has another history than this node.
    pub fn set_forked(&self) {
        self.forked.set(1);
    }

    /// An answer is out.
    pub(crate) fn answered(&self, reply: &Reply) {
        if let Reply::Decided(answers) = reply {
            answers.iter().for_each(|answer| self.count(answer));
        }
    }

    /// How long tasks waited for their lease since the start, on average, in seconds.
    pub fn avg_queue_time_s(&self) -> f64 {
        average_s(&self.queue_time)
    }

    /// The average time from a lease to its accepted report since the start, in seconds.
    pub fn avg_execution_time_s(&self) -> f64 {
        average_s(&self.execution_time)
    }

    fn count(&self, answer: &Answer) {
        match answer {
            Answer::Reported(Verdict::Committed(_)) => add(&self.verdicts, "COMMITTED", 1),
            Answer::Reported(Verdict::Cancelled) => add(&self.verdicts, "CANCELLED", 1),
            Answer::Reported(Verdict::Rejected(_)) => add(&self.verdicts, "REJECTED", 1),
            Answer::Submitted(SubmitAnswer::Refused(why)) | Answer::Redriven(RedriveAnswer::Refused(why)) => {
                match why {
                    Refusal::TenantTasks { .. } => self.limited_tasks.inc(),
                    Refusal::TenantBytes { .. } => self.limited_memory.inc(),
                    _ => {}
                }
            }
            _ => {}
        }
    }
}

/// What was refused because of one limit of a tenant. Each limit has a counter of its own where it is decided.
pub fn limited_counter(limit: &str) -> IntCounter {
    let opts = Opts::new("lessor_limited_total", "Requests that a limit of their tenant refused, by limit.");
    IntCounter::with_opts(opts.const_label("limit", limit)).expect("the names are written here")
}

/// Most batches have nothing to add to most of them.
fn add(counters: &IntCounterVec, label: &str, count: u64) {
    if count > 0 {
        counters.with_label_values(&[label]).inc_by(count);
    }
}

/// 0 before the first sample.
fn average_s(seconds: &Histogram) -> f64 {
    match seconds.get_sample_count() {
        0 => 0.0,
        count => seconds.get_sample_sum() / count as f64,
    }
}

fn seconds(ms: u64) -> f64 {
    Duration::from_millis(ms).as_secs_f64()
}

fn counter(name: &str, help: &str) -> IntCounter {
    IntCounter::new(name, help).expect("the name is written here and is a good one")
}

fn gauge(name: &str, help: &str) -> IntGauge {
    IntGauge::new(name, help).expect("the name is written here and is a good one")
}

fn counters(name: &str, help: &str, label: &str) -> IntCounterVec {
    IntCounterVec::new(Opts::new(name, help), &[label]).expect("the names are written here and are good ones")
}

fn histogram(name: &str, help: &str, (start, factor, count): (f64, f64, usize)) -> Histogram {
    let buckets = exponential_buckets(start, factor, count).expect("the buckets are written here and grow");
    Histogram::with_opts(HistogramOpts::new(name, help).buckets(buckets))
        .expect("the name is written here and is a good one")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s3_57_every_figure_has_a_name_of_its_own_and_begins_at_zero() {
        let (metrics, registry) = (Metrics::default(), Registry::new());
        metrics.register(&registry).unwrap();
        assert_eq!(registry.gather().len(), 18);
        assert!(metrics.register(&registry).is_err(), "nothing is shown twice");
        let stats = BatchStats {
            records: 3,
            submitted: 2,
            dead: [0, 0, 1, 0, 0],
            waited_ms: vec![5],
            ..BatchStats::default()
        };
        metrics.batch(700, Duration::from_millis(1), &stats);
        assert_eq!((metrics.submitted.get(), metrics.completed.get()), (2, 0));
        assert_eq!(metrics.dead.with_label_values(&[DeadReason::ALL[2].name()]).get(), 1);
        assert_eq!((metrics.queue_time.get_sample_count(), metrics.sync.get_sample_count()), (1, 1));
    }
}
