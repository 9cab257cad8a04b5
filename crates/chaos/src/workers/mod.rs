//! Workers in processes of their own, one for each backend, run actions while they and the coordinator are killed and
//! stopped at random.
//!
//! In the end every action has its result, the ledger shows that none was committed twice, and what dead workers left
//! behind is gone with the next start. What the workers say to the coordinator is theirs and is not noted, so the ledger is
//! judged by itself here.

mod build;
mod daemon;
mod judge;
mod leftovers;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::Signal;
use serde_json::json;
use tokio::task::JoinSet;

use crate::api::Api;
use crate::engine::Engine;
use crate::history::read_records;
use crate::log_tools;
use crate::plan::Plan;
use crate::server::Server;
use build::Build;
use daemon::Daemon;

/// One worker of each.
const BACKENDS: [&str; 3] = ["host", "sandbox", "docker"];
/// Actions that wait for their results at one time.
const IN_FLIGHT: usize = 48;
/// A short lease, so that a stop outlives it.
const LEASE: Duration = Duration::from_millis(3_000);
const HEARTBEAT: Duration = Duration::from_millis(500);
const DEADLINE: Duration = Duration::from_secs(900);
/// What the kill of a worker may add to it.
const DEADLINE_PER_KILL: Duration = Duration::from_secs(5);

/// What was done to whom, and what it led to.
#[derive(Debug, Default)]
pub(crate) struct RunCounts {
    /// More are sent for as long as a kind of fault has not struck, or not often enough, or none has cost a worker its
    /// lease.
    pub actions: usize,
    /// Kills of workers that the run has to have.
    pub wanted_kills: usize,
    pub worker_kills: usize,
    pub worker_stops: usize,
    pub coordinator_kills: usize,
    /// Leases beyond the first of each task.
    pub further_leases: usize,
    pub expired_leases: usize,
    /// Reports that came too late to be accepted.
    pub late_reports: usize,
    /// Times that a client had to ask or attach again.
    pub asked_again: usize,
}

#[derive(Clone, Copy)]
enum Fault {
    KillWorker,
    StopWorker,
    KillCoordinator,
}

impl RunCounts {
    fn shows_something(&self) -> bool {
        self.worker_kills >= self.wanted_kills.max(1)
            && self.worker_stops > 0
            && self.coordinator_kills > 0
            && self.further_leases > 0
    }

    /// Those that have not struck yet come first.
    fn next_fault(&self, rng: &mut fastrand::Rng) -> Fault {
        let struck = [
            (Fault::KillWorker, self.worker_kills),
            (Fault::StopWorker, self.worker_stops),
            (Fault::KillCoordinator, self.coordinator_kills),
        ];
        let missing: Vec<Fault> =
            struck.into_iter().filter(|(_, count)| *count == 0).map(|(fault, _)| fault).collect();
        match (rng.choice(missing), rng.u32(..10)) {
            (Some(fault), _) => fault,
            (None, 0..=4) => Fault::KillWorker,
            (None, 5..=7) => Fault::StopWorker,
            (None, _) => Fault::KillCoordinator,
        }
    }
}

pub(crate) async fn run(plan: &Plan) -> Result<RunCounts> {
    let directory = tempfile::Builder::new().prefix("lessor-chaos-").tempdir()?;
    let root = directory.path().canonicalize()?;
    let mut server = Server::new(&plan.binary, &root.join("data"), &root.join("server.log"));
    server.has_worker = false;
    server.start().await?;
    let (engine, before) = (Engine::dockerd()?, leftovers::groups());
    let address = server.address()?.to_owned();
    let api = Api::probe(&address)?;
    let (lease_ms, heartbeat_ms) = (LEASE.as_millis() as u64, HEARTBEAT.as_millis() as u64);
    let settings = json!({"leaseMs": lease_ms, "heartbeatIntervalMs": heartbeat_ms, "maxAttempts": 1_000});
    let configured = api.put("/v1/queues/exec", &settings).await;
    ensure!(configured.status() == Some(200), "the queue could not be configured: {configured:?}");
    let mut workers = Vec::new();
    for backend in BACKENDS {
        let mut worker = Daemon::new(&plan.binary, &address, backend, &engine, &root)?;
        worker.start()?;
        workers.push(worker);
    }
    let (actions, wanted_kills) = (plan.pick(200, 2_000), plan.kills(0));
    let mut run_counts = RunCounts { actions, wanted_kills, ..RunCounts::default() };
    let outcome = under_fire(plan, &mut server, &mut workers, &mut run_counts).await;
    let outcome = match outcome {
        Ok(()) => judged(&mut server, &mut workers, &api, &mut run_counts).await.and_then(|()| {
            drop(std::mem::take(&mut workers));
            let containers = engine.containers()?;
            ensure!(containers.is_empty(), "containers are left: {containers:?}");
            leftovers::check_groups(&before)
        }),
        failed => failed,
    };
    if let Err(error) = outcome {
        drop(workers);
        let log = server.log_tail();
        drop(server);
        let kept = directory.keep();
        return Err(error.context(format!("the server's log ends:\n{log}\nkept in {}", kept.display())));
    }
    Ok(run_counts)
}

