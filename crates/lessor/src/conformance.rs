//! `lessor conformance`: whether a coordinator keeps a contract, requirement by requirement.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use anstyle::{AnsiColor, Style};
use anyhow::{Context, Result};
use conformance::{Check, Contract, Finding, Outcome, Subject};
use reqwest::Url;
use serde_json::json;
use wire::DEFAULT_SCOPE_NAME;

use crate::client::Error;
use crate::client::connection::parse_url;
use crate::client::show::Output;
use crate::client::show::text::clean;
use crate::exit;

#[derive(clap::Args)]
#[command(after_help = "Examples:\n  lessor conformance --contract claim\n  \
    lessor conformance --url http://coordinator:8980 --contract native,grpc --json\n  \
    lessor conformance --contract callback --only S1-22,S1-31\n  \
    lessor conformance --contract reapi --url grpc://executor:8980 --instance main\n  lessor conformance --list --contract grpc\n\n\
    The coordinator need not be Lessor, and need not be empty: all queues of a run have names of their own. They are \
    left behind, without push targets.\n\n\
    Where a contract has no way to submit a task, to configure a queue, to cancel or to look at a task, the native \
    endpoints are the operator's side: POST /v1/tasks, GET /v1/tasks/{taskId} with waitMs and its history, \
    POST /v1/tasks/{taskId}/cancel, PUT /v1/queues/{name}, GET /v1/workers.\n\n\
    For the contract callback the suite is the push target: it listens at --push-listen, and the coordinator must be \
    able to reach it, and be willing to: `lessor up --allow-private-push-targets`.\n\n\
    Exit codes: 0 nothing failed, 1 something failed or nothing answers, 2 the command was not understood.")]
pub struct Options {
    /// The contracts to check: native, claim, callback, grpc, reapi
    #[arg(long, value_name = "CONTRACT", value_delimiter = ',', required_unless_present = "list")]
    contract: Vec<Contract>,

    /// Only the checks about these requirements
    #[arg(long, value_name = "NUMBER", value_delimiter = ',')]
    only: Vec<String>,

    /// Show the checks, of all contracts if none is named, and what cannot be checked from outside, without a server
    #[arg(long)]
    list: bool,

    /// One JSON object a line instead of a table
    #[arg(long)]
    json: bool,

    /// The coordinator to check
    #[arg(
        long,
        value_name = "URL",
        env = "LESSOR_URL",
        default_value = "http://127.0.0.1:8980",
        value_parser = parse_subject_url
    )]
    url: Url,

    /// The tenant to act for
    #[arg(long, value_name = "NAME", env = "LESSOR_TENANT", default_value = DEFAULT_SCOPE_NAME)]
    tenant: String,

    /// The tenant's workspace to act in
    #[arg(long, value_name = "NAME", env = "LESSOR_WORKSPACE", default_value = DEFAULT_SCOPE_NAME)]
    workspace: String,

    /// The instance of the Remote Execution API to act in
    #[arg(long, value_name = "NAME", default_value = "")]
    instance: String,

    /// What the names of all queues and workers of the run begin with
    #[arg(long, value_name = "TEXT", default_value = "conformance")]
    queue_prefix: String,

    /// Where to listen for the tasks that are pushed
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0")]
    push_listen: String,

    /// Where the coordinator reaches that; by default http:// and the address
    #[arg(long, value_name = "URL")]
    push_url: Option<String>,
}

/// Clients of the Remote Execution API write `grpc://` for what is HTTP/2 without TLS.
fn parse_subject_url(text: &str) -> Result<Url, String> {
    match text.strip_prefix("grpc://") {
        Some(rest) => parse_url(&format!("http://{rest}")),
        None => parse_url(text),
    }
}

