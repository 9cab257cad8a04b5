//! Replay: every record from a position to the end, in order, with every check.
//!
//! Memory is bounded by one frame. A frame that does not verify or does not follow the frame before it ends the replay
//! with an error that names file, offset and positions at risk; nothing is skipped.

use super::{
    error::Error,
    scan::{Scanner, Step},
    shared::{Segment, Shared},
};
use crate::{Damage, Position, Visit, batch::split_body};

pub(super) const BAD_LENGTHS: &str = "the lengths of a frame's records do not add up";
pub(super) const NO_JOINT: &str = "the next segment does not follow the last frame of this one";
pub(super) const LATE_JOINT: &str = "the next segment starts within a frame of this one";

/// Calls `visit` with each durable record at or after `from`, until it breaks.
pub(super) fn replay(shared: &Shared, from: Position, visit: &mut Visit<'_>) -> Result<(), Error> {
    let segments = shared.segments();
    let end = shared.next();
    let start = segments.partition_point(|segment| segment.header.first <= from).saturating_sub(1);
    if segments[start].header.first > from && from < end {
        let segment = &segments[start];
        let to = Some(Position(segment.header.first.0 - 1));
        return Err(Damage::new(&segment.name, 0, "the log before this segment is trimmed", from, to).into());
    }
    let mut body = Vec::new();
    for (at, segment) in segments.iter().enumerate().skip(start) {
        let mut scanner = Scanner::new(segment);
        let bound = segments.get(at + 1).map(|next| (next.header.first, next.header.chain));
        let segment_end = bound.map_or(end, |(first, _)| first);
        while scanner.expected() < segment_end {
            let header = match scanner.step()? {
                Step::Frame(header) => header,
                other => return Err(refusal(segment, &scanner, other, segment_end)),
            };
            if header.next() <= from {
                continue;
            }
            header.unpack(scanner.frame(&header), &mut body);
            for (position, record) in (header.first.0..).map(Position).zip(split_body(&body, header.count)) {
                let Some(record) = record else {
                    return Err(damage(segment, &scanner, BAD_LENGTHS, header.first, header.next()));
                };
                if position >= from && visit(position, record).is_break() {
                    return Ok(());
                }
            }
            shared.set_replayed(Position(header.next().0 - 1));
        }
        if let Some((first, chain)) = bound {
            check_joint(segment, &mut scanner, first, chain)?;
        }
    }
    Ok(())
}

/// The end of a segment must be what the next one says it follows. Empty frames may stand in between.
fn check_joint(segment: &Segment, scanner: &mut Scanner, first: Position, chain: u32) -> Result<(), Error> {
    while scanner.chain() != chain {
        match scanner.step()? {
            Step::Frame(header) if header.count == 0 => {}
            _ => return Err(damage(segment, scanner, NO_JOINT, scanner.expected(), first)),
        }
    }
    if scanner.expected() == first {
        return Ok(());
    }
    Err(damage(segment, scanner, LATE_JOINT, first, scanner.expected()))
}

fn refusal(segment: &Segment, scanner: &Scanner, step: Step, bound: Position) -> Error {
    match fault_of(step) {
        Ok(what) => damage(segment, scanner, what, scanner.expected(), bound),
        Err(found) => Error::NewerVersion { file: segment.name.clone(), found },
    }
}

/// What is wrong at an offset where a durable frame should be, or the newer version that is there.
pub(super) fn fault_of(step: Step) -> Result<&'static str, u16> {
    match step {
        Step::NewerVersion(found) => Err(found),
        Step::Unverified { what } | Step::Misplaced { what } => Ok(what),
        Step::Stale(_) => Ok("a frame of an earlier position stands here"),
        Step::Incomplete(_) => Ok("sectors of a durable frame are blank"),
        Step::Frame(_) | Step::Full | Step::Blank => Ok("durable frames are missing"),
    }
}

fn damage(segment: &Segment, scanner: &Scanner, what: &'static str, from: Position, next: Position) -> Error {
    let to = Some(Position(next.0.saturating_sub(1).max(from.0)));
    Damage::new(&segment.name, scanner.offset(), what, from, to).into()
}
