//! Verifies the audit trail: every line is as it was written, none is missing and none was added, and the ledger knows it.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use blake3::Hash;
use jiff::Timestamp;

use super::chain::{self, ChainKey, GENESIS};
use super::files::{self, MAX_FILES};
use super::read::{Head, Raw, RawLines};

/// Most findings that a report lists; one is enough to distrust the rest.
const MAX_FINDINGS: usize = 100;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    pub files: usize,
    pub lines: u64,
    pub first: Option<(u64, Timestamp)>,
    pub last: Option<(u64, Timestamp)>,
    /// Whether a last line is not whole: it is being written, or its writer was stopped.
    pub is_torn: bool,
    /// How many heads in the ledger were found in the trail.
    pub anchors: usize,
    pub findings: Vec<Finding>,
}

/// Something that no server wrote like this.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub file: String,
    /// The line of the file, from 1.
    pub line: u64,
    pub what: String,
}

/// The last position of a ledger that was read after the lines up to a number were there. Later lines may be about later
/// records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LedgerEnd {
    pub position: u64,
    pub up_to: u64,
}

/// Verifies the trail against its key, against the heads that the ledger has, and against the last position of the ledger.
pub fn verify(
    directory: &Path,
    lease_key: &[u8; 32],
    heads: &[Head],
    ledger_end: Option<LedgerEnd>,
) -> io::Result<Report> {
    verify_with(directory, lease_key, heads, ledger_end, MAX_FILES)
}

pub(super) fn verify_with(
    directory: &Path,
    lease_key: &[u8; 32],
    heads: &[Head],
    ledger_end: Option<LedgerEnd>,
    max_files: usize,
) -> io::Result<Report> {
    let files = files::list(directory)?;
    let mut verifier = Verifier {
        key: ChainKey::new(lease_key),
        heads: heads.iter().map(|head| (head.seq, head.hash)).collect(),
        ledger_end,
        expected: None,
        position: 0,
        report: Report { files: files.len(), ..Report::default() },
    };
    for (number, (first, path)) in files.iter().enumerate() {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        // The oldest files go only when there are too many.
        if number == 0 && *first != 1 && files.len() < max_files {
            verifier.finding(&name, 1, format!("the lines before {first} are missing"));
        }
        verifier.file(&name, *first, path, number + 1 == files.len())?;
    }
    verifier.missing_heads();
    Ok(verifier.report)
}

struct Verifier {
    key: ChainKey,
    heads: BTreeMap<u64, Hash>,
    ledger_end: Option<LedgerEnd>,
    /// The number of the next line, and the MAC of the one before, once they are known.
    expected: Option<(u64, Hash)>,
    position: u64,
    report: Report,
}

impl Verifier {
    fn file(&mut self, name: &str, first: u64, path: &Path, is_last: bool) -> io::Result<()> {
        let (mut file, mut at) = (RawLines::open(path)?, 0);
        while let Some(raw) = file.next_line()? {
            at += 1;
            match raw {
                Raw::Whole(text) => self.line(name, at, first, &text),
                Raw::Unreadable => self.finding(name, at, "is no line of the audit trail"),
                Raw::Torn if is_last => self.report.is_torn = true,
                Raw::Torn => self.finding(name, at, "the file was cut off here"),
            }
        }
        Ok(())
    }

    fn line(&mut self, name: &str, at: u64, first: u64, text: &str) {
        let Some((line, claimed)) = chain::parse(text) else {
            return self.finding(name, at, "is no line of the audit trail");
        };
        self.report.lines += 1;
        let (expected, before) = match self.expected {
            Some((seq, hash)) => (seq, Some(hash)),
            None => (first, (first == 1).then_some(GENESIS)),
        };
        if self.key.check(text).is_none() {
            self.finding(name, at, format!("line {expected} was changed, or written with another key"));
        } else if line.seq != expected {
            let what = format!(
                "line {} follows where {expected} is expected: lines were removed or added",
                line.seq
            );
            self.finding(name, at, what);
        } else if before.is_some_and(|before| !Hash::from_hex(&line.prev).is_ok_and(|prev| prev == before)) {
            self.finding(name, at, format!("line {expected} does not follow the line before it"));
        }
        if line.position < self.position {
            self.finding(name, at, format!("line {expected} is older than the line before it"));
        }
        if self.ledger_end.is_some_and(|end| line.seq <= end.up_to && line.position > end.position) {
            let what =
                format!("line {expected} is from position {}, which the ledger does not have", line.position);
            self.finding(name, at, what);
        }
        self.position = self.position.max(line.position);
        match self.heads.remove(&line.seq) {
            Some(known) if known == claimed => self.report.anchors += 1,
            Some(_) => self.finding(name, at, format!("the ledger knows another line {}", line.seq)),
            None => {}
        }
        self.report.first.get_or_insert((line.seq, line.at));
        self.report.last = Some((line.seq, line.at));
        // After a gap, what follows is compared with what is there.
        self.expected = Some((line.seq.saturating_add(1), claimed));
    }

    /// The lines that the ledger knows and that are neither there nor so old that they were removed.
    fn missing_heads(&mut self) {
        let first = self.report.first.map_or(0, |(seq, _)| seq);
        let missing: Vec<u64> = self.heads.keys().copied().filter(|seq| *seq >= first).collect();
        for seq in missing {
            self.finding("", 0, format!("line {seq} is missing, which the ledger knows"));
        }
    }

    fn finding(&mut self, file: &str, line: u64, what: impl Into<String>) {
        if self.report.findings.len() < MAX_FINDINGS {
            self.report.findings.push(Finding { file: file.to_owned(), line, what: what.into() });
        }
    }
}
