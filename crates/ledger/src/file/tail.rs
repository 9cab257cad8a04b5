//! The end of the log: verifies the last segment at start, and makes its sound frames durable.
//!
//! Only this module drops anything, and only frames that were never acknowledged, unless the operator asked for more. The
//! sound frames are written again and synced: pages that a process left in the cache before or after a failed sync are
//! never relied on.

use std::{fmt, sync::Arc};

use disk::{Disk, File, is_full, read_exact_at, write_all_at};

use super::{
    atomic::{self, prepare},
    error::{Error, Fault},
    frame::SECTOR_BYTES,
    names,
    options::Options,
    scan::{LaterHeader, Scanner, Step},
    sealed::SealFault,
    segment::Seal,
    shared::{Index, Segment},
};
use crate::{Damage, Position};

const COPY_BYTES: usize = 1 << 20;

pub(super) const DAMAGED_SEAL: &str = "the seal of the last segment is damaged";
pub(super) const LOST_SUCCESSOR: &str = "the segment is sealed, but the one that follows it is missing";

/// Where the log ends.
#[derive(Debug)]
pub(super) struct Tail {
    pub offset: u64,
    pub next: Position,
    pub chain: u32,
    /// Whether the last frame holds records.
    pub vouchable: bool,
    pub index: Index,
    pub dropped: Option<Dropped>,
}

/// The bytes that a start dropped after the last sound frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dropped {
    pub file: String,
    pub offset: u64,
    pub bytes: u64,
    /// The position that the dropped frame would have had.
    pub first: Position,
    pub why: DropReason,
}

impl fmt::Display for Dropped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let why = match self.why {
            DropReason::Torn => "it was not written whole",
            DropReason::Stale => "it is an old one",
            DropReason::Unverified => "it could not be verified, and dropping it was asked for",
        };
        let Dropped { file, offset, bytes, first, .. } = self;
        write!(f, "{bytes} bytes at byte {offset} of {file}, from position {first}: {why}")
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropReason {
    /// Some of its sectors were never written, so it was never acknowledged (D7, D8).
    Torn,
    /// A frame of an earlier position, not a continuation (D15).
    Stale,
    /// It may have been acknowledged; the operator asked to drop it.
    Unverified,
}

/// Judges the last segment, frame by frame. Changes nothing.
pub(super) fn judge(segment: &Segment, drop_unverified: bool) -> Result<Tail, Error> {
    check_unsealed(segment)?;
    let mut scanner = Scanner::new(segment);
    let mut index = Index::default();
    let mut vouchable = false;
    let found = loop {
        let offset = scanner.offset();
        match scanner.step()? {
            Step::Frame(header) => {
                index.note(header.first, offset);
                vouchable = header.count > 0;
            }
            other => break other,
        }
    };
    let (name, offset, from) = (&segment.name, scanner.offset(), scanner.expected());
    let newer = |found| Error::NewerVersion { file: name.clone(), found };
    let why = match found {
        Step::NewerVersion(found) => return Err(newer(found)),
        Step::Misplaced { what } => return Err(Damage::new(name, offset, what, from, None).into()),
        Step::Unverified { what } => Err(Damage::new(name, offset, what, from, None)),
        Step::Stale(_) => Ok(DropReason::Stale),
        Step::Frame(_) | Step::Full | Step::Blank | Step::Incomplete(_) => Ok(DropReason::Torn),
    };
    match scanner.find_later()? {
        Some(LaterHeader::NewerVersion(found)) => return Err(newer(found)),
        Some(LaterHeader::Frame { header: later, .. }) => {
            let to = Position(later.first.0.saturating_sub(1).max(from.0));
            let what = "a frame that is followed by later ones does not verify";
            return Err(Damage::new(name, offset, what, from, Some(to)).into());
        }
        None => {}
    }
    let why = match why {
        Ok(why) => why,
        Err(_) if drop_unverified => DropReason::Unverified,
        Err(damage) => return Err(Error::UnverifiedTail(damage)),
    };
    let bytes = scanner.written_end()? - offset;
    let dropped = (bytes > 0).then(|| Dropped { file: name.clone(), offset, bytes, first: from, why });
    Ok(Tail { offset, next: from, chain: scanner.chain(), vouchable, index, dropped })
}

