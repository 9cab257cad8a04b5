//! The files of the audit trail.

use std::{fs, io};

use server::audit_trail::{self, Head};
use server::fuzzing;

use crate::seeds::{self, texts, with_text};

const LEASE_KEY: [u8; 32] = [7; 32];
/// The file that begins with line 1.
const FILE: &str = "audit-00000000000000000001.jsonl";

pub(crate) fn line(input: &[u8]) {
    with_text(input, fuzzing::audit_line);
}

pub(crate) fn lines() -> Vec<Vec<u8>> {
    texts(fuzzing::sound_audit_lines().lines())
}

/// Verifies a file. One without a finding is the one that was written, up to a torn line at its end.
pub(crate) fn file(input: &[u8]) {
    // A full disk is no finding.
    let _ = verify(input);
}

pub(crate) fn files() -> Vec<Vec<u8>> {
    assert!(
        verify(fuzzing::sound_audit_lines().as_bytes()).is_ok_and(|is_sound| is_sound),
        "the seed is sound"
    );
    texts([fuzzing::sound_audit_lines()])
}

fn verify(content: &[u8]) -> io::Result<bool> {
    let directory = seeds::directory()?;
    fs::write(directory.path().join(FILE), content)?;
    let written = fuzzing::sound_audit_lines();
    let last = written.rsplit_once("\"mac\":\"").and_then(|(_, rest)| rest.strip_suffix("\"}\n"));
    let head = last.and_then(|hash| Head::parse(&format!("3:{hash}")));
    let report = audit_trail::verify(directory.path(), &LEASE_KEY, head.as_slice(), None)?;
    let is_sound = report.findings.is_empty();
    if is_sound {
        assert!(content.starts_with(written.as_bytes()), "a change is not found");
        assert!(report.lines == 3 && report.is_torn == (content.len() > written.len()));
    }
    if let Some(head) = audit_trail::head(directory.path())? {
        assert_eq!(Head::parse(&head.to_string()), Some(head));
    }
    audit_trail::lines(directory.path(), |_, _| Ok(true))?;
    Ok(is_sound)
}

/// A head as an operator gives it to the command line.
pub(crate) fn head(input: &[u8]) {
    with_text(input, |text| {
        if let Some(head) = Head::parse(text) {
            assert_eq!(Head::parse(&head.to_string()), Some(head));
        }
    });
}

pub(crate) fn heads() -> Vec<Vec<u8>> {
    texts([format!("3:{}", "0123456789abcdef".repeat(4))])
}
