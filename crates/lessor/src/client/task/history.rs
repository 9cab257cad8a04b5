//! `lessor task history`: what the ledger says about one task, oldest first.

use anyhow::Result;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::client::http::Client;
use crate::client::show::{Cell, Table, note, text, time};

/// Longest detail in the table; all of it is in the JSON.
const MAX_DETAIL_CHARS: usize = 160;
/// Details that people look for first; all others follow by name, so that none is hidden.
const FIRST: [&str; 9] =
    ["queue", "priority", "attempt", "workerId", "cause", "reason", "reasonDetail", "by", "error"];

#[derive(clap::Args)]
#[command(after_help = "\
Each line is one record of the ledger, with its position. Old history may no longer be kept.

Example:
  lessor task history 019a8a3c-5b1e-7000-8000-0000000000aa")]
pub(crate) struct Options {
    /// The task's id
    #[arg(value_name = "ID")]
    task_id: String,
}

#[derive(Deserialize)]
struct History {
    events: Vec<Event>,
    truncated: bool,
}

#[derive(Deserialize)]
struct Event {
    position: u64,
    at: Timestamp,
    #[serde(rename = "type")]
    kind: String,
    #[serde(flatten)]
    details: Map<String, Value>,
}

pub(super) async fn run(options: &Options, client: &Client, json: bool) -> Result<()> {
    let answer = client.get(&["tasks", &options.task_id, "history"], &()).await?;
    answer.print(json, |history: History| {
        if history.truncated {
            note("Older records are no longer kept.");
        }
        table(&history, Timestamp::now())
    })
}

fn table(history: &History, now: Timestamp) -> Table {
    let mut table = Table::new(&["POSITION", "TIME", "", "EVENT", "DETAILS"]);
    for event in &history.events {
        table.row([
            Cell::number(event.position),
            Cell::text(format!("{:.3}", event.at)),
            Cell::text(time::relative(event.at, now)),
            Cell::text(&event.kind),
            Cell::text(text::short(&describe(&event.details), MAX_DETAIL_CHARS)),
        ]);
    }
    table
}

fn describe(details: &Map<String, Value>) -> String {
    let first = FIRST.iter().filter_map(|name| details.get_key_value(*name));
    let rest = details.iter().filter(|(name, _)| !FIRST.contains(&name.as_str()));
    let parts = first.chain(rest).filter(|(_, value)| !value.is_null());
    parts.map(|(name, value)| format!("{name}={}", show(value))).collect::<Vec<_>>().join(" ")
}

fn show(value: &Value) -> String {
    match value {
        Value::String(text) if !text.contains(' ') => text.clone(),
        Value::Object(fields) => format!("({})", describe(fields)),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn details_are_in_a_readable_order_and_none_is_hidden() {
        let text = r#"{"events":[{"position":7,"at":"2030-01-31T12:00:00.5Z","type":"LeaseGranted","brandNew":true,
            "workerId":"w 1","attempt":1,"queue":null}],"truncated":false}"#;
        let history: History = serde_json::from_str(text).unwrap();
        let table = table(&history, "2030-01-31T12:00:03.5Z".parse().unwrap()).to_string();
        let last = table.lines().last().unwrap();
        assert_eq!(
            anstream::adapter::strip_str(last).to_string(),
            "       7  2030-01-31T12:00:00.500Z  3 s ago  LeaseGranted  attempt=1 workerId=\"w 1\" brandNew=true"
        );
    }
}
