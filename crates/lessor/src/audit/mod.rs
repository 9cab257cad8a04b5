//! `lessor audit`: the audit trail, read from the data directory: who was denied, and who changed what. It takes no lock and
//! changes nothing, so it works beside a running server and on a copy.

mod verify;

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use server::audit_trail::{self, AuditLine};

use crate::client::show::{Output, note, text};
use crate::config::Config;
use crate::log::moment::{self, Moment};

#[derive(clap::Args)]
#[command(after_help = "\
A line has its time, the verdict, who called from where, the call, and its status or the reason of the denial. A moment is \
a time (2030-01-31T12:00:00Z), how long ago it was (10m) or a position of the ledger (1234).

With --verify every line is checked against the one before it, against the key of the data directory and against the \
ledger; what was changed, removed or added is named.

Examples:
  lessor audit --denied --since 1h
  lessor audit --who ci --call cancel
  lessor audit --json --since 1d | jq 'select(.kind == \"token\")'
  lessor audit --verify

Exit codes: 0 sound, 1 no answer, 2 wrong usage, 3 the trail was tampered with or is damaged.")]
pub(crate) struct Options {
    /// The data directory of a server, or a copy of it
    #[arg(long, value_name = "DIR", default_value = ".lessor", env = "LESSOR_DATA")]
    data: PathBuf,

    /// The configuration of a server, instead of --data; needed with --verify where the ledger is in PostgreSQL
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Only calls of this caller, by its name or id
    #[arg(long, value_name = "NAME")]
    who: Option<String>,

    /// From this moment on
    #[arg(long, value_name = "MOMENT", value_parser = moment::parse)]
    since: Option<Moment>,

    /// Up to this moment, inclusive
    #[arg(long, value_name = "MOMENT", value_parser = moment::parse)]
    until: Option<Moment>,

    /// Only calls that were denied
    #[arg(long)]
    denied: bool,

    /// Only calls whose method and path contain this text, such as `DELETE /v1/keys`
    #[arg(long, value_name = "TEXT")]
    call: Option<String>,

    /// Print the lines as they are stored, one JSON object to a line
    #[arg(long)]
    json: bool,

    /// Check that no line was changed, removed or added
    #[arg(long, conflicts_with_all = ["who", "since", "until", "denied", "call"])]
    verify: bool,
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let config = options.config.as_deref().map(Config::read).transpose()?;
    let data = config.as_ref().map_or(&options.data, |config| &config.data.dir);
    let directory = data.join(audit_trail::DIRECTORY);
    if options.verify {
        return verify::run(data, &directory, config.as_ref(), options.json);
    }
    print(options, &directory).with_context(|| format!("cannot read {}", directory.display()))?;
    Ok(ExitCode::SUCCESS)
}

fn print(options: &Options, directory: &Path) -> Result<()> {
    let (mut output, mut unreadable) = (Output::new(), 0_usize);
    audit_trail::lines(directory, |stored, line| {
        let Some(line) = line else {
            unreadable += 1;
            return Ok(true);
        };
        if options.wants(&line) {
            let shown = if options.json { stored.to_owned() } else { in_words(&line) };
            output.line(shown).map_err(io::Error::other)?;
        }
        Ok(!output.is_closed())
    })?;
    if unreadable > 0 {
        note(format!("{} cannot be read; see lessor audit --verify", text::counted(unreadable, "line")));
    }
    Ok(())
}

impl Options {
    fn wants(&self, line: &AuditLine) -> bool {
        let is_from = |moment: Moment| match moment {
            Moment::Position(position) => line.position >= position.0,
            Moment::Time(time) => line.at >= server::to_wire::time(time),
        };
        let is_until = |moment: Moment| match moment {
            Moment::Position(position) => line.position <= position.0,
            Moment::Time(time) => line.at <= server::to_wire::time(time),
        };
        let is_who = |name: &String| line.who.as_ref() == Some(name) || line.id.as_ref() == Some(name);
        self.since.is_none_or(is_from)
            && self.until.is_none_or(is_until)
            && self.who.as_ref().is_none_or(is_who)
            && (!self.denied || line.audit == "denied")
            && self.call.as_ref().is_none_or(|text| call(line).contains(&**text))
    }
}

fn call(line: &AuditLine) -> String {
    let words = [line.method.as_deref(), line.path.as_deref()];
    words.into_iter().flatten().collect::<Vec<_>>().join(" ")
}

/// The line for people, such as `2030-01-31T12:00:00Z denied POST /v1/tasks forbidden, by the key ci (4f2a) from 10.0.0.5`.
fn in_words(line: &AuditLine) -> String {
    let mut words = format!("{:.3} {}", line.at, line.audit);
    let mut add = |before: &str, text: Option<String>| {
        words.extend(text.filter(|text| !text.is_empty()).map(|text| format!("{before}{text}")));
    };
    add(" ", Some(call(line)));
    add(" ", line.status.map(|status| status.to_string()));
    add(" ", line.reason.clone());
    let who = line.who.as_ref().map(|who| match (&line.kind, &line.id) {
        (Some(kind), Some(id)) => format!("the {kind} {who} ({id})"),
        _ => who.clone(),
    });
    add(", by ", who);
    add(" from ", line.from.clone());
    add(" with ", line.tool.clone());
    add(", invocation ", line.invocation_id.clone());
    add(", request ", line.request_id.clone());
    add(", suppressed before: ", line.suppressed.map(|count| count.to_string()));
    text::clean(&words)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        options: Options,
    }

    fn line() -> AuditLine {
        AuditLine {
            seq: 7,
            at: "2030-01-31T12:00:00Z".parse().unwrap(),
            position: 40,
            audit: "denied".into(),
            reason: Some("forbidden".into()),
            who: Some("ci\u{1b}".into()),
            kind: Some("key".into()),
            id: Some("4f2a".into()),
            from: Some("10.0.0.5".into()),
            method: Some("POST".into()),
            path: Some("/v1/tasks".into()),
            suppressed: Some(3),
            ..AuditLine::default()
        }
    }

    #[test]
    fn a_line_is_told_in_words_without_escape_sequences() {
        assert_eq!(
            in_words(&line()),
            "2030-01-31T12:00:00.000Z denied POST /v1/tasks forbidden, by the key ci\\u{1b} (4f2a) from 10.0.0.5, \
             suppressed before: 3"
        );
    }

    #[test]
    fn lines_are_filtered_by_caller_time_verdict_and_call() {
        for (filter, expected) in [
            (&["--who", "4f2a"][..], true),
            (&["--who", "4f"], false),
            (&["--denied", "--call", "POST /v1/ta"], true),
            (&["--call", "PUT"], false),
            (&["--since", "2030-01-31T12:00:00Z", "--until", "2030-01-31T12:00:00Z"], true),
            (&["--since", "2030-01-31T12:00:01Z"], false),
            (&["--until", "39"], false),
            (&["--since", "40"], true),
        ] {
            let cli = Cli::parse_from(["audit"].iter().chain(filter));
            assert_eq!(cli.options.wants(&line()), expected, "{filter:?}");
        }
    }
}
