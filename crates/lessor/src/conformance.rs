//! `lessor conformance`: checks whether a coordinator conforms to a contract, requirement by requirement.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use anstyle::{AnsiColor, Style};
use anyhow::{Context, Result};
use conformance::{Check, Contract, Finding, Outcome, Subject};
use lessor_sdk::protocol::Url;
use serde_json::json;

use crate::client::Error;
use crate::client::connection::parse_url;
use crate::client::show::Output;
use crate::client::show::text::clean;
use crate::exit;

#[derive(clap::Args)]
#[command(after_help = "Examples:\n  lessor conformance --contract claim\n  \
    lessor conformance --url http://coordinator:8980 --contract native,grpc --json\n  \
    lessor conformance --contract callback --only S1-22,S1-31\n  \
    lessor conformance --contract reapi --url grpc://executor:8980 --instance main\n  \
    lessor conformance --contract native,claim --url http://node-1:8980 --url http://node-2:8980\n  lessor conformance --list --contract grpc\n\n\
    The coordinator need not be Lessor and need not be empty: all queues of a run have unique names. The queues \
    remain after the run, without push targets.\n\n\
    If a contract cannot submit, cancel or show a task, or configure a queue, the suite uses the native \
    endpoints: POST /v1/tasks, GET /v1/tasks/{taskId} with waitMs and its history, \
    POST /v1/tasks/{taskId}/cancel, PUT /v1/queues/{name}, GET /v1/workers.\n\n\
    For the contract callback the suite is the push target. It listens at --push-listen, and the coordinator must be \
    able and allowed to reach it: `lessor up --allow-private-push-targets`.\n\n\
    Exit codes: 0 no check failed, 1 a check failed or no server answers, 2 the command line is not valid.")]
pub(crate) struct Options {
    /// The contracts to check: native, claim, callback, grpc, reapi
    #[arg(long, value_name = "CONTRACT", value_delimiter = ',', required_unless_present = "list")]
    contract: Vec<Contract>,

    /// Only the checks about these requirements
    #[arg(long, value_name = "NUMBER", value_delimiter = ',')]
    only: Vec<String>,

    /// List the checks, and the requirements that cannot be checked from outside, without a server; of all contracts by default
    #[arg(long)]
    list: bool,

    /// Print one JSON object per line instead of a table
    #[arg(long)]
    json: bool,

    /// The coordinator to check; for a cluster, once for each node: every request goes to a random one
    #[arg(long, value_name = "URL", env = "LESSOR_URL", value_delimiter = ',')]
    #[arg(default_value = "http://127.0.0.1:8980", value_parser = parse_subject_url)]
    url: Vec<Url>,

    #[command(flatten)]
    subject: conformance::Options,
}

/// Clients of the Remote Execution API write `grpc://` for HTTP/2 without TLS.
fn parse_subject_url(text: &str) -> Result<Url, String> {
    match parse_url(text)? {
        url if url.scheme() == "http" => Ok(url),
        _ => Err("TLS is not supported here, only http and grpc".to_owned()),
    }
}

pub(crate) async fn run(options: &Options) -> Result<ExitCode> {
    let contracts = if options.contract.is_empty() { &Contract::ALL[..] } else { &options.contract };
    let chosen: Vec<(Contract, Vec<&'static Check>)> =
        contracts.iter().map(|contract| (*contract, options.chosen(*contract))).collect();
    if chosen.iter().all(|(_, checks)| checks.is_empty()) {
        let what = format!("no check is about {}; --list shows all", options.only.join(", "));
        return Err(Error::Usage(what).into());
    }
    let mut output = Output::new();
    if options.list {
        for (contract, checks) in chosen {
            list(&mut output, contract, &checks, options)?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let urls = options.url.iter().map(Url::to_string).collect();
    let subject = Subject::connect(conformance::Options { urls, ..options.subject.clone() });
    let subject = Arc::new(subject.await.context("nothing was checked")?);
    let mut failed = 0;
    for (contract, checks) in chosen {
        failed += run_contract(&mut output, &subject, contract, checks, options.json).await?;
    }
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::from(exit::FAILED) })
}

impl Options {
    fn chosen(&self, contract: Contract) -> Vec<&'static Check> {
        contract.checks().into_iter().filter(|check| check.is_about(&self.only)).collect()
    }
}