pub async fn run(options: &Options) -> Result<ExitCode> {
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
    let subject = Subject::connect(conformance::Options {
        url: options.url.to_string(),
        tenant: options.tenant.clone(),
        workspace: options.workspace.clone(),
        instance: options.instance.clone(),
        queue_prefix: options.queue_prefix.clone(),
        push_listen: options.push_listen.clone(),
        push_url: options.push_url.clone(),
    });
    let subject = Arc::new(subject.await.context("nothing was checked")?);
    let mut failed = 0;
    for (contract, checks) in chosen {
        failed += look(&mut output, &subject, contract, checks, options.json).await?;
    }
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::from(exit::FAILED) })
}

impl Options {
    fn chosen(&self, contract: Contract) -> Vec<&'static Check> {
        contract.checks().into_iter().filter(|check| check.is_about(&self.only)).collect()
    }
}

fn list(output: &mut Output, contract: Contract, checks: &[&Check], options: &Options) -> Result<()> {
    let unseen = contract.unobservable().iter().filter(|_| options.only.is_empty());
    if options.json {
        for check in checks {
            output
                .line(json!({"contract": contract.name(), "numbers": check.numbers, "check": check.says}))?;
        }
        for (number, why) in unseen {
            output.line(json!({"contract": contract.name(), "numbers": [number], "unobservable": why}))?;
        }
        return Ok(());
    }
    let layout = Layout::of(checks);
    output.line(layout.title(contract, &["NUMBER", "CHECK"]))?;
    for check in checks {
        output.line(format_args!("{:<1$}  {2}", numbers(check), layout.numbers, check.says))?;
    }
    for (number, why) in unseen {
        output.line(format_args!("{number:<0$}  not observable: {why}", layout.numbers))?;
    }
    Ok(())
}

/// Runs the checks of one contract and tells of each as it ends; how many failed.
async fn look(
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
    let count = |word: &str| outcomes.iter().filter(|outcome| self::word(outcome).0 == word).count();
    let (passed, failed, skipped) = (count("PASS"), count("FAIL"), count("SKIP"));
    let ms = start.elapsed().as_millis();
    if as_json {
        output.line(
            json!({"contract": contract.name(), "passed": passed, "failed": failed, "skipped": skipped,
            "ms": ms as u64}),
        )?;
    } else {
        let end = if failed == 0 { "nothing failed" } else { "the contract is not kept" };
        output.line(format_args!(
            "{contract}: {passed} passed, {failed} failed, {skipped} skipped in {:.1} s; {end}\n",
            ms as f64 / 1_000.0
        ))?;
    }
    Ok(failed)
}

/// The widths of the columns, known before the first row is.
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
        let (word, style) = word(outcome);
        let (numbers, says, ms) = (numbers(outcome.check), outcome.check.says, outcome.took.as_millis());
        let reason = reason(outcome).map(|reason| format!("\n{:1$}  {reason}", "", self.numbers));
        let check = format!("{numbers:<0$}  {says:<1$}", self.numbers, self.says);
        format!("{check}  {style}{word:<7}{style:#}  {ms:>6}{}", reason.unwrap_or_default())
    }
}

fn object(contract: Contract, outcome: &Outcome) -> String {
    let mut object = json!({"contract": contract.name(), "numbers": outcome.check.numbers,
        "check": outcome.check.says, "outcome": word(outcome).0, "ms": outcome.took.as_millis() as u64});
    if let Some(finding) = &outcome.finding {
        object["reason"] = json!(finding.to_string());
    }
    object.to_string()
}

fn numbers(check: &Check) -> String {
    check.numbers.join(", ")
}

fn word(outcome: &Outcome) -> (&'static str, Style) {
    match &outcome.finding {
        None => ("PASS", AnsiColor::Green.on_default()),
        Some(Finding::Broken(_)) => ("FAIL", AnsiColor::Red.on_default().bold()),
        Some(Finding::Skipped(_)) => ("SKIP", AnsiColor::Yellow.on_default()),
    }
}

/// What was found, which may quote the coordinator.
fn reason(outcome: &Outcome) -> Option<String> {
    outcome.finding.as_ref().map(|finding| clean(&finding.to_string()))
}
