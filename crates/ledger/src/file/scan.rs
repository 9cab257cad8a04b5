//! Reads a segment frame by frame and reports what it finds. Its callers decide what that means.
//!
//! Memory is bounded by one window or one frame, whichever is larger; a frame's length is checked against
//! the rest of the segment before anything is read by it.

use std::sync::Arc;

use disk::{File, read_exact_at};

use super::{
    error::Fault,
    frame::{Header, SECTOR_BYTES, Soundness},
    rules,
    sealed::SealFault,
    shared::Segment,
};
use crate::Position;

const WINDOW_BYTES: u64 = 1 << 20;

/// What the scanner finds at its offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The next frame of the chain; the scanner has moved behind it.
    Frame(Header),
    /// The end of the frames.
    Full,
    /// A sector that was never written.
    Blank,
    /// The next frame of the chain, but some of its sectors were never written.
    Incomplete(Header),
    /// A frame with an earlier position: left over, not a continuation.
    Stale(Header),
    /// A sector or frame that was written, but does not verify.
    Unverified {
        what: &'static str,
    },
    /// A frame that verifies by itself, but does not belong here.
    Misplaced {
        what: &'static str,
    },
    NewerVersion(u16),
}

/// A frame header behind the end of the chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LaterHeader {
    Frame { header: Header, offset: u64 },
    NewerVersion(u16),
}

pub(super) struct Scanner {
    file: Arc<dyn File>,
    name: String,
    /// The end of the frames, where the seal sector starts.
    end: u64,
    offset: u64,
    expected: Position,
    chain: u32,
    window: Vec<u8>,
    window_at: u64,
    frame_at: usize,
}

impl Scanner {
    /// Starts at the first frame of a segment.
    pub(super) fn new(segment: &Segment) -> Self {
        Self {
            file: segment.file.clone(),
            name: segment.name.clone(),
            end: segment.frames_end(),
            offset: SECTOR_BYTES as u64,
            expected: segment.header.first,
            chain: segment.header.chain,
            window: Vec::new(),
            window_at: 0,
            frame_at: 0,
        }
    }

    /// Moves to a later frame, whatever the frame before it is.
    pub(super) fn jump(&mut self, header: &Header, offset: u64) {
        self.offset = offset;
        self.expected = header.first;
        self.chain = header.chain;
    }

    /// Moves to the offset of another scanner of the same segment.
    pub(super) fn seek_like(&mut self, other: &Scanner) {
        (self.offset, self.expected, self.chain) = (other.offset, other.expected, other.chain);
    }

    /// Drops what was read ahead: a writer may have written since.
    pub(super) fn reload(&mut self) {
        self.window.clear();
    }

    /// Where the next step reads.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// The position that the next frame must start with.
    pub(super) fn expected(&self) -> Position {
        self.expected
    }

    /// The checksum that the next frame must name.
    pub(super) fn chain(&self) -> u32 {
        self.chain
    }

    pub(super) fn step(&mut self) -> Result<Step, Fault> {
        if self.offset >= self.end {
            return Ok(Step::Full);
        }
        let header = match Header::decode(self.load(self.offset, SECTOR_BYTES)?) {
            Ok(header) => header,
            Err(SealFault::Blank) => return Ok(Step::Blank),
            Err(SealFault::Damaged) => return Ok(Step::Unverified { what: "the frame header is damaged" }),
            Err(SealFault::NewerVersion(version)) => return Ok(Step::NewerVersion(version)),
        };
        if header.first < self.expected {
            return Ok(Step::Stale(header));
        }
        if header.first > self.expected {
            return Ok(Step::Misplaced { what: "a frame of a later position stands here" });
        }
        if header.chain != self.chain {
            return Ok(Step::Misplaced { what: "the frame does not follow the one before it" });
        }
        let bytes = header.frame_bytes();
        if bytes as u64 > self.end - self.offset {
            return Ok(Step::Misplaced { what: "the frame is longer than the rest of its segment" });
        }
        let found = header.judge(self.load(self.offset, bytes)?);
        if rules::is_skipped(found) {
            self.pass(&header);
            return self.step();
        }
        match found {
            Soundness::Sound => {}
            Soundness::Incomplete => return Ok(Step::Incomplete(header)),
            Soundness::Damaged => return Ok(Step::Unverified { what: "the frame's checksum is wrong" }),
        }
        self.frame_at = (self.offset - self.window_at) as usize;
        self.pass(&header);
        Ok(Step::Frame(header))
    }

    fn pass(&mut self, header: &Header) {
        self.offset += header.frame_bytes() as u64;
        self.expected = header.next();
        self.chain = header.checksum;
    }

    /// The bytes of the frame that the last step returned.
    pub(super) fn frame(&self, header: &Header) -> &[u8] {
        &self.window[self.frame_at..][..header.frame_bytes()]
    }

    /// Searches every later sector for a frame of the expected position or a later one. Such a frame proves that what is
    /// at the scanner's offset was durable once, because the writer went on after it.
    pub(super) fn find_later(&mut self) -> Result<Option<LaterHeader>, Fault> {
        let mut at = self.offset + SECTOR_BYTES as u64;
        while at < self.end {
            match Header::decode(self.load(at, SECTOR_BYTES)?) {
                Ok(header) if header.first >= self.expected => {
                    return Ok(Some(LaterHeader::Frame { header, offset: at }));
                }
                Err(SealFault::NewerVersion(version)) => return Ok(Some(LaterHeader::NewerVersion(version))),
                _ => {}
            }
            at += SECTOR_BYTES as u64;
        }
        Ok(None)
    }

    /// The end of the last sector that was ever written, at least the scanner's offset.
    pub(super) fn written_end(&mut self) -> Result<u64, Fault> {
        let mut last = self.offset;
        let mut at = self.offset;
        while at < self.end {
            if !super::frame::is_blank(self.load(at, SECTOR_BYTES)?) {
                last = at + SECTOR_BYTES as u64;
            }
            at += SECTOR_BYTES as u64;
        }
        Ok(last)
    }

    fn load(&mut self, at: u64, bytes: usize) -> Result<&[u8], Fault> {
        let loaded = self.window_at..self.window_at + self.window.len() as u64;
        if !(loaded.contains(&at) && at + bytes as u64 <= loaded.end) {
            let length = (self.end - at).min(WINDOW_BYTES.max(bytes as u64));
            self.window.resize(length as usize, 0);
            self.window_at = at;
            let read = read_exact_at(&*self.file, &mut self.window, at);
            if read.is_err() {
                self.window.clear();
            }
            read.map_err(Fault::of("read", &self.name))?;
        }
        Ok(&self.window[(at - self.window_at) as usize..][..bytes])
    }
}