/// Builds all actions while faults go on, and gives each its right result.
async fn under_fire(
    plan: &Plan,
    server: &mut Server,
    workers: &mut [Daemon],
    run_counts: &mut RunCounts,
) -> Result<()> {
    let mut rng = plan.rng("workers");
    let build = Build::new(server.address()?, plan.seed)?;
    let deadline = Instant::now() + DEADLINE + DEADLINE_PER_KILL * u32::try_from(run_counts.wanted_kills)?;
    let mut running = JoinSet::new();
    let (mut next, mut done) = (0, BTreeSet::new());
    let mut fault = Box::pin(tokio::time::sleep(Duration::from_millis(300)));
    let mut stopped: Option<usize> = None;
    while done.len() < run_counts.actions || !run_counts.shows_something() {
        ensure!(Instant::now() < deadline, "{} of {next} actions ended in time: {run_counts:?}", done.len());
        while (next < run_counts.actions || !run_counts.shows_something()) && running.len() < IN_FLIGHT {
            let build = build.clone();
            let number = next;
            running.spawn(async move { (number, build.action(number, deadline).await) });
            next += 1;
            run_counts.actions = run_counts.actions.max(next);
        }
        tokio::select! {
            Some(ended) = running.join_next(), if !running.is_empty() => {
                let (number, ended) = ended.context("a client panicked")?;
                let again = ended.with_context(|| format!("action {number}"))?;
                run_counts.asked_again += again;
                done.insert(number);
            }
            () = &mut fault => {
                let pause_ms = match stopped.take() {
                    Some(worker) => {
                        workers[worker].process.signal(Signal::CONT)?;
                        rng.u64(100..400)
                    }
                    None => strike(server, workers, &mut rng, run_counts, &mut stopped).await?,
                };
                fault.set(tokio::time::sleep(Duration::from_millis(pause_ms)));
            }
        }
        if let Some(status) = server.exited() {
            bail!("the server ended on its own with {status}");
        }
    }
    if let Some(worker) = stopped {
        workers[worker].process.signal(Signal::CONT)?;
    }
    Ok(())
}

/// One fault; how long it is until the next thing happens.
async fn strike(
    server: &mut Server,
    workers: &mut [Daemon],
    rng: &mut fastrand::Rng,
    run_counts: &mut RunCounts,
    stopped: &mut Option<usize>,
) -> Result<u64> {
    let worker = rng.usize(..workers.len());
    match run_counts.next_fault(rng) {
        Fault::KillWorker => {
            run_counts.worker_kills += 1;
            workers[worker].process.kill()?;
            workers[worker].start()?;
            Ok(rng.u64(100..700))
        }
        Fault::StopWorker => {
            run_counts.worker_stops += 1;
            workers[worker].process.signal(Signal::STOP)?;
            *stopped = Some(worker);
            // Half of the stops outlive the lease.
            Ok(rng.u64(200..2 * LEASE.as_millis() as u64))
        }
        Fault::KillCoordinator => {
            run_counts.coordinator_kills += 1;
            server.kill()?;
            run_counts.further_leases = judge::further_leases(&read_records(server.data())?);
            tokio::time::sleep(Duration::from_millis(rng.u64(..300))).await;
            server.start().await?;
            Ok(rng.u64(300..900))
        }
    }
}

/// Ends everybody, starts the workers once more so that they clean up, and holds all to what they owe.
async fn judged(
    server: &mut Server,
    workers: &mut [Daemon],
    api: &Api,
    run_counts: &mut RunCounts,
) -> Result<()> {
    for worker in workers.iter_mut() {
        worker.process.kill()?;
    }
    for worker in workers.iter_mut() {
        let before = leftovers::session(api, &worker.id).await?;
        worker.start()?;
        leftovers::until_registered(api, &worker.id, before).await?;
        worker.process.stop().await?;
    }
    for worker in workers.iter() {
        leftovers::check(&worker.directory)?;
    }
    server.stop().await?;
    let records = read_records(server.data())?;
    judge::check(&records, run_counts)?;
    log_tools::check(server.binary(), server.data(), &records)?;
    ensure!(run_counts.shows_something(), "too little happened to show anything: {run_counts:?}");
    Ok(())
}