fn list(output: &mut Output, contract: Contract, checks: &[&Check], options: &Options) -> Result<()> {
    let unobservable = contract.unobservable().iter().filter(|_| options.only.is_empty());
    if options.json {
        for check in checks {
            output
                .line(json!({"contract": contract.name(), "numbers": check.numbers, "check": check.says}))?;
        }
        for (number, why) in unobservable {
            output.line(json!({"contract": contract.name(), "numbers": [number], "unobservable": why}))?;
        }
        return Ok(());
    }
    let layout = Layout::of(checks);
    output.line(layout.title(contract, &["NUMBER", "CHECK"]))?;
    for check in checks {
        output.line(format_args!("{:<1$}  {2}", numbers(check), layout.numbers, check.says))?;
    }
    for (number, why) in unobservable {
        output.line(format_args!("{number:<0$}  not observable: {why}", layout.numbers))?;
    }
    Ok(())
}

/// Runs the checks of one contract and prints each outcome; returns how many failed.
async fn run_contract(
    output: &mut Output,
    subject: &Arc<Subject>,
    contract: Contract,
    checks: Vec<&'static Check>,
    as_json: bool,
) -> Result<usize> {
    let layout = Layout::of(&checks);
    if !as_json {
        output.line(layout.title(contract, &["NUMBER", "CHECK", "OUTCOME", "MS"]))?;
    }
    let start = Instant::now();
    let mut written = Ok(());
    let outcomes = conformance::run(subject.clone(), checks, |outcome| {
        let line = if as_json { object(contract, outcome) } else { layout.row(outcome) };
        if written.is_ok() {
            written = output.line(line);
        }
    });
    let outcomes = outcomes.await;
    written?;
    let count = |label: &str| outcomes.iter().filter(|outcome| self::label(outcome).0 == label).count();
    let (passed, failed, skipped) = (count("PASS"), count("FAIL"), count("SKIP"));
    let ms = start.elapsed().as_millis();
    if as_json {
        output.line(
            json!({"contract": contract.name(), "passed": passed, "failed": failed, "skipped": skipped,
            "ms": ms as u64}),
        )?;
    } else {
        let end = if failed == 0 { "nothing failed" } else { "the coordinator does not conform" };
        output.line(format_args!(
            "{contract}: {passed} passed, {failed} failed, {skipped} skipped in {:.1} s; {end}\n",
            ms as f64 / 1_000.0
        ))?;
    }
    Ok(failed)
}

/// The widths of the columns, known before the first row is printed.
struct Layout {
    numbers: usize,
    says: usize,
}

impl Layout {
    fn of(checks: &[&Check]) -> Layout {
        Layout {
            numbers: checks.iter().map(|check| numbers(check).len()).max().unwrap_or(0).max("NUMBER".len()),
            says: checks.iter().map(|check| check.says.chars().count()).max().unwrap_or(0),
        }
    }

    fn title(&self, contract: Contract, headings: &[&str]) -> String {
        let bold = Style::new().bold();
        let widths = [self.numbers, self.says, "OUTCOME".len(), 6];
        let cells = headings.iter().zip(widths).map(|(heading, width)| match *heading {
            "MS" => format!("{heading:>width$}"),
            _ => format!("{heading:<width$}"),
        });
        let cells: Vec<_> = cells.collect();
        format!("Contract {contract}\n{bold}{}{bold:#}", cells.join("  ").trim_end())
    }

    fn row(&self, outcome: &Outcome) -> String {
        let (label, style) = label(outcome);
        let (numbers, says, ms) = (numbers(outcome.check), outcome.check.says, outcome.took.as_millis());
        // A finding may quote the coordinator.
        let reason = outcome.finding.as_ref().map(|finding| clean(&finding.to_string()));
        let reason = reason.map(|reason| format!("\n{:1$}  {reason}", "", self.numbers));
        let check = format!("{numbers:<0$}  {says:<1$}", self.numbers, self.says);
        format!("{check}  {style}{label:<7}{style:#}  {ms:>6}{}", reason.unwrap_or_default())
    }
}

fn object(contract: Contract, outcome: &Outcome) -> String {
    let mut object = json!({"contract": contract.name(), "numbers": outcome.check.numbers,
        "check": outcome.check.says, "outcome": label(outcome).0, "ms": outcome.took.as_millis() as u64});
    if let Some(finding) = &outcome.finding {
        object["reason"] = json!(finding.to_string());
    }
    object.to_string()
}

fn numbers(check: &Check) -> String {
    check.numbers.join(", ")
}

fn label(outcome: &Outcome) -> (&'static str, Style) {
    match &outcome.finding {
        None => ("PASS", AnsiColor::Green.on_default()),
        Some(Finding::Broken(_)) => ("FAIL", AnsiColor::Red.on_default().bold()),
        Some(Finding::Skipped(_)) => ("SKIP", AnsiColor::Yellow.on_default()),
    }
}
