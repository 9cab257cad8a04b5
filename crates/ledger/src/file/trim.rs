//! Trimming: removes snapshots and history that nothing needs any more.
//!
//! Two snapshots stay, and every segment with a record after the `begin` of the older one or with a record that a hold
//! protects. The directory is synced after each removal, oldest first, so no crash can leave a gap: a gap is always
//! damage (D13, D19).

use std::sync::{Arc, atomic::Ordering};

use disk::remove_if_present;

use super::{
    error::Fault,
    options::Options,
    rules,
    shared::{Segment, Shared},
};
use crate::Position;

/// How many snapshots stay.
pub const SNAPSHOTS_KEPT: usize = 2;

/// Removes files. Blocks; holds nothing that an append needs.
pub struct TrimJob {
    shared: Arc<Shared>,
    snapshots: Vec<String>,
    segments: Vec<Arc<Segment>>,
}

impl TrimJob {
    /// Decides what to remove. `None` when there is nothing to do or a job is under way.
    pub(super) fn plan(shared: &Arc<Shared>, options: &Options, now_ms: u64) -> Option<Self> {
        let kept = shared.snapshots().clone();
        let floor = shared.holds.trim_limit(rules::trim_floor(&kept)?);
        let surplus = &kept[..kept.len() - SNAPSHOTS_KEPT];
        let snapshots: Vec<_> = surplus.iter().map(|snapshot| snapshot.name.clone()).collect();
        let segments = history_to_drop(shared, options, floor, now_ms);
        let idle = snapshots.is_empty() && segments.is_empty();
        if idle || shared.trim_in_work.swap(true, Ordering::AcqRel) {
            return None;
        }
        Some(Self { shared: shared.clone(), snapshots, segments })
    }

    /// Returns the number of segments removed. What a failure leaves is removed by a later job.
    pub fn run(self) -> Result<usize, Fault> {
        for name in &self.snapshots {
            self.remove(name)?;
            self.shared.snapshots().retain(|snapshot| snapshot.name != *name);
        }
        for segment in &self.segments {
            self.remove(&segment.name)?;
            self.shared.forget_segment(segment.header.first);
        }
        Ok(self.segments.len())
    }

    fn remove(&self, name: &str) -> Result<(), Fault> {
        remove_if_present(&*self.shared.disk, name).map_err(Fault::of("remove", name))?;
        self.shared.disk.sync_dir().map_err(Fault::of("sync the directory of", name))
    }
}

impl Drop for TrimJob {
    fn drop(&mut self) {
        self.shared.trim_in_work.store(false, Ordering::Release);
    }
}

fn history_to_drop(shared: &Shared, options: &Options, floor: Position, now_ms: u64) -> Vec<Arc<Segment>> {
    let segments = shared.segments();
    // A segment ends where the next one starts, in positions and in time.
    let covered: Vec<_> =
        segments.windows(2).take_while(|pair| pair[1].header.first.0 <= floor.0.saturating_add(1)).collect();
    let mut history_bytes: u64 = covered.iter().map(|pair| pair[0].bytes).sum();
    let mut dropped = Vec::new();
    for pair in covered {
        let age_ms = now_ms.saturating_sub(pair[1].header.time_ms);
        if age_ms <= options.history_max_age_ms && history_bytes <= options.history_max_bytes {
            break;
        }
        history_bytes -= pair[0].bytes;
        dropped.push(pair[0].clone());
    }
    dropped
}
