//! `lessor queue list`: every queue with its counts.

use anyhow::Result;
use wire::QueueList;

use crate::client::http::Client;
use crate::client::show::{Cell, Output, Table, time};

#[derive(clap::Args)]
#[command(after_help = "\
Example:
  lessor queue list --json | jq '.queues[] | {name, counts}'")]
pub(super) struct Options {}

pub(super) async fn run(client: &Client, json: bool) -> Result<()> {
    let answer = client.get(&["queues"], &()).await?;
    if json {
        return Output::new().line(answer.text());
    }
    let list: QueueList = answer.parse()?;
    if list.queues.is_empty() {
        return Output::new().line("No queues yet: a queue exists from its first use.");
    }
    let mut table = Table::new(&[
        "QUEUE",
        "WAITING",
        "DELAYED",
        "LEASED",
        "COMPLETED",
        "FAILED",
        "DEAD",
        "OLDEST WAITING",
    ]);
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
    Output::new().print(table)
}
