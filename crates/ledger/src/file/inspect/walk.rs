//! Visits all frames, over damage and up to the last frame that a running writer has finished.

use std::{ops::ControlFlow, sync::Arc};

use super::{Inspection, REREADS};
use crate::{
    Damage, InspectVisit, Inspected, Position, Seen, StoredBatch, Unfinished,
    batch::split_body,
    file::{
        error::{Error, Fault},
        frame::Header,
        names,
        open::read_segment,
        replay::{BAD_LENGTHS, LATE_JOINT, NO_JOINT, fault_of},
        scan::{LaterHeader, Scanner, Step},
        sealed::SealFault,
        shared::Segment,
        tail::{DAMAGED_SEAL, LOST_SUCCESSOR, read_seal},
    },
};

/// What must follow the last frame of a segment.
#[derive(Clone, Copy)]
enum Bound {
    /// The next segment: its first position and chain.
    Joint(Position, u32),
    /// A segment that is missing or unusable, which was reported before.
    Lost,
    /// Nothing: the log ends here, or a writer goes on.
    Open,
}

struct Walk<'a, 'v> {
    inspection: &'a Inspection,
    from: Position,
    visit: &'v mut InspectVisit<'v>,
    body: Vec<u8>,
    end: Inspected,
}

/// Visits every frame from the one that holds `from` to the end of the log, over damage to whatever can be read behind
/// it, until `visit` breaks.
pub(super) fn walk<'v>(
    inspection: &Inspection,
    from: Position,
    visit: &'v mut InspectVisit<'v>,
) -> Result<Inspected, Error> {
    let mut segments = inspection.segments.clone();
    let start = segments.partition_point(|segment| segment.header.first <= from).saturating_sub(1);
    let next = segments.get(start).map_or(Position(1), |segment| segment.header.first);
    let end = Inspected { next, ..Inspected::default() };
    let mut walk = Walk { inspection, from, visit, body: Vec::new(), end };
    let mut at = start;
    while let Some(segment) = segments.get(at).cloned() {
        let bound = match segments.get(at + 1) {
            None => walk.open_bound(&segment),
            Some(next) if next.header.previous == segment.header.first => {
                Bound::Joint(next.header.first, next.header.chain)
            }
            Some(_) => Bound::Lost,
        };
        if walk.segment(&segment, bound)?.is_break() {
            break;
        }
        if let Bound::Open = bound {
            match walk.successor(&segment)? {
                ControlFlow::Continue(Some(next)) => segments.push(Arc::new(next)),
                _ => break,
            }
        }
        at += 1;
    }
    Ok(walk.end)
}

impl Walk<'_, '_> {
    /// Whether a damaged segment stands behind the last sound one.
    fn open_bound(&self, last: &Segment) -> Bound {
        let behind = |damage: &Damage| damage.from > last.header.first && damage.to.is_none();
        if self.inspection.damages.iter().any(behind) { Bound::Lost } else { Bound::Open }
    }

    fn segment(&mut self, segment: &Segment, bound: Bound) -> Result<ControlFlow<()>, Error> {
        let mut scanner = Scanner::new(segment);
        loop {
            if let Bound::Joint(first, chain) = bound {
                if scanner.expected() == first && scanner.chain() == chain {
                    return self.check_seal(segment, first);
                }
                if scanner.expected() > first {
                    let to = Position(scanner.expected().0 - 1);
                    return Ok(self.damage(segment, scanner.offset(), LATE_JOINT, first, Some(to)));
                }
            }
            let offset = scanner.offset();
            match scanner.step()? {
                Step::Frame(header) => {
                    if self.frame(segment, offset, &scanner, &header).is_break() {
                        return Ok(ControlFlow::Break(()));
                    }
                }
                step => match self.not_a_frame(segment, &mut scanner, step, bound)? {
                    ControlFlow::Break(flow) => return Ok(flow),
                    ControlFlow::Continue(()) => {}
                },
            }
        }
    }

    fn frame(
        &mut self,
        segment: &Segment,
        offset: u64,
        scanner: &Scanner,
        header: &Header,
    ) -> ControlFlow<()> {
        self.end.next = header.next();
        if header.next() <= self.from {
            return ControlFlow::Continue(());
        }
        (self.visit)(Seen::Batch(StoredBatch {
            file: &segment.name,
            offset,
            bytes: header.frame_bytes() as u64,
            first: header.first,
            count: header.count,
            time_ms: header.time_ms,
        }))?;
        header.unpack(scanner.frame(header), &mut self.body);
        let records = split_body(&self.body, header.count);
        let mut unreadable = None;
        for (position, record) in (header.first.0..).map(Position).zip(records) {
            match record {
                Some(record) if position >= self.from => (self.visit)(Seen::Record(position, record))?,
                Some(_) => {}
                None => unreadable = Some(position),
            }
        }
        let Some(from) = unreadable else { return ControlFlow::Continue(()) };
        let to = Position(header.next().0.saturating_sub(1).max(from.0));
        self.damage(segment, offset, BAD_LENGTHS, from, Some(to))
    }

