//! The audit trail on disk: what is written is read, and what was tampered with is found.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::line::AuditLine;
use super::read::{Head, head, lines};
use super::verify::{LedgerEnd, Report, verify, verify_with};
use super::{MAX_FILES, files};
use crate::edge::audit_trail::AuditTrail;

const KEY: [u8; 32] = [7; 32];

fn line(who: &str, position: u64) -> AuditLine {
    AuditLine { audit: "denied".into(), who: Some(who.into()), position, ..AuditLine::default() }
}

/// A closed trail with a line for each name, and the two lines of the server.
fn written(directory: &Path, names: &[&str]) {
    let trail = AuditTrail::start(directory.to_owned(), &KEY).unwrap();
    for (position, name) in names.iter().enumerate() {
        trail.append(line(name, position as u64));
    }
    assert!(trail.close());
}

fn stored(directory: &Path) -> Vec<AuditLine> {
    let mut stored = Vec::new();
    lines(directory, |_, line| {
        stored.push(line.expect("it can be read"));
        Ok(true)
    })
    .unwrap();
    stored
}

fn report(directory: &Path, heads: &[Head]) -> Report {
    verify(directory, &KEY, heads, None).unwrap()
}

#[test]
fn a_line_has_a_number_and_the_mac_of_the_line_before_and_only_its_owner_reads_it() {
    let data = tempfile::tempdir().unwrap();
    let directory = data.path().join("audit");
    written(&directory, &["a", "b"]);
    let stored = stored(&directory);
    let told: Vec<_> = stored.iter().map(|line| (line.seq, &*line.audit, line.who.as_deref())).collect();
    assert_eq!(
        told,
        [(1, "opened", None), (2, "denied", Some("a")), (3, "denied", Some("b")), (4, "closed", None)]
    );
    assert_eq!(stored[0].prev, "0".repeat(64));
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let file = &files::list(&directory).unwrap()[0].1;
    assert_eq!((mode(&directory), mode(file)), (0o700, 0o600));
    let report = report(&directory, &[head(&directory).unwrap().unwrap()]);
    assert_eq!((report.lines, report.anchors, report.findings), (4, 1, Vec::new()));
}

/// The line with its MAC in capital letters, which was taken for the same line.
fn shout_mac(text: &str) -> String {
    let (body, mac) = text.rsplit_once("\"mac\"").unwrap();
    format!("{body}\"mac\"{}", mac.to_ascii_uppercase())
}

#[test]
fn x23_a_line_that_is_changed_removed_or_added_is_found() {
    let data = tempfile::tempdir().unwrap();
    let directory = data.path();
    written(directory, &["a", "b", "c"]);
    let path = files::list(directory).unwrap().remove(0).1;
    let whole = fs::read_to_string(&path).unwrap();
    let last = head(directory).unwrap().unwrap();
    let texts: Vec<&str> = whole.split_inclusive('\n').collect();
    let without = |removed: usize| {
        let kept = texts.iter().enumerate().filter(|(at, _)| *at != removed).map(|(_, text)| *text);
        kept.collect::<String>()
    };
    let swapped = [texts[0], texts[2], texts[1], texts[3], texts[4]].concat();
    // By somebody who does not have the key of the data directory.
    let other = tempfile::tempdir().unwrap();
    let forger = AuditTrail::start(other.path().to_owned(), &[8; 32]).unwrap();
    (0..3).for_each(|_| forger.append(line("forged", 0)));
    assert!(forger.close());
    let forged = fs::read_to_string(&files::list(other.path()).unwrap()[0].1).unwrap();
    let tampered = [
        ("a changed line", whole.replacen("\"who\":\"b\"", "\"who\":\"x\"", 1)),
        ("a changed number", whole.replacen("\"seq\":3", "\"seq\":4", 1)),
        ("a MAC in other digits", texts.iter().map(|text| shout_mac(text)).collect()),
        ("a removed line", without(2)),
        ("a removed first line", without(0)),
        ("a removed last line", without(4)),
        ("an end that is cut off", texts[..3].concat()),
        ("a line that is there twice", [texts[0], texts[1], texts[1], texts[2], texts[3], texts[4]].concat()),
        ("lines that changed places", swapped),
        ("a foreign line", [&whole, "{\"audit\":\"allowed\"}\n"].concat()),
        ("another trail", forged),
        ("nothing", String::new()),
    ];
    for (what, text) in tampered {
        fs::write(&path, text).unwrap();
        let report = report(directory, &[last]);
        assert!(!report.findings.is_empty(), "{what} is not found");
    }
    fs::remove_file(&path).unwrap();
    assert!(!report(directory, &[last]).findings.is_empty(), "a removed file is not found");
    fs::write(&path, &whole).unwrap();
    assert_eq!(report(directory, &[last]).findings, []);
    // A line about records that the ledger does not have is of another history.
    let end = |position| Some(LedgerEnd { position, up_to: last.seq });
    assert_eq!(verify(directory, &KEY, &[], end(2)).unwrap().findings, []);
    assert_ne!(verify(directory, &KEY, &[], end(1)).unwrap().findings, []);
}

