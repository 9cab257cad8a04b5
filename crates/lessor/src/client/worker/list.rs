//! `lessor worker list`: the workers that the server has seen.

use std::process::ExitCode;

use anyhow::Result;
use jiff::Timestamp;
use wire::WorkerList;

use super::state;
use crate::client::connection::Connection;
use crate::client::http::Client;
use crate::client::show::{Cell, Table, time};

#[derive(clap::Args)]
#[command(after_help = "\
STATE is STOPPING, DRAINING or DRAINED after an order of the operator, otherwise what the worker says of itself: IDLE, BUSY or \
DRAINING. It is empty for a worker that is not registered over gRPC.

Example:
  lessor worker list --json | jq '.workers[] | select(.drained) | .workerId'")]
pub(crate) struct Options {
    #[command(flatten)]
    connection: Connection,
}

pub(crate) async fn run(options: &Options) -> Result<ExitCode> {
    let client = Client::new(&options.connection)?;
    client.get(&["workers"], &()).await?.print(options.connection.json, |list| table(&list))?;
    Ok(ExitCode::SUCCESS)
}

fn table(list: &WorkerList) -> String {
    if list.workers.is_empty() {
        return "No workers were seen since the server started.\n".to_owned();
    }
    let now = Timestamp::now();
    let mut table = Table::new(&["WORKER", "STATE", "LEASES", "SLOTS", "COMPLETED", "FAILED", "LAST SEEN"]);
    for worker in &list.workers {
        let registration = worker.registration.as_ref();
        let number =
            |count: Option<u64>| Cell::number(count.map_or(String::new(), |count| count.to_string()));
        table.row([
            Cell::text(&worker.worker_id),
            Cell::text(state(worker)),
            Cell::number(worker.active_leases),
            number(registration.map(|registration| registration.max_concurrent_executions.into())),
            number(registration.map(|registration| registration.total_completed)),
            number(registration.map(|registration| registration.total_failed)),
            Cell::text(time::relative(worker.last_heartbeat_at, now)),
        ]);
    }
    table.to_string()
}
