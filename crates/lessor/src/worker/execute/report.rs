//! The report on an executed action, as text and as JSON.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use blobs::Digest;
use jiff::Timestamp;
use serde::Serialize;
use wire::grpc::ActionResult;
use worker::action::Once;

use super::outputs::{Produced, differences, list};
use crate::client::show::{Cell, Record, Table, text};

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Report {
    action_digest: String,
    input_root: PathBuf,
    input_files: usize,
    command: Vec<String>,
    environment: BTreeMap<String, String>,
    working_directory: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    timeout_ms: Option<u128>,
    started_at: Option<Timestamp>,
    ended_at: Option<Timestamp>,
    run_ms: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<Used>,
    #[serde(skip_serializing_if = "Option::is_none")]
    exit_code: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    failure: Option<String>,
    stdout: PathBuf,
    stderr: PathBuf,
    outputs: Vec<Produced>,
    /// None when the action cache has no result, or there is none to compare.
    #[serde(skip_serializing_if = "Option::is_none")]
    differences: Option<Vec<String>>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Used {
    user_ms: u128,
    system_ms: u128,
    /// None where the backend cannot tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    max_rss_bytes: Option<u64>,
}

impl Report {
    pub(super) fn new(action: &Digest, once: &Once, kept: Option<&ActionResult>) -> Report {
        let result = once.ended.as_ref().ok();
        let environment = once.command.environment_variables.iter();
        Report {
            action_digest: action.to_string(),
            input_root: once.input_root.clone(),
            input_files: once.input_files,
            command: once.command.arguments.clone(),
            environment: environment.map(|one| (one.name.clone(), one.value.clone())).collect(),
            working_directory: once.command.working_directory.clone(),
            timeout_ms: once.timeout.map(|timeout| timeout.as_millis()),
            started_at: Timestamp::try_from(once.ran.started_at).ok(),
            ended_at: Timestamp::try_from(once.ran.ended_at).ok(),
            run_ms: once.ran.run_time.as_secs_f64() * 1_000.0,
            usage: once.ran.usage.as_ref().map(|usage| Used {
                user_ms: usage.user_time.as_millis(),
                system_ms: usage.system_time.as_millis(),
                max_rss_bytes: Some(usage.max_rss_bytes).filter(|bytes| *bytes > 0),
            }),
            exit_code: result.map(|result| result.exit_code),
            failure: once.ended.as_ref().err().map(ToString::to_string),
            stdout: once.stdout.clone(),
            stderr: once.stderr.clone(),
            outputs: result.map(list).unwrap_or_default(),
            differences: result.zip(kept).map(|(ours, kept)| differences(ours, kept)),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut record = Record::new("action", &self.action_digest);
        record.field(
            "inputs",
            format!("{} in {}", text::counted(self.input_files, "file"), self.input_root.display()),
        );
        record.field("command", self.command.join(" "));
        for (name, value) in &self.environment {
            record.field("environment", format!("{name}={value}"));
        }
        let directory = Some(&self.working_directory).filter(|directory| !directory.is_empty());
        record.optional("directory", directory);
        record.optional("timeout", self.timeout_ms.map(|timeout| format!("{timeout} ms")));
        record.optional("started", self.started_at.map(|time| time.to_string()));
        record.field("ran", format!("{:.1} ms", self.run_ms));
        record.optional(
            "used",
            self.usage.as_ref().map(|used| {
                let rss = used.max_rss_bytes.map(|bytes| format!(", {} MiB at most", bytes >> 20));
                let rss = rss.unwrap_or_default();
                format!("{} ms user, {} ms system{rss}", used.user_ms, used.system_ms)
            }),
        );
        record.optional("exit code", self.exit_code.map(|code| code.to_string()));
        record.optional("failed", self.failure.as_ref());
        record.field("stdout", self.stdout.display().to_string());
        record.field("stderr", self.stderr.display().to_string());
        write!(f, "{record}")?;
        if !self.outputs.is_empty() {
            let mut table = Table::new(&["OUTPUT", "KIND", "CONTENT"]);
            for output in &self.outputs {
                table.row([output.path.as_str(), output.kind, &output.content].map(Cell::text));
            }
            write!(f, "\n{table}")?;
        }
        match &self.differences {
            None => writeln!(f, "\nThe action cache has nothing to compare with."),
            Some(lines) if lines.is_empty() => writeln!(f, "\nThe same as the result in the action cache."),
            Some(lines) => {
                writeln!(f, "\nDiffers from the result in the action cache:")?;
                lines.iter().try_for_each(|line| writeln!(f, "  {}", text::clean(line)))
            }
        }
    }
}