/// A seal names a successor; when this is the last segment, the successor is missing (D14).
fn check_unsealed(segment: &Segment) -> Result<(), Error> {
    let (what, from) = match read_seal(segment)? {
        Err(SealFault::Blank) => return Ok(()),
        Err(SealFault::NewerVersion(found)) => {
            return Err(Error::NewerVersion { file: segment.name.clone(), found });
        }
        Err(SealFault::Damaged) => (DAMAGED_SEAL, segment.header.first),
        Ok(seal) => (LOST_SUCCESSOR, seal.next),
    };
    Err(Damage::new(&segment.name, segment.frames_end(), what, from, None).into())
}

/// Reads the last sector of a segment.
pub(super) fn read_seal(segment: &Segment) -> Result<Result<Seal, SealFault>, Fault> {
    let mut sector = [0; SECTOR_BYTES];
    read_exact_at(&*segment.file, &mut sector, segment.frames_end())
        .map_err(Fault::of("read", &segment.name))?;
    Ok(Seal::decode(&sector))
}

/// Makes the sound frames of the last segment durable, and returns the segment to continue with. The frames are copied
/// into a new file, which replaces the old one; `reserve` says whether there is a prepared file of the right length.
///
/// When the disk is too full for another segment, the frames are written over themselves instead: every page becomes
/// dirty again, so the sync covers it. A crash in between does no harm, because each sector is overwritten with the same
/// bytes, except that the sectors of a dropped frame become blank, which only makes it more torn.
pub(super) fn rewrite(
    disk: &Arc<dyn Disk>,
    segment: &Segment,
    tail: &Tail,
    options: &Options,
    reserve: bool,
) -> Result<(Segment, Rewritten), Error> {
    let segment_bytes = options.segment_bytes;
    let used = tail.offset + SECTOR_BYTES as u64;
    let (file, how) = if reserve && used <= segment_bytes {
        // A reserve holds zeros only. Were the rename lost after frames were copied into the file, the next
        // start would find a reserve with frames in it.
        atomic::publish(&**disk, names::RESERVE, names::SEGMENT_TEMP)?;
        let file = disk.open(names::SEGMENT_TEMP).map_err(Fault::of("open", names::SEGMENT_TEMP))?;
        (file, Rewritten::Copied)
    } else {
        match prepare(&**disk, names::SEGMENT_TEMP, used.max(segment_bytes), options.preallocate_bytes) {
            Err(fault) if is_full(&fault.source) => (segment.file.clone(), Rewritten::InPlace),
            other => (other?, Rewritten::Copied),
        }
    };
    let name = match how {
        Rewritten::Copied => names::SEGMENT_TEMP,
        Rewritten::InPlace => &segment.name,
    };
    write_frames(segment, tail, &*file, name)?;
    if let (Rewritten::InPlace, Some(dropped)) = (how, &tail.dropped) {
        let blank = vec![0; dropped.bytes as usize];
        write_all_at(&*file, &blank, tail.offset).map_err(Fault::of("write", name))?;
    }
    file.sync_data().map_err(Fault::of("sync", name))?;
    match how {
        Rewritten::Copied => atomic::publish(&**disk, name, &segment.name)?,
        Rewritten::InPlace => disk.sync_dir().map_err(Fault::of("sync the directory of", name))?,
    }
    let bytes = file.len().map_err(Fault::of("measure", &segment.name))?;
    let index = Some(tail.index.clone());
    Ok((Segment::new(segment.name.clone(), segment.header, file, bytes, index), how))
}

/// How the last segment was made durable at start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rewritten {
    Copied,
    /// The disk is too full for a copy.
    InPlace,
}

/// Writes header and frames of a segment to the same offsets of a file, perhaps its own. Every frame is
/// verified again: what is read twice may differ on a bad disk.
fn write_frames(segment: &Segment, tail: &Tail, into: &dyn File, name: &str) -> Result<(), Error> {
    let mut pending = segment.header.encode().to_vec();
    let mut written = 0;
    let mut scanner = Scanner::new(segment);
    let flush = |pending: &mut Vec<u8>, written: &mut u64| -> Result<(), Fault> {
        write_all_at(into, pending, *written).map_err(Fault::of("write", name))?;
        *written += pending.len() as u64;
        pending.clear();
        Ok(())
    };
    while scanner.offset() < tail.offset {
        let Step::Frame(header) = scanner.step()? else {
            let what = "a frame that verified before does not verify again";
            let (from, to) = (scanner.expected(), Some(Position(tail.next.0 - 1)));
            return Err(Damage::new(&segment.name, scanner.offset(), what, from, to).into());
        };
        pending.extend_from_slice(scanner.frame(&header));
        if pending.len() >= COPY_BYTES {
            flush(&mut pending, &mut written)?;
        }
    }
    Ok(flush(&mut pending, &mut written)?)
}
