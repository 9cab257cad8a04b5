//! Reads single records and ranges beside the writer.
//!
//! A reader never waits for an append, and reads only what is durable. A sparse index finds the frame, whose checksum is
//! verified before a byte of it is visited.

use std::{ops::ControlFlow, sync::Arc};

use authority::Time;
use disk::read_exact_at;

use super::{
    error::{Error, Fault},
    frame::{Header, SECTOR_BYTES, Soundness},
    replay::BAD_LENGTHS,
    sealed::SealFault,
    shared::{Index, Segment, Shared},
    snapshot::Walker,
    snapshot_reader::{self, SnapshotReader},
};
use crate::{
    Damage, Error as LedgerError, Hold, Position, Reader, SnapshotInfo, SnapshotSource, Visit,
    batch::split_body,
};

/// Read at once: small frames lie close together, and the header of each is read on the way to the wanted one.
const WINDOW_BYTES: u64 = 16 << 10;

/// A cheap handle for reading; clones read independently.
#[derive(Clone)]
pub struct FileReader {
    shared: Arc<Shared>,
}

impl FileReader {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    /// The last position that a replay has visited, to show progress.
    pub fn replayed(&self) -> Position {
        self.shared.replayed()
    }

    /// Visits the durable records from `from` up to and including `to`; `false` when `from` is trimmed.
    fn visit(&self, from: Position, to: Position, visit: &mut Visit<'_>) -> Result<bool, Error> {
        let segments = self.shared.segments();
        let Some(mut at) = segments.partition_point(|segment| segment.header.first <= from).checked_sub(1)
        else {
            return Ok(false);
        };
        let (mut expected, mut offset) = find(&segments[at], from)?;
        let (mut window, mut body) = (Window::default(), Vec::new());
        while expected <= to {
            if segments.get(at + 1).is_some_and(|next| next.header.first <= expected) {
                (at, offset, window) = (at + 1, SECTOR_BYTES as u64, Window::default());
            }
            let segment = &segments[at];
            let header = read_frame(segment, offset, expected, from, &mut window)?;
            if header.next() > from {
                header.unpack(window.read(segment, offset, header.frame_bytes() as u64)?, &mut body);
                let positions = (header.first.0..).map(Position);
                for (position, record) in positions.zip(split_body(&body, header.count)) {
                    let record = record.ok_or_else(|| damage(segment, offset, BAD_LENGTHS, &header))?;
                    if (from..=to).contains(&position) && visit(position, record).is_break() {
                        return Ok(true);
                    }
                }
            }
            offset += header.frame_bytes() as u64;
            expected = header.next();
        }
        Ok(true)
    }
}

impl Reader for FileReader {
    fn first(&self) -> Result<Position, LedgerError> {
        Ok(self.shared.segments().first().map_or(Position(1), |segment| segment.header.first))
    }

    fn next(&self) -> Result<Position, LedgerError> {
        Ok(self.shared.next())
    }

    fn record(&self, position: Position) -> Result<Option<Vec<u8>>, LedgerError> {
        if position >= self.shared.next() {
            return Err(Error::BeyondEnd(position).into());
        }
        let mut found = None;
        self.visit(position, position, &mut |_, record| {
            found = Some(record.to_vec());
            ControlFlow::Break(())
        })?;
        Ok(found)
    }

    fn read(&self, from: Position, to: Position, visit: &mut Visit<'_>) -> Result<(), LedgerError> {
        let to = to.min(Position(self.shared.next().0 - 1));
        if from > to || self.visit(from, to, visit)? {
            Ok(())
        } else {
            Err(LedgerError::trimmed(from, self.first()?))
        }
    }

    /// Time never falls, so every record before a segment that was begun earlier was made earlier too.
    fn seek(&self, time: Time) -> Result<Position, LedgerError> {
        let segments = self.shared.segments();
        let earlier = segments.iter().take_while(|segment| segment.header.time_ms < time.0);
        earlier.last().map_or_else(|| self.first(), |segment| Ok(segment.header.first))
    }

    /// The usable snapshots, oldest first.
    fn snapshots(&self) -> Result<Vec<SnapshotInfo>, LedgerError> {
        Ok(self.shared.snapshots().clone())
    }