#[test]
fn a_file_that_is_removed_under_the_writer_leaves_a_gap() {
    let data = tempfile::tempdir().unwrap();
    let trail = AuditTrail::start(data.path().to_owned(), &KEY).unwrap();
    trail.append(line("a", 0));
    assert!(trail.flush());
    fs::remove_file(&files::list(data.path()).unwrap()[0].1).unwrap();
    trail.append(line("b", 0));
    assert!(trail.flush());
    trail.append(line("c", 0));
    assert!(trail.close());
    assert!(!report(data.path(), &[]).findings.is_empty());
}

#[test]
fn the_trail_goes_on_after_a_restart_also_behind_a_line_that_was_cut_off() {
    let data = tempfile::tempdir().unwrap();
    written(data.path(), &["a"]);
    let path = files::list(data.path()).unwrap().remove(0).1;
    let mut text = fs::read_to_string(&path).unwrap();
    text.push_str("{\"seq\":4,\"at\":");
    fs::write(&path, text).unwrap();
    assert!(report(data.path(), &[]).is_torn);
    written(data.path(), &["b"]);
    let stored = stored(data.path());
    let numbers: Vec<_> = stored.iter().map(|line| line.seq).collect();
    assert_eq!(numbers, [1, 2, 3, 4, 5, 6]);
    assert!(stored[3].reason.as_ref().unwrap().contains("14 bytes of an unfinished line"), "{stored:?}");
    assert_eq!(report(data.path(), &[]).findings, []);
}

#[test]
fn a_trail_whose_last_line_was_changed_goes_on_and_the_change_stays_found() {
    let data = tempfile::tempdir().unwrap();
    written(data.path(), &["a"]);
    let path = files::list(data.path()).unwrap().remove(0).1;
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replace("closed", "clowed")).unwrap();
    written(data.path(), &["b"]);
    let found = report(data.path(), &[]).findings;
    assert_eq!(found.len(), 2, "{found:?}");
    assert_eq!(stored(data.path()).len(), 6);
}

#[test]
fn files_are_bounded_and_the_oldest_go() {
    let data = tempfile::tempdir().unwrap();
    let trail = AuditTrail::start_with(data.path().to_owned(), &KEY, 1_000, 3).unwrap();
    for n in 0..100 {
        trail.append(line("a", n));
    }
    assert!(trail.close());
    let kept = files::list(data.path()).unwrap();
    assert_eq!(kept.len(), 3);
    assert!(kept.iter().all(|(_, path)| fs::metadata(path).unwrap().len() <= 1_000));
    assert_eq!(stored(data.path()).last().unwrap().seq, 102);
    let checked = |max_files| verify_with(data.path(), &KEY, &[], None, max_files).unwrap().findings;
    assert_eq!(checked(3), []);
    // Where so many files may be, the oldest one was not removed by the server.
    assert_eq!(checked(MAX_FILES).len(), 1);
}

#[test]
fn lines_that_the_disk_does_not_take_are_counted_in_the_next_one() {
    let data = tempfile::tempdir().unwrap();
    let directory = data.path().join("audit");
    fs::write(&directory, "in the way").unwrap();
    let trail = AuditTrail::start(directory.clone(), &KEY).unwrap();
    for suppressed in [None, Some(4), None] {
        trail.append(AuditLine { suppressed, ..line("a", 0) });
    }
    assert!(trail.flush());
    fs::remove_file(&directory).unwrap();
    trail.append(line("b", 0));
    assert!(trail.close());
    let stored = stored(&directory);
    assert_eq!((stored[1].who.as_deref(), stored[1].suppressed), (Some("b"), Some(7)));
}

/// Regression: where a file had the name of the next one, no further line was written, also not after a restart.
#[test]
fn a_file_in_the_way_of_the_next_one_does_not_end_the_trail() {
    let second_file = {
        let data = tempfile::tempdir().unwrap();
        let trail = AuditTrail::start_with(data.path().to_owned(), &KEY, 1_000, 10).unwrap();
        (0..10).for_each(|n| trail.append(line("a", n)));
        assert!(trail.close());
        files::list(data.path()).unwrap()[1].1.file_name().unwrap().to_owned()
    };
    for (what, content) in [("left by a failed start of the file", ""), ("put there", "{}\n"), ("torn", "{")]
    {
        let data = tempfile::tempdir().unwrap();
        let start = || AuditTrail::start_with(data.path().to_owned(), &KEY, 1_000, 10).unwrap();
        let trail = start();
        trail.append(line("a", 0));
        assert!(trail.flush());
        fs::write(data.path().join(&second_file), content).unwrap();
        (1..10).for_each(|n| trail.append(line("a", n)));
        assert!(trail.close());
        let trail = start();
        trail.append(line("b", 10));
        assert!(trail.close());
        let mut numbers = Vec::new();
        lines(data.path(), |_, line| {
            numbers.extend(line.map(|line| line.seq).filter(|seq| *seq > 0));
            Ok(true)
        })
        .unwrap();
        assert_eq!(numbers, (1..=15).collect::<Vec<_>>(), "{what}");
        let findings = report(data.path(), &[]).findings;
        assert_eq!(findings.is_empty(), content.is_empty(), "{what}: {findings:?}");
        let mode = fs::metadata(data.path().join(&second_file)).unwrap().permissions().mode() & 0o777;
        assert!(!content.is_empty() || mode == 0o600, "{what}: {mode:o}");
    }
}
