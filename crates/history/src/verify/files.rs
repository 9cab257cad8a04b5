//! Verifies the files of the file backend: every segment and frame, besides the records and snapshots.

use std::ops::ControlFlow;

use authority::Position;
use ledger::file::{self, Damage, Inspection, Seen, Unfinished};
use ledger::{ClusterId, Error};

use super::{Finding, Verifier, VerifyReport};

/// The content of a ledger's directory, and everything that is wrong with it.
#[derive(Clone, Debug)]
pub struct FilesReport {
    pub cluster: ClusterId,
    pub segments: u64,
    pub frames: u64,
    /// The size of all frames.
    pub bytes: u64,
    /// Not damage: a server is writing this batch, or a crash cut it off before it was acknowledged.
    pub unfinished: Option<Unfinished>,
    pub content: VerifyReport,
}

impl From<Damage> for Finding {
    fn from(damage: Damage) -> Finding {
        let Damage { file, offset, what, from, to } = damage;
        Finding { file, offset, what: what.to_owned(), from, to }
    }
}

/// The location of damage that the file backend reports.
pub(super) fn finding(error: &Error) -> Option<Finding> {
    match error.downcast_ref() {
        Some(file::Error::Damaged(damage)) => Some(damage.clone().into()),
        _ => None,
    }
}

/// Verifies everything in a directory. `progress` gets the number of bytes of frames that were read. An error means
/// that a file could not be read.
pub fn verify_files(inspection: &Inspection, progress: &mut dyn FnMut(u64)) -> Result<FilesReport, Error> {
    let known = inspection.damages().iter().cloned().map(Finding::from).collect();
    let mut verifier = Verifier::new(inspection, known)?;
    verifier.first_file = inspection.segments().next().map_or(String::new(), |segment| segment.name);
    let (mut frames, mut read_bytes) = (0, 0);
    let mut failed = Ok(());
    let end = inspection.walk(Position(1), &mut |seen| {
        match seen {
            Seen::Frame(frame) => {
                frames += 1;
                read_bytes += frame.bytes;
                verifier.location = (frame.file.to_owned(), frame.offset);
                progress(read_bytes);
            }
            Seen::Record(position, bytes) => failed = verifier.record(position, bytes),
            Seen::Damage(damage) => {
                verifier.lose_base();
                verifier.report.findings.push(damage.into());
            }
        }
        if failed.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    failed?;
    Ok(FilesReport {
        cluster: inspection.cluster(),
        segments: inspection.segments().count() as u64,
        frames,
        bytes: read_bytes,
        unfinished: end.unfinished,
        content: verifier.finish(end.next)?,
    })
}