    /// Handles an offset without a whole frame. `Continue` when the scanner can go on from its offset; the value of
    /// `Break` says whether the walk goes on with the next segment.
    fn not_a_frame(
        &mut self,
        segment: &Segment,
        scanner: &mut Scanner,
        mut step: Step,
        bound: Bound,
    ) -> Result<ControlFlow<ControlFlow<()>>, Error> {
        let next_segment = Ok(ControlFlow::Break(ControlFlow::Continue(())));
        if let Bound::Open = bound
            && !matches!(step, Step::Blank | Step::Full)
            && self.read_again(segment, scanner, &mut step, REREADS)?
        {
            return Ok(ControlFlow::Continue(()));
        }
        let later = scanner.find_later()?;
        // The writer may have gone on between the two reads, and then the later frame is no sign of damage.
        if let (Bound::Open, Some(_)) = (bound, &later)
            && self.read_again(segment, scanner, &mut step, 1)?
        {
            return Ok(ControlFlow::Continue(()));
        }
        let file = || segment.name.clone();
        let what = fault_of(step).map_err(|found| Error::NewerVersion { file: file(), found })?;
        let (offset, from) = (scanner.offset(), scanner.expected());
        match later {
            Some(LaterHeader::NewerVersion(found)) => Err(Error::NewerVersion { file: file(), found }),
            Some(LaterHeader::Frame { header, offset: later }) => {
                let to = Position(header.first.0.saturating_sub(1).max(from.0));
                scanner.jump(&header, later);
                Ok(match self.damage(segment, offset, what, from, Some(to)) {
                    ControlFlow::Continue(()) => ControlFlow::Continue(()),
                    ControlFlow::Break(()) => ControlFlow::Break(ControlFlow::Break(())),
                })
            }
            None => match (bound, step) {
                (Bound::Open | Bound::Lost, Step::Blank | Step::Full) => next_segment,
                (Bound::Open, Step::Incomplete(_) | Step::Stale(_)) => {
                    self.end.unfinished = Some(Unfinished { file: file(), offset, first: from });
                    next_segment
                }
                (Bound::Joint(first, _), _) if from == first => {
                    Ok(ControlFlow::Break(self.damage(segment, offset, NO_JOINT, from, Some(first))))
                }
                (Bound::Joint(first, _), _) => {
                    let to = Some(Position(first.0.saturating_sub(1).max(from.0)));
                    Ok(ControlFlow::Break(self.damage(segment, offset, what, from, to)))
                }
                (Bound::Open | Bound::Lost, _) => {
                    Ok(ControlFlow::Break(self.damage(segment, offset, what, from, None)))
                }
            },
        }
    }

    /// Reads at the scanner's offset again, up to `rereads` times, and returns whether a whole frame is there now. The
    /// scanner has not moved, so the frame is still to be visited.
    fn read_again(
        &mut self,
        segment: &Segment,
        scanner: &mut Scanner,
        step: &mut Step,
        rereads: usize,
    ) -> Result<bool, Error> {
        for _ in 0..rereads {
            let mut again = Scanner::new(segment);
            again.seek_like(scanner);
            *step = again.step()?;
            if let Step::Frame(_) = step {
                scanner.reload();
                return Ok(true);
            }
            std::thread::yield_now();
        }
        Ok(false)
    }

    /// The segment after the last one that was listed, when the writer has begun it since.
    fn successor(&mut self, last: &Segment) -> Result<ControlFlow<(), Option<Segment>>, Error> {
        let offset = last.frames_end();
        let mut seal = read_seal(last)?;
        for _ in 0..REREADS {
            if seal != Err(SealFault::Damaged) {
                break;
            }
            seal = read_seal(last)?;
        }
        let seal = match seal {
            Err(SealFault::Blank) => return Ok(ControlFlow::Continue(None)),
            Err(SealFault::NewerVersion(found)) => {
                return Err(Error::NewerVersion { file: last.name.clone(), found });
            }
            Err(SealFault::Damaged) => {
                let from = last.header.first;
                return Ok(self.damage(last, offset, DAMAGED_SEAL, from, None).map_continue(|()| None));
            }
            Ok(seal) => seal,
        };
        let name = names::segment(seal.next);
        if !self.inspection.disk.exists(&name).map_err(Fault::of("look for", &name))? {
            return Ok(self.damage(last, offset, LOST_SUCCESSOR, seal.next, None).map_continue(|()| None));
        }
        let file = self.inspection.disk.open(&name).map_err(Fault::of("open", &name))?;
        match read_segment(name, seal.next, self.inspection.cluster, file) {
            Ok(segment) => Ok(ControlFlow::Continue(Some(segment))),
            Err(error) => {
                let damage = super::as_damage(error, seal.next)?;
                Ok((self.visit)(Seen::Damage(damage)).map_continue(|()| None))
            }
        }
    }

    /// The seal of a segment with a successor is blank, when a crash came before it, or names the successor.
    fn check_seal(&mut self, segment: &Segment, next: Position) -> Result<ControlFlow<()>, Error> {
        let is_sound = match read_seal(segment)? {
            Err(SealFault::Blank) => true,
            Err(SealFault::NewerVersion(found)) => {
                return Err(Error::NewerVersion { file: segment.name.clone(), found });
            }
            Err(SealFault::Damaged) => false,
            Ok(seal) => seal.next == next && seal.first == segment.header.first,
        };
        if is_sound {
            return Ok(ControlFlow::Continue(()));
        }
        // No record is lost by this damage, but the loss of the next segment would no longer show.
        Ok(self.damage(segment, segment.frames_end(), "the seal is damaged", next, Some(next)))
    }

    fn damage(
        &mut self,
        segment: &Segment,
        offset: u64,
        what: &'static str,
        from: Position,
        to: Option<Position>,
    ) -> ControlFlow<()> {
        (self.visit)(Seen::Damage(Damage::new(&segment.name, offset, what, from, to)))
    }
}
