//! The names in a data directory.
//!
//! Positions are written with 20 digits, so that names sort as positions do.

use crate::Position;

pub(super) const IDENTITY: &str = "identity";
pub(super) const IDENTITY_TEMP: &str = "identity.tmp";
pub(super) const LOCK: &str = "LOCK";
pub(super) const RESERVE: &str = "reserve";
pub(super) const RESERVE_TEMP: &str = "reserve.tmp";
pub(super) const SEGMENT_TEMP: &str = "segment.tmp";
pub(super) const SNAPSHOT_TEMP: &str = "snapshot.tmp";
/// Made by mkfs at the top of a fresh volume; it makes the directory neither ours nor another's.
const LOST_AND_FOUND: &str = "lost+found";

const DIGITS: usize = 20;

/// What a name in the directory stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Name {
    Identity,
    Lock,
    Reserve,
    /// Left over from an interrupted write; removed at start.
    Temp,
    Segment(Position),
    /// `begin` and `end` of a snapshot.
    Snapshot(Position, Position),
    /// Harmless in every directory.
    Ignored,
    /// Not the ledger's. It is left alone.
    Foreign,
}

impl Name {
    pub(super) fn parse(name: &str) -> Self {
        match name {
            IDENTITY => return Self::Identity,
            LOCK => return Self::Lock,
            RESERVE => return Self::Reserve,
            IDENTITY_TEMP | RESERVE_TEMP | SEGMENT_TEMP | SNAPSHOT_TEMP => return Self::Temp,
            LOST_AND_FOUND => return Self::Ignored,
            _ => {}
        }
        if let Some(first) = name.strip_prefix("segment-").and_then(position) {
            return Self::Segment(first);
        }
        let pair = name.strip_prefix("snapshot-").and_then(|rest| rest.split_once('-'));
        match pair.and_then(|(begin, end)| Some((position(begin)?, position(end)?))) {
            Some((begin, end)) => Self::Snapshot(begin, end),
            None => Self::Foreign,
        }
    }
}

pub(super) fn segment(first: Position) -> String {
    format!("segment-{:020}", first.0)
}

pub(super) fn snapshot(begin: Position, end: Position) -> String {
    format!("snapshot-{:020}-{:020}", begin.0, end.0)
}

fn position(digits: &str) -> Option<Position> {
    let whole = digits.len() == DIGITS && digits.bytes().all(|digit| digit.is_ascii_digit());
    whole.then(|| digits.parse().ok().map(Position)).flatten()
}