    fn load_snapshot(&self, info: &SnapshotInfo) -> Result<Box<dyn SnapshotSource>, LedgerError> {
        let file = self.shared.disk.open(&info.name).map_err(Fault::of("open", &info.name))?;
        match Walker::new(file, &info.name, self.shared.cluster) {
            Ok(walker) => Ok(Box::new(SnapshotReader::new(walker, info))),
            Err(fault) => Err(snapshot_reader::refusal(info, fault).into()),
        }
    }

    fn hold(&self, _name: &str, from: Position) -> Result<Box<dyn Hold>, LedgerError> {
        Ok(self.shared.holds.hold(from))
    }
}

/// A range of one segment that was read at once. It is used for bytes that were durable before it was read.
#[derive(Default)]
struct Window {
    start: u64,
    bytes: Vec<u8>,
}

impl Window {
    /// Returns these bytes of the segment, and reads them if the window does not have them.
    fn read(&mut self, segment: &Segment, offset: u64, length: u64) -> Result<&[u8], Error> {
        let end = self.start + self.bytes.len() as u64;
        if offset < self.start || offset + length > end {
            let rest = segment.frames_end().saturating_sub(offset);
            self.start = offset;
            self.bytes.resize(WINDOW_BYTES.min(rest).max(length) as usize, 0);
            let read = read_exact_at(&*segment.file, &mut self.bytes, offset);
            if read.is_err() {
                self.bytes.clear();
            }
            read.map_err(Fault::of("read", &segment.name))?;
        }
        let at = (offset - self.start) as usize;
        Ok(&self.bytes[at..at + length as usize])
    }
}

/// Reads the head of the frame at `offset`. Its body is read and verified only when it reaches up to `wanted`.
fn read_frame(
    segment: &Segment,
    offset: u64,
    expected: Position,
    wanted: Position,
    window: &mut Window,
) -> Result<Header, Error> {
    let rest = segment.frames_end().saturating_sub(offset);
    let damage_here = |what| Error::from(Damage::new(&segment.name, offset, what, expected, None));
    if rest < SECTOR_BYTES as u64 {
        return Err(damage_here("durable frames are missing"));
    }
    let header = match Header::decode(window.read(segment, offset, SECTOR_BYTES as u64)?) {
        Ok(header) => header,
        Err(SealFault::NewerVersion(found)) => {
            return Err(Error::NewerVersion { file: segment.name.clone(), found });
        }
        Err(_) => return Err(damage_here("the frame header is damaged")),
    };
    if header.first != expected || header.frame_bytes() as u64 > rest {
        return Err(damage(segment, offset, "the frame does not belong here", &header));
    }
    if header.next() > wanted
        && header.judge(window.read(segment, offset, header.frame_bytes() as u64)?) != Soundness::Sound
    {
        return Err(damage(segment, offset, "the frame's checksum is wrong", &header));
    }
    Ok(header)
}

/// A frame at or before the one that holds `position`. The first search in a segment builds its index.
fn find(segment: &Segment, position: Position) -> Result<(Position, u64), Error> {
    let start = (segment.header.first, SECTOR_BYTES as u64);
    let mut index = segment.index();
    if index.is_none() {
        *index = Some(build_index(segment)?);
    }
    Ok(index.as_ref().and_then(|index| index.find(position)).unwrap_or(start))
}

/// Indexes a segment by its frame headers. It stops where they stop: a reader that needs what comes after
/// finds the damage itself.
fn build_index(segment: &Segment) -> Result<Index, Error> {
    let mut index = Index::default();
    let mut offset = SECTOR_BYTES as u64;
    let mut expected = segment.header.first;
    let mut sector = [0; SECTOR_BYTES];
    while offset < segment.frames_end() {
        read_exact_at(&*segment.file, &mut sector, offset).map_err(Fault::of("read", &segment.name))?;
        match Header::decode(&sector) {
            Ok(header) if header.first == expected => {
                index.note(header.first, offset);
                offset += header.frame_bytes() as u64;
                expected = header.next();
            }
            _ => break,
        }
    }
    Ok(index)
}

fn damage(segment: &Segment, offset: u64, what: &'static str, header: &Header) -> Error {
    let to = (header.count > 0).then(|| Position(header.next().0 - 1));
    Damage::new(&segment.name, offset, what, header.first, to).into()
}
