//! `lessor audit --verify`: checks the audit trail against its chain, its key and the ledger.

use std::ops::ControlFlow;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result};
use authority::Event;
use history::time_travel::records;
use jiff::Timestamp;
use ledger::Reader;
use serde_json::{Value, json};
use server::audit_trail::{self, Finding, Head, LedgerEnd, Report};

use crate::client::show::time::full;
use crate::client::show::{Output, Record, note, text};
use crate::cluster_key::ClusterKey;
use crate::config::{Config, LedgerBackend};
use crate::{data_dir, exit, ledger_backend};

pub(super) fn run(data: &Path, directory: &Path, config: Option<&Config>, json: bool) -> Result<ExitCode> {
    let cluster = config.filter(|config| config.ledger.backend == LedgerBackend::Postgres);
    let key = match cluster {
        Some(config) => ClusterKey::read(config.cluster.key_file()?)?.lease_key(),
        None => data_dir::read_lease_key(data)?,
    };
    // The trail is read last: a running server records nothing about lines that are not there yet. The lines that came
    // after this are newer than what was read of the ledger.
    let cut = audit_trail::head(directory).with_context(|| format!("cannot read {}", directory.display()))?;
    let (heads, end) = match cluster {
        Some(config) => {
            let node = config.cluster.node()?;
            // What a server wrote before its ledger was migrated belongs to its trail too.
            let is_own = |by: &str| by == node || by == coordinator::Options::default().node;
            anchors(&*ledger_backend::inspect_database(config.postgres.server()?)?, is_own)?
        }
        None => anchors(&*ledger_backend::inspect(data)?, |_| true)?,
    };
    let ledger_end = LedgerEnd { position: end, up_to: cut.map_or(0, |head| head.seq) };
    let report = audit_trail::verify(directory, &key, &heads, Some(ledger_end))
        .with_context(|| format!("cannot read {}", directory.display()))?;
    if json {
        Output::new().line(as_json(&report))?;
    } else {
        Output::new().print(summary(&report, Timestamp::now()))?;
        for finding in &report.findings {
            note(text::clean(&format!("lessor: {}", in_words(finding))));
        }
    }
    Ok(if report.findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(exit::REFUSED) })
}

/// The heads of the trail that the ledger recorded at the starts of its server, and its last position.
fn anchors(reader: &dyn Reader, is_own: impl Fn(&str) -> bool) -> Result<(Vec<Head>, u64)> {
    let (mut heads, mut end) = (Vec::new(), 0);
    records(reader, reader.first()?, &mut |position, record| {
        if let Event::OwnerTookOver(event) = &record.event
            && is_own(&event.node)
        {
            heads.extend(event.audit_head.as_deref().and_then(Head::parse));
        }
        end = position.0;
        ControlFlow::Continue(())
    })?;
    Ok((heads, end))
}

fn summary(report: &Report, now: Timestamp) -> String {
    let verdict = match report.findings.len() {
        0 => "sound".to_owned(),
        many => format!("NOT AS IT WAS WRITTEN, {}", text::counted(many, "finding")),
    };
    let mut record = Record::new("audit trail", &verdict);
    let shown = |(seq, at): (u64, Timestamp)| format!("{seq} at {}", full(at, now));
    record.field("files", report.files.to_string());
    record.field("lines", report.lines.to_string());
    record.optional("first", report.first.map(shown));
    record.optional("last", report.last.map(shown));
    record.field("known to the ledger", text::counted(report.anchors, "line"));
    if report.is_torn {
        record.field("unfinished", "a last line that a server is writing or that a crash cut off");
    }
    record.to_string()
}

fn in_words(finding: &Finding) -> String {
    match finding.file.as_str() {
        "" => finding.what.clone(),
        file => format!("{file}, line {}: {}", finding.line, finding.what),
    }
}

fn as_json(report: &Report) -> Value {
    let line = |(seq, at): (u64, Timestamp)| json!({"seq": seq, "at": at});
    json!({
        "ok": report.findings.is_empty(),
        "files": report.files,
        "lines": report.lines,
        "first": report.first.map(line),
        "last": report.last.map(line),
        "knownToLedger": report.anchors,
        "unfinished": report.is_torn,
        "findings": report.findings.iter().map(|finding| json!({
            "file": finding.file, "line": finding.line, "what": finding.what,
        })).collect::<Vec<_>>(),
    })
}
