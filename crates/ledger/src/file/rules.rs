//! Named rules of the file backend, and its only file that asks for injected bugs.
//!
//! Each rule states what is right. Where a test can inject a bug, the rule gives the wrong answer instead; every caller
//! reads as if there were none.

use std::io;

use authority::Position;
use authority::injected_bug::{InjectedBug, is};
use disk::File;

use super::frame::Soundness;
use super::trim::SNAPSHOTS_KEPT;
use crate::SnapshotInfo;

/// A failed sync is final: the page cache may have marked the lost pages clean.
pub(super) fn sync_once(file: &dyn File) -> io::Result<()> {
    match file.sync_data() {
        Err(_) if is(InjectedBug::FailedSyncRetried) => file.sync_data(),
        synced => synced,
    }
}

/// A frame counts only when its checksum is right.
pub(super) fn judged(found: Soundness) -> Soundness {
    match found {
        Soundness::Incomplete if is(InjectedBug::TornFrameApplied) => Soundness::Sound,
        _ if is(InjectedBug::ChecksumIgnored) => Soundness::Sound,
        found => found,
    }
}

/// No frame is skipped.
pub(super) fn is_skipped(found: Soundness) -> bool {
    found == Soundness::Damaged && is(InjectedBug::DamagedFrameSkipped)
}

/// Only records before the oldest snapshot that stays may be trimmed. `None` when there are too few snapshots.
pub(super) fn trim_floor(snapshots: &[SnapshotInfo]) -> Option<Position> {
    let oldest_kept = snapshots.len().checked_sub(SNAPSHOTS_KEPT)?;
    let at = if is(InjectedBug::TrimmedTooFar) { snapshots.len() - 1 } else { oldest_kept };
    Some(snapshots[at].begin)
}
