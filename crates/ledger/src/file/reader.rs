//! Reads single records and ranges beside the writer.
//!
//! A reader never waits for an append, and reads only what is durable. A sparse index finds the frame; its
//! checksum is verified before a byte of it is handed out.

use std::sync::Arc;

use super::{
    error::{Damage, Error, Fault},
    frame::{Header, HeaderFault, SECTOR_BYTES, Soundness},
    hold::FileHold,
    shared::{Index, Segment, Shared},
    snapshot::Walker,
    snapshot_reader::{self, SnapshotReader},
};
use crate::{Position, SnapshotInfo, batch::split_body, disk::read_exact_at};

/// Read at once: small frames lie close together, and each is looked at on the way to the one that is wanted.
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

    /// The position after the last durable record.
    pub fn next(&self) -> Position {
        self.shared.next()
    }

    /// The last position that a replay has handed out, to show progress.
    pub fn replayed(&self) -> Position {
        self.shared.replayed()
    }

    /// The first position that is still there.
    pub fn first(&self) -> Position {
        self.shared.segments().first().map_or(Position(1), |segment| segment.header.first)
    }

    /// Keeps everything from `from` on from being trimmed, as long as the hold lives.
    pub fn hold(&self, from: Position) -> FileHold {
        self.shared.hold(from)
    }

    /// The usable snapshots, oldest first.
    pub fn snapshots(&self) -> Vec<SnapshotInfo> {
        self.shared.snapshots().clone()
    }

    pub fn open_snapshot(&self, info: &SnapshotInfo) -> Result<SnapshotReader, Error> {
        let file = self.shared.disk.open(&info.name).map_err(Fault::of("open", &info.name))?;
        match Walker::new(file, &info.name, self.shared.cluster) {
            Ok(walker) => Ok(SnapshotReader::new(walker, info.clone())),
            Err(fault) => Err(snapshot_reader::refusal(info, fault)),
        }
    }

    /// One record; `None` when it is trimmed.
    pub fn read_record(&self, position: Position) -> Result<Option<Vec<u8>>, Error> {
        let Some(mut records) = self.read_from(position, position)? else { return Ok(None) };
        records.next().transpose().map(|record| record.map(|(_, bytes)| bytes))
    }

    /// The records from `from` up to and including `to`; `None` when `from` is trimmed.
    pub fn read_from(&self, from: Position, to: Position) -> Result<Option<Records>, Error> {
        if to >= self.shared.next() {
            return Err(Error::BeyondEnd(to));
        }
        let segments = self.shared.segments();
        let Some(at) = segments.partition_point(|segment| segment.header.first <= from).checked_sub(1) else {
            return Ok(None);
        };
        let (first, offset) = find(&segments[at], from)?;
        let cursor = Cursor { segment: at, offset, expected: first };
        Ok(Some(Records {
            segments,
            cursor,
            from,
            to,
            window: Window::default(),
            body: Vec::new(),
            queue: Vec::new().into_iter(),
            failed: false,
        }))
    }
}

/// Records in order, from a frame at a time.
pub struct Records {
    segments: Arc<Vec<Arc<Segment>>>,
    cursor: Cursor,
    from: Position,
    to: Position,
    window: Window,
    body: Vec<u8>,
    queue: std::vec::IntoIter<(Position, Vec<u8>)>,
    failed: bool,
}

struct Cursor {
    segment: usize,
    offset: u64,
    expected: Position,
}

impl Iterator for Records {
    type Item = Result<(Position, Vec<u8>), Error>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(record) = self.queue.next() {
                return Some(Ok(record));
            }
            if self.failed || self.cursor.expected > self.to {
                return None;
            }
            if let Err(error) = self.fill() {
                self.failed = true;
                return Some(Err(error));
            }
        }
    }
}

impl Records {
    /// Reads the next frame, and queues what is wanted of it.
    fn fill(&mut self) -> Result<(), Error> {
        let next = self.segments.get(self.cursor.segment + 1);
        if next.is_some_and(|next| next.header.first <= self.cursor.expected) {
            self.cursor.segment += 1;
            self.cursor.offset = SECTOR_BYTES as u64;
            self.window = Window::default();
        }
        let segment = &self.segments[self.cursor.segment];
        let Cursor { offset, expected, .. } = self.cursor;
        let header = read_frame(segment, offset, expected, self.from, &mut self.window)?;
        if header.next() > self.from {
            let bytes = self.window.read(segment, offset, header.frame_bytes() as u64)?;
            header.unpack(bytes, &mut self.body);
            let mut wanted = Vec::new();
            for (position, record) in
                (header.first.0..).map(Position).zip(split_body(&self.body, header.count))
            {
                let Some(record) = record else {
                    return Err(damage(
                        segment,
                        self.cursor.offset,
                        "the lengths of a frame's records do not add up",
                        &header,
                    ));
                };
                if position >= self.from && position <= self.to {
                    wanted.push((position, record.to_vec()));
                }
            }
            self.queue = wanted.into_iter();
        }
        self.cursor.offset += header.frame_bytes() as u64;
        self.cursor.expected = header.next();
        Ok(())
    }
}

/// A stretch of one segment. All that is asked of it was durable before it was read.
#[derive(Default)]
struct Window {
    start: u64,
    bytes: Vec<u8>,
}

impl Window {
    /// These bytes of the segment, which are read when they are not here.
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
    let nowhere = Header {
        first: expected,
        durable: expected,
        time_ms: 0,
        count: 0,
        body_bytes: 0,
        chain: 0,
        checksum: 0,
    };
    if rest < SECTOR_BYTES as u64 {
        return Err(damage(segment, offset, "durable frames are missing", &nowhere));
    }
    let header = match Header::decode(window.read(segment, offset, SECTOR_BYTES as u64)?) {
        Ok(header) => header,
        Err(HeaderFault::NewerVersion(found)) => {
            return Err(Error::NewerVersion { file: segment.name.clone(), found });
        }
        Err(_) => return Err(damage(segment, offset, "the frame header is damaged", &nowhere)),
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

/// A frame at or before the one that holds `position`. The first look into a segment indexes it.
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
    Error::Damaged(Damage { file: segment.name.clone(), offset, what, from: header.first, to })
}
