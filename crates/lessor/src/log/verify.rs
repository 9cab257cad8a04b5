//! `lessor log verify`: verifies everything in a ledger, from beginning to end.

use std::process::ExitCode;

use anyhow::Result;
use authority::{Position, Time};
use history::verify::{FilesReport, Finding, VerifyReport, verify_files};
use jiff::Timestamp;
use ledger::file::Inspection;
use serde_json::{Value, json};

use super::progress::Progress;
use crate::client::show::time::full;
use crate::client::show::{Output, Record, note, text};
use crate::exit;

#[derive(clap::Args)]
#[command(after_help = "\
Reads every segment frame by frame, applies every record, reads every snapshot, and compares the state that each \
snapshot leads to with the replay, by digest. Old history may be trimmed; then the replay begins with the oldest \
snapshot, and the summary says so. A last batch that is not whole is no damage: it was never acknowledged.

Every damage is named with file, byte and the positions at risk, and the exit code is 3.

Examples:
  lessor log verify
  lessor log verify --data backup/lessor --json | jq .damages")]
pub(super) struct Options {}

pub(super) fn run(inspection: &Inspection, json: bool) -> Result<ExitCode> {
    let progress = Progress::new("Verifying", inspection.segments().map(|segment| segment.bytes).sum());
    let report = verify_files(inspection, &mut |bytes| progress.at(bytes))?;
    let findings = &report.content.findings;
    drop(progress);
    if json {
        Output::new().line(as_json(&report))?;
    } else {
        Output::new().print(summary(&report, Timestamp::now()))?;
        for finding in findings {
            note(text::clean(&format!("lessor: {}", render_finding(finding))));
        }
    }
    Ok(if findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(exit::REFUSED) })
}

fn summary(report: &FilesReport, now: Timestamp) -> String {
    let content = &report.content;
    let verdict = match content.findings.len() {
        0 => "sound".to_owned(),
        1 => "DAMAGED in 1 place".to_owned(),
        many => format!("DAMAGED in {many} places"),
    };
    let mut record = Record::new("ledger", &verdict);
    let shown =
        |(position, at): (Position, Time)| format!("{position} at {}", full(server::to_wire::time(at), now));
    record.field("cluster", report.cluster.to_string());
    record.field("segments", report.segments.to_string());
    record.field("frames", report.frames.to_string());
    record.field("records", content.records.to_string());
    record.field("bytes", report.bytes.to_string());
    record.optional("first", content.first.map(shown));
    record.optional("last", content.last.map(shown));
    record.field("history", history(content));
    for snapshot in &content.snapshots {
        let verdict = if snapshot.is_proven {
            "the same state as the replay"
        } else {
            "readable, but there was no replay to compare it with"
        };
        let info = &snapshot.info;
        record.field("snapshot", format!("{} to {}: {verdict}", info.begin, info.end));
    }
    if let Some(unfinished) = &report.unfinished {
        record.field(
            "unfinished",
            format!(
                "{} at byte {}: a batch from position {} that a server is writing or that a crash cut off; \
                 never acknowledged",
                unfinished.file, unfinished.offset, unfinished.first
            ),
        );
    }
    if let Some(digest) = content.digest {
        record.field("tasks", content.tasks.to_string());
        record.field("digest", digest.to_string());
    }
    record.to_string()
}

fn history(content: &VerifyReport) -> String {
    match (content.is_whole, content.replayed_from) {
        (true, Some(Position::ZERO)) => "whole; every record was applied".to_owned(),
        (false, Some(from)) => format!(
            "trimmed; records after {from} were applied to the oldest snapshot, those before could only be read"
        ),
        (true, Some(from)) => format!("damaged; records after {from} were applied to the next snapshot"),
        (_, None) => "damaged; the records behind could only be read".to_owned(),
    }
}

fn render_finding(finding: &Finding) -> String {
    let Finding { file, offset, what, from, to } = finding;
    let at_risk = match to {
        Some(to) => format!("{from} to {to}"),
        None => format!("{from} and after"),
    };
    format!("{file} at byte {offset}: {what}; positions at risk: {at_risk}")
}

fn as_json(report: &FilesReport) -> Value {
    let content = &report.content;
    let at = |(_, at): (Position, Time)| server::to_wire::time(at);
    json!({
        "ok": content.findings.is_empty(),
        "cluster": report.cluster.to_string(),
        "segments": report.segments,
        "frames": report.frames,
        "records": content.records,
        "bytes": report.bytes,
        "firstPosition": content.first.map(|(position, _)| position.0),
        "firstAt": content.first.map(at),
        "lastPosition": content.last.map(|(position, _)| position.0),
        "lastAt": content.last.map(at),
        "wholeHistory": content.is_whole,
        "replayedFrom": content.replayed_from.map(|position| position.0),
        "tasks": content.digest.map(|_| content.tasks),
        "digest": content.digest.map(|digest| digest.to_string()),
        "snapshots": content.snapshots.iter().map(|snapshot| json!({
            "file": snapshot.info.name,
            "begin": snapshot.info.begin.0,
            "end": snapshot.info.end.0,
            "blocks": snapshot.blocks,
            "proven": snapshot.is_proven,
        })).collect::<Vec<_>>(),
        "unfinished": report.unfinished.as_ref().map(|unfinished| json!({
            "file": unfinished.file,
            "offset": unfinished.offset,
            "position": unfinished.first.0,
        })),
        "damages": content.findings.iter().map(|finding| json!({
            "file": finding.file,
            "offset": finding.offset,
            "what": finding.what,
            "from": finding.from.0,
            "to": finding.to.map(|to| to.0),
        })).collect::<Vec<_>>(),
    })
}
