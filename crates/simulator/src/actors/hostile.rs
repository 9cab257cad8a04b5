//! A hostile actor: takes leases that were granted to others and uses them late, twice, with another report, under
//! another name, for another tenant, or makes them up.

use std::sync::Arc;

use authority::command::{ExtendLease, ReleaseLease, ReportCompletion, ReportFailure, StartAttempt};
use authority::event::ReleaseCause;
use authority::{Category, Command, LeaseRef, Position, TaskError};
use coordinator::{Batch, BatchItem, Reply, Request};

use super::{Actor, Out, digest, scope};

/// The most items of one batch.
const MAX_ITEMS: u64 = 3;

pub(crate) struct Hostile {
    next: u64,
    /// The items of the next batch.
    items: Batch,
}

impl Hostile {
    pub(crate) fn new() -> Hostile {
        Hostile { next: 0, items: Batch::new() }
    }

    /// A lease of anybody, more often a new one; sometimes changed so that it was never granted.
    fn lease(&self, out: &mut Out) -> Option<LeaseRef> {
        let back = if out.rng.chance(600) { out.rng.below(4) } else { out.rng.below(60) };
        let mut lease = out.issued.values().rev().nth(back as usize)?.clone();
        match out.rng.below(10) {
            0 => lease.worker = Arc::from("mallory"),
            1 => lease.scope = scope(u64::from(*lease.scope.tenant == *"acme")),
            2 => lease.fencing_token = Position(lease.fencing_token.0.saturating_add(out.rng.between(1, 3))),
            3 => lease.attempt = lease.attempt.wrapping_add(out.rng.between(0, 2) as u32).wrapping_sub(1),
            // As it was granted: a twin with the same name, or a report from long ago.
            _ => {}
        }
        Some(lease)
    }
}

impl Hostile {
    /// What has come together, when it is enough.
    fn batch(&mut self, item: BatchItem, number: u64) -> Option<Request> {
        self.items.push(item);
        let enough = self.items.len() as u64 > number % MAX_ITEMS;
        enough.then(|| Request::Decide(std::mem::take(&mut self.items)))
    }
}

impl Actor for Hostile {
    fn wake(&mut self, timer: u64, out: &mut Out) {
        if out.calm {
            return;
        }
        out.timers.push((out.rng.between(20, 1_200), timer));
        let Some(lease) = self.lease(out) else { return };
        let number = out.rng.below(1_000);
        let item = match out.rng.below(8) {
            0..=2 => BatchItem::Command(Command::ReportCompletion(ReportCompletion {
                lease,
                digest: digest(1, number),
                result: Arc::from(number.to_be_bytes().as_slice()),
                details: None,
            })),
            3 => BatchItem::Command(Command::ReportFailure(ReportFailure {
                lease,
                digest: digest(2, number),
                error: TaskError {
                    category: Category::Timeout,
                    code: None,
                    message: Arc::from("so they say"),
                },
                retryable: Some(true),
                draw: u32::MAX,
                details: None,
            })),
            4 => {
                BatchItem::Command(Command::ReleaseLease(ReleaseLease { lease, cause: ReleaseCause::Worker }))
            }
            5 => {
                let started_by = Arc::from(if out.rng.chance(500) { "mallory" } else { "pod-1" });
                BatchItem::Command(Command::StartAttempt(StartAttempt { lease, started_by }))
            }
            _ => BatchItem::Heartbeat { extend: ExtendLease { lease }, progress: None },
        };
        // Half of it alone, the other half in batches.
        let request = if number.is_multiple_of(2) {
            self.batch(item, number)
        } else {
            Some(Request::Decide([item].into_iter().collect()))
        };
        let Some(request) = request else { return };
        self.next += 1;
        out.calls.push((self.next, request, 300));
    }

    fn answered(&mut self, _call: u64, _reply: Reply, _out: &mut Out) {}

    fn unanswered(&mut self, _call: u64, _out: &mut Out) {}
}
