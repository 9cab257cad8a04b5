//! Replay: every record from a position to the end, in order, with every check.
//!
//! Memory is bounded by one frame. Whatever does not verify, or does not follow what stands before it, ends
//! the replay with the place and the positions at risk; nothing is ever skipped.

use super::{
    error::{Damage, Error, ReplayError},
    scan::{Scanner, Step},
    shared::{Segment, Shared},
};
use crate::{Position, batch::split_body};

pub(super) const BAD_LENGTHS: &str = "the lengths of a frame's records do not add up";
pub(super) const NO_JOINT: &str = "the next segment does not follow the last frame of this one";
pub(super) const LATE_JOINT: &str = "the next segment starts within a frame of this one";

/// Calls `visit` with each durable record at or after `from`.
pub(super) fn replay<E>(
    shared: &Shared,
    from: Position,
    mut visit: impl FnMut(Position, &[u8]) -> Result<(), E>,
) -> Result<(), ReplayError<E>> {
    let segments = shared.segments();
    let end = shared.next();
    let start = segments.partition_point(|segment| segment.header.first <= from).saturating_sub(1);
    if segments[start].header.first > from && from < end {
        let segment = &segments[start];
        return Err(Error::Damaged(Damage {
            file: segment.name.clone(),
            offset: 0,
            what: "the log before this segment is trimmed",
            from,
            to: Some(Position(segment.header.first.0 - 1)),
        })
        .into());
    }
    let mut body = Vec::new();
    for (at, segment) in segments.iter().enumerate().skip(start) {
        let mut scanner = Scanner::new(segment);
        let bound = segments.get(at + 1).map(|next| (next.header.first, next.header.chain));
        while scanner.expected() < bound.map_or(end, |(first, _)| first) {
            let header = match scanner.step().map_err(Error::from)? {
                Step::Frame(header) => header,
                other => {
                    return Err(
                        refusal(segment, &scanner, other, bound.map_or(end, |(first, _)| first)).into()
                    );
                }
            };
            if header.next() <= from {
                continue;
            }
            header.unpack(scanner.frame(&header), &mut body);
            for (position, record) in (header.first.0..).map(Position).zip(split_body(&body, header.count)) {
                let Some(record) = record else {
                    let what = BAD_LENGTHS;
                    return Err(damage(segment, &scanner, what, header.first, header.next()).into());
                };
                if position >= from {
                    visit(position, record).map_err(|error| ReplayError::Visit(position, error))?;
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
            _ => {
                let what = NO_JOINT;
                return Err(damage(segment, scanner, what, scanner.expected(), first));
            }
        }
    }
    if scanner.expected() == first {
        return Ok(());
    }
    let what = LATE_JOINT;
    Err(damage(segment, scanner, what, first, scanner.expected()))
}

fn refusal(segment: &Segment, scanner: &Scanner, step: Step, bound: Position) -> Error {
    match fault_of(step) {
        Ok(what) => damage(segment, scanner, what, scanner.expected(), bound),
        Err(found) => Error::NewerVersion { file: segment.name.clone(), found },
    }
}

/// What is wrong with a place where a durable frame should be, or the newer version that it has.
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
    Error::Damaged(Damage {
        file: segment.name.clone(),
        offset: scanner.offset(),
        what,
        from,
        to: Some(Position(next.0.saturating_sub(1).max(from.0))),
    })
}
