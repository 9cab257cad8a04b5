//! `lessor worker drain`, `stop` and `resume`: orders of the operator for one worker.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use wire::{MAX_WAIT_MS, OrderWorker, Worker};

use crate::client::Error;
use crate::client::connection::Connection;
use crate::client::http::{Answer, Client};
use crate::client::show::note;

/// How long the server holds one answer back; then the command asks again.
const WAIT: Duration = Duration::from_millis(MAX_WAIT_MS / 2);

#[derive(clap::Args)]
#[command(after_help = "\
The worker finishes what it holds and is granted nothing more, also after it registers again, until `lessor worker resume`. A \
restart of the server ends the drain. Run this on the machine of the server.

Example:
  lessor worker drain build-7 --wait")]
pub(crate) struct DrainOptions {
    #[command(flatten)]
    target: Target,

    /// Return when the worker holds no task
    #[arg(long)]
    wait: bool,
}

#[derive(clap::Args)]
#[command(after_help = "\
The worker is drained and, if it works over gRPC, asked to stop: it finishes what it runs, gives the rest back and exits. It is \
told with its next heartbeat, or at once in a stream. If it starts again, it is granted nothing until `lessor worker resume`. Run \
this on the machine of the server.

Example:
  lessor worker stop build-7 --wait")]
pub(crate) struct StopOptions {
    #[command(flatten)]
    target: Target,

    /// Return when the worker has left
    #[arg(long)]
    wait: bool,
}

#[derive(clap::Args)]
#[command(after_help = "\
Example:
  lessor worker resume build-7")]
pub(crate) struct ResumeOptions {
    #[command(flatten)]
    target: Target,
}

/// The worker that an order is for.
#[derive(clap::Args)]
struct Target {
    /// The worker's id
    #[arg(value_name = "ID")]
    worker_id: String,

    #[command(flatten)]
    connection: Connection,
}

pub(crate) async fn drain(options: &DrainOptions) -> Result<ExitCode> {
    let DrainOptions { target: Target { worker_id, connection }, wait } = options;
    let order = Sender::new("drain", worker_id, connection)?;
    let answer = order.send(*wait, |worker| worker.drained && worker.active_leases > 0).await?;
    answer.print(connection.json, |worker: Worker| match worker.active_leases {
        0 => format!("Worker {worker_id} is drained and holds no task.\n"),
        leases => format!("Worker {worker_id} is drained; it still holds {leases}.\n"),
    })?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) async fn stop(options: &StopOptions) -> Result<ExitCode> {
    let StopOptions { target: Target { worker_id, connection }, wait } = options;
    let order = Sender::new("stop", worker_id, connection)?;
    let is_working = |worker: &Worker| worker.drained && (worker.active_leases > 0 || worker.stopping);
    let answer = order.send(*wait, is_working).await?;
    answer.print(connection.json, |worker: Worker| match (worker.stopping, worker.active_leases) {
        (true, leases) => format!("Worker {worker_id} is asked to stop; it holds {leases}.\n"),
        (false, 0) => format!("Worker {worker_id} is not registered and holds no task; it stays drained.\n"),
        (false, leases) => format!(
            "Worker {worker_id} is drained; it still holds {leases}, and it is not registered, so nothing asks it to stop.\n"
        ),
    })?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) async fn resume(options: &ResumeOptions) -> Result<ExitCode> {
    let ResumeOptions { target: Target { worker_id, connection } } = options;
    let order = Sender::new("resume", worker_id, connection)?;
    let answer = order.send(false, |_| false).await?;
    answer.print(connection.json, |_: Worker| format!("Worker {worker_id} takes work again.\n"))?;
    Ok(ExitCode::SUCCESS)
}

/// Sends one order, again and again while its end is waited for.
struct Sender<'a> {
    client: Client,
    name: &'static str,
    worker_id: &'a str,
    tenant: Option<&'a str>,
}

impl<'a> Sender<'a> {
    fn new(name: &'static str, worker_id: &'a str, connection: &'a Connection) -> Result<Sender<'a>> {
        let client = Client::for_operator(connection)?;
        Ok(Sender { client, name, worker_id, tenant: connection.tenant.as_deref() })
    }

    async fn send(&self, wait: bool, is_working: impl Fn(&Worker) -> bool) -> Result<Answer, Error> {
        let path = ["workers", self.worker_id, self.name];
        let tenant = self.tenant.map(str::to_owned);
        let body = OrderWorker { tenant: tenant.clone(), wait_ms: None };
        let mut answer = self.client.post(&path, &body).await?;
        let mut told = None;
        loop {
            let worker: Worker = answer.parse()?;
            if !wait || !is_working(&worker) {
                return Ok(answer);
            }
            if told.replace(worker.active_leases) != Some(worker.active_leases) {
                note(format_args!("waiting for {}: it holds {}", self.worker_id, worker.active_leases));
            }
            let body = OrderWorker { tenant: tenant.clone(), wait_ms: Some(WAIT.as_millis() as u64) };
            answer = self.client.post_waiting(&path, &body, WAIT).await?;
        }
    }
}
