//! `lessor log verify`: verifies everything in a ledger, from beginning to end.

use std::process::ExitCode;

use anyhow::Result;
use authority::{Position, Time};
use history::verify::{VerifyReport, verify};
use jiff::Timestamp;
use ledger::Reader;
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

pub(super) fn run(reader: &dyn Reader, json: bool) -> Result<ExitCode> {
    let progress = Progress::new("Verifying", reader.stored_bytes());
    let report = verify(reader, &mut |bytes| progress.at(bytes))?;
    drop(progress);
    if json {
        Output::new().line(as_json(&report))?;
    } else {
        Output::new().print(summary(&report, Timestamp::now()))?;
        for damage in &report.damages {
            note(text::clean(&format!("lessor: {damage}")));
        }
    }
    Ok(if report.damages.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(exit::REFUSED) })
}

fn summary(report: &VerifyReport, now: Timestamp) -> String {
    let verdict = match report.damages.len() {
        0 => "sound".to_owned(),
        1 => "DAMAGED in 1 place".to_owned(),
        many => format!("DAMAGED in {many} places"),
    };
    let mut record = Record::new("ledger", &verdict);
    let shown =
        |(position, at): (Position, Time)| format!("{position} at {}", full(server::to_wire::time(at), now));
    record.optional("cluster", report.cluster.map(|cluster| cluster.to_string()));
    for (part, count) in &report.parts {
        record.field(part, count.to_string());
    }
    record.field("records", report.records.to_string());
    record.field("bytes", report.bytes.to_string());
    record.optional("first", report.first.map(shown));
    record.optional("last", report.last.map(shown));
    record.field("history", history(report));
    for snapshot in &report.snapshots {
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
    if let Some(digest) = report.digest {
        record.field("tasks", report.tasks.to_string());
        record.field("digest", digest.to_string());
    }
    record.to_string()
}

fn history(report: &VerifyReport) -> String {
    match (report.is_whole, report.replayed_from) {
        (true, Some(Position::ZERO)) => "whole; every record was applied".to_owned(),
        (false, Some(from)) => format!(
            "trimmed; records after {from} were applied to the oldest snapshot, those before could only be read"
        ),
        (true, Some(from)) => format!("damaged; records after {from} were applied to the next snapshot"),
        (_, None) => "damaged; the records behind could only be read".to_owned(),
    }
}

fn as_json(report: &VerifyReport) -> Value {
    let at = |(_, at): (Position, Time)| server::to_wire::time(at);
    let mut value = json!({
        "ok": report.damages.is_empty(),
        "cluster": report.cluster.map(|cluster| cluster.to_string()),
        "records": report.records,
        "bytes": report.bytes,
        "firstPosition": report.first.map(|(position, _)| position.0),
        "firstAt": report.first.map(at),
        "lastPosition": report.last.map(|(position, _)| position.0),
        "lastAt": report.last.map(at),
        "wholeHistory": report.is_whole,
        "replayedFrom": report.replayed_from.map(|position| position.0),
        "tasks": report.digest.map(|_| report.tasks),
        "digest": report.digest.map(|digest| digest.to_string()),
        "snapshots": report.snapshots.iter().map(|snapshot| json!({
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
        "damages": report.damages.iter().map(|damage| json!({
            "file": damage.file,
            "offset": damage.offset,
            "what": damage.what,
            "from": damage.from.0,
            "to": damage.to.map(|to| to.0),
        })).collect::<Vec<_>>(),
    });
    for (part, count) in &report.parts {
        value[*part] = json!(count);
    }
    value
}
