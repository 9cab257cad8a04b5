//! The walk through all frames, over damage and up to whatever a running writer has finished.

use std::{ops::ControlFlow, sync::Arc};

use super::{Inspection, LOOKS};
use crate::{
    Position,
    batch::split_body,
    file::{
        error::{Damage, Error, Fault},
        frame::Header,
        names,
        open::read_segment,
        replay::{BAD_LENGTHS, LATE_JOINT, NO_JOINT, fault_of},
        scan::{Later, Scanner, Step},
        segment::SectorFault,
        shared::Segment,
        tail::{DAMAGED_SEAL, LOST_SUCCESSOR, read_seal},
    },
};

/// What a walk comes by.
pub enum Seen<'a> {
    /// A sound frame; its records follow.
    Frame(FrameInfo<'a>),
    Record(Position, &'a [u8]),
    /// The walk goes on behind it, if it can.
    Damage(Damage),
}

/// Where a frame stands and what it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameInfo<'a> {
    pub file: &'a str,
    pub offset: u64,
    pub bytes: u64,
    pub first: Position,
    pub count: u32,
}

/// Where a walk ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    /// The position after the last record that was found.
    pub next: Position,
    pub unfinished: Option<Unfinished>,
}

/// A frame at the very end that is not whole: a writer has it in hand, or it was cut off by a crash. It was never
/// acknowledged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unfinished {
    pub file: String,
    pub offset: u64,
    /// The position that it begins with.
    pub first: Position,
}

/// What must follow the last frame of a segment.
#[derive(Clone, Copy)]
enum Bound {
    /// The next segment: its first position and chain.
    Joint(Position, u32),
    /// A segment that is missing or unusable, which was told already.
    Lost,
    /// Nothing: the log ends here, or a writer goes on.
    Open,
}

struct Walk<'a, 'v> {
    inspection: &'a Inspection,
    from: Position,
    visit: &'v mut dyn FnMut(Seen<'_>) -> ControlFlow<()>,
    body: Vec<u8>,
    end: End,
}

pub(super) fn walk(
    inspection: &Inspection,
    from: Position,
    visit: &mut dyn FnMut(Seen<'_>) -> ControlFlow<()>,
) -> Result<End, Error> {
    let mut segments = inspection.segments.clone();
    let start = segments.partition_point(|segment| segment.header.first <= from).saturating_sub(1);
    let next = segments.get(start).map_or(Position(1), |segment| segment.header.first);
    let end = End { next, unfinished: None };
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
        (self.visit)(Seen::Frame(FrameInfo {
            file: &segment.name,
            offset,
            bytes: header.frame_bytes() as u64,
            first: header.first,
            count: header.count,
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

    /// Judges a place where no whole frame stands. `Continue` when the scanner can go on from where it is now; the
    /// value of `Break` says whether the walk goes on with the next segment.
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
            && self.look_again(segment, scanner, &mut step, LOOKS)?
        {
            return Ok(ControlFlow::Continue(()));
        }
        let later = scanner.find_later()?;
        // The writer may have gone on between the two looks, and then the later frame is no sign of damage.
        if let (Bound::Open, Some(_)) = (bound, &later)
            && self.look_again(segment, scanner, &mut step, 1)?
        {
            return Ok(ControlFlow::Continue(()));
        }
        let file = || segment.name.clone();
        let what = fault_of(step).map_err(|found| Error::NewerVersion { file: file(), found })?;
        let (offset, from) = (scanner.offset(), scanner.expected());
        match later {
            Some(Later::NewerVersion(found)) => Err(Error::NewerVersion { file: file(), found }),
            Some(Later::Frame { header, offset: later }) => {
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

    /// Reads the scanner's place again, up to so many times, and says whether a whole frame stands there now.
    /// The scanner has not moved, so the frame is still to be visited.
    fn look_again(
        &mut self,
        segment: &Segment,
        scanner: &mut Scanner,
        step: &mut Step,
        looks: usize,
    ) -> Result<bool, Error> {
        for _ in 0..looks {
            let mut again = Scanner::new(segment);
            again.place_like(scanner);
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
        for _ in 0..LOOKS {
            if seal != Err(SectorFault::Damaged) {
                break;
            }
            seal = read_seal(last)?;
        }
        let seal = match seal {
            Err(SectorFault::Blank) => return Ok(ControlFlow::Continue(None)),
            Err(SectorFault::NewerVersion(found)) => {
                return Err(Error::NewerVersion { file: last.name.clone(), found });
            }
            Err(SectorFault::Damaged) => {
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
            Err(SectorFault::Blank) => true,
            Err(SectorFault::NewerVersion(found)) => {
                return Err(Error::NewerVersion { file: segment.name.clone(), found });
            }
            Err(SectorFault::Damaged) => false,
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
        let file = segment.name.clone();
        (self.visit)(Seen::Damage(Damage { file, offset, what, from, to }))
    }
}
