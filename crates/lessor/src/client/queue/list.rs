//! `lessor queue list`: every queue with its counts.

use anyhow::Result;
use wire::QueueList;

use crate::client::http::Client;
use crate::client::show::{Cell, Table, time};

#[derive(clap::Args)]
#[command(after_help = "\
Example:
  lessor queue list --json | jq '.queues[] | {name, counts}'")]
pub(crate) struct Options {}

pub(super) async fn run(client: &Client, json: bool) -> Result<()> {
    client.get(&["queues"], &()).await?.print(json, table)
}

fn table(list: QueueList) -> String {
    if list.queues.is_empty() {
        return "No queues yet: a queue exists from its first use.\n".to_owned();
    }
    let counts = ["WAITING", "DELAYED", "LEASED", "COMPLETED", "FAILED", "DEAD"];
    let mut table = Table::new(&[&["QUEUE"], &counts[..], &["OLDEST WAITING"]].concat());
    for queue in &list.queues {
        let counts = &queue.counts;
        let numbers =
            [counts.waiting, counts.delayed, counts.leased, counts.completed, counts.failed, counts.dead];
        let oldest = queue.oldest_waiting_age_ms.map(time::rough).unwrap_or_default();
        table.row(
            [Cell::text(&queue.name)]
                .into_iter()
                .chain(numbers.map(Cell::number))
                .chain([Cell::text(oldest)]),
        );
    }
    table.to_string()
}
