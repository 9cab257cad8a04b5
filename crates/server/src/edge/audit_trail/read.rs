//! Reads the audit trail, also beside a running server.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use blake3::Hash;

use super::line::{AuditLine, MAX_LINE_BYTES};
use super::{chain, files};

/// One line of a file, as it stands there.
pub(super) enum Raw {
    Whole(String),
    /// Longer than a line can be, or not UTF-8.
    Unreadable,
    /// The end of the file without the end of a line: it is being written, or its writer was stopped.
    Torn,
}

/// The lines of a file, in order.
pub(super) struct RawLines(BufReader<File>);

impl RawLines {
    pub(super) fn open(path: &Path) -> io::Result<RawLines> {
        Ok(RawLines(BufReader::new(File::open(path)?)))
    }

    pub(super) fn next_line(&mut self) -> io::Result<Option<Raw>> {
        let mut bytes = Vec::new();
        let read = self.0.by_ref().take(MAX_LINE_BYTES as u64).read_until(b'\n', &mut bytes)?;
        if read == 0 {
            return Ok(None);
        }
        if bytes.pop_if(|last| *last == b'\n').is_some() {
            return Ok(Some(String::from_utf8(bytes).map_or(Raw::Unreadable, Raw::Whole)));
        }
        if read < MAX_LINE_BYTES {
            return Ok(Some(Raw::Torn));
        }
        self.skip_line()?;
        Ok(Some(Raw::Unreadable))
    }

    /// Skips the rest of a line, however long it is.
    fn skip_line(&mut self) -> io::Result<()> {
        loop {
            let buffer = self.0.fill_buf()?;
            let (used, is_end) = match buffer.iter().position(|byte| *byte == b'\n') {
                Some(at) => (at + 1, true),
                None => (buffer.len(), buffer.is_empty()),
            };
            self.0.consume(used);
            if is_end {
                return Ok(());
            }
        }
    }
}

/// Calls `each` with every line and its text, oldest first, until it says to stop. Nothing is verified; a line that cannot
/// be read has no content.
pub fn lines(
    directory: &Path,
    mut each: impl FnMut(&str, Option<AuditLine>) -> io::Result<bool>,
) -> io::Result<()> {
    for (_, path) in files::list(directory)? {
        let mut file = RawLines::open(&path)?;
        while let Some(raw) = file.next_line()? {
            let goes_on = match raw {
                Raw::Whole(text) => each(&text, chain::parse(&text).map(|(line, _)| line))?,
                Raw::Unreadable => each("", None)?,
                Raw::Torn => true,
            };
            if !goes_on {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// The last line: its number and its MAC. A start of the server records it in the ledger, so that what was there before the
/// start cannot be written anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    pub seq: u64,
    pub hash: Hash,
}

impl Head {
    pub fn parse(text: &str) -> Option<Head> {
        let (seq, hash) = text.split_once(':')?;
        Some(Head { seq: seq.parse().ok()?, hash: Hash::from_hex(hash).ok()? })
    }
}

impl std::fmt::Display for Head {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.seq, self.hash)
    }
}

/// The last line, which a power loss does not take any more.
pub fn durable_head(directory: &Path) -> io::Result<Option<Head>> {
    if let Some((_, newest)) = files::list(directory)?.last() {
        // The process before may have ended between a write and its sync.
        File::open(newest)?.sync_all()?;
    }
    head(directory)
}

/// The last line that can be read, if there is one.
pub fn head(directory: &Path) -> io::Result<Option<Head>> {
    for (_, path) in files::list(directory)?.iter().rev() {
        let (mut file, mut last) = (RawLines::open(path)?, None);
        while let Some(raw) = file.next_line()? {
            if let Raw::Whole(text) = raw {
                last = Some(text);
            }
        }
        if let Some((line, hash)) = last.as_deref().and_then(chain::parse) {
            return Ok(Some(Head { seq: line.seq, hash }));
        }
    }
    Ok(None)
}
