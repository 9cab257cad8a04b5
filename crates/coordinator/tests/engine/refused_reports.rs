//! Reports that are refused write lines to the log, and not as many as somebody likes.

use std::sync::atomic::{AtomicUsize, Ordering};

use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use super::*;

/// Counts the lines about reports that are refused.
#[derive(Clone, Default)]
struct Lines(Arc<AtomicUsize>);

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().ends_with("engine::decide")
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// A worker could write a line with each of its reports, as fast as it could send them.
#[test]
fn a3_refused_reports_write_a_bounded_number_of_lines() {
    let lines = Lines::default();
    let mut engine = engine();
    engine.receive(submit_request(submit(1, "q")), Time(1), caller(1));
    engine.receive(poll("w", 0), Time(2), caller(2));
    sync(&mut engine);
    let grant = grants(&answers(&mut engine)[1].1).remove(0);
    let mut report = completion("w", &grant);
    report.lease.fencing_token.0 += 1;
    tracing::subscriber::with_default(lines.clone(), || {
        for _ in 0..1_000 {
            engine.receive(complete(report.clone()), Time(3_000), caller(3));
        }
        assert_eq!(lines.0.load(Ordering::Relaxed), 100);
        engine.receive(complete(report.clone()), Time(4_000), caller(3));
        assert_eq!(lines.0.load(Ordering::Relaxed), 101, "the next second has its own");
    });
}
