//! The scenarios: each lets one kind of fault loose on a running server, with a short and a long form. In the long one,
//! or when the plan says so, each of them kills as well.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use contract_clients::ReportKind;
use jiff::Timestamp;
use rustix::process::Signal;
use serde_json::json;
use wire::Verdict;

use crate::checks::Reach;
use crate::contract::Contract;
use crate::fixture::Fixture;
use crate::history::{RawRecording, Recording};
use crate::plan::{Form, Plan, share};
use crate::recorder::{HeartbeatOutcome, Observations};
use crate::report_request::Intent;
use crate::world::{LEASE, QUEUE};

const HOUR_S: i64 = 3600;
/// How far the clock is off, start after start.
const OFFSETS_S: [i64; 5] = [HOUR_S, 0, -HOUR_S, HOUR_S, -HOUR_S];
const NATIVE: &[Contract] = &[Contract::Native];
/// How long a server lives that is recorded, before it is killed; longer than a lease.
const RECORDED_LIFE: Duration = Duration::from_millis(800);
const RECORD_DEADLINE: Duration = Duration::from_secs(60);
const RECORD_INTERVAL: Duration = Duration::from_millis(20);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scenario {
    /// SIGKILL at random moments, also while it starts.
    Kill,
    /// SIGSTOP for longer than a lease, then SIGCONT.
    Stop,
    /// The wall clock set an hour forth and back between starts.
    Clock,
    /// No space left, then space again.
    FullDisk,
    /// Workers of all contracts on one queue, under SIGKILL and SIGSTOP.
    Contracts,
    /// Worker processes under SIGKILL and SIGSTOP, and the coordinator under SIGKILL.
    Workers,
    /// Three nodes, a database and its replica under SIGKILL, SIGSTOP, partitions and promotions.
    Cluster,
}

/// Runs a scenario; the error says what was violated, with the seed and everything known about the task.
pub fn run(scenario: Scenario, plan: &Plan) -> Result<()> {
    println!("chaos {scenario:?} {:?}: LESSOR_CHAOS_SEED={}", plan.form, plan.seed);
    let result = runtime()?.block_on(async {
        match scenario {
            Scenario::Kill => kill(plan).await.map(format_reach),
            Scenario::Stop => stop(plan).await.map(format_reach),
            Scenario::Clock => clock(plan).await.map(format_reach),
            Scenario::FullDisk => crate::full_disk::run(plan).await.map(format_reach),
            Scenario::Contracts => contracts(plan).await.map(format_reach),
            Scenario::Workers => {
                let counts = crate::workers::run(plan).await;
                counts.map(|counts| (counts.worker_kills, format!("{counts:?}")))
            }
            Scenario::Cluster => crate::cluster::run(plan).await.map(|reach| (plan.kills(0), reach)),
        }
    });
    let (kills, reach) =
        result.with_context(|| format!("chaos {scenario:?} with LESSOR_CHAOS_SEED={}", plan.seed))?;
    ensure!(kills >= plan.kills(0), "chaos {scenario:?} killed {kills} times, not {} times", plan.kills(0));
    let kills =
        if scenario == Scenario::Cluster { String::new() } else { format!(" after {kills} SIGKILLs") };
    println!("chaos {scenario:?}: every answer still true{kills}; {reach}");
    Ok(())
}

fn format_reach(reach: Reach) -> (usize, String) {
    (reach.kills, format!("{reach:?}"))
}

/// A small run with one SIGKILL in it, for tests that change what was recorded. It lasts until everything that they
/// change has happened.
pub fn record(plan: &Plan) -> Result<Recording> {
    let raw_recording = record_until(plan, NATIVE, has_a_bit_of_everything)?;
    Ok(Recording::of(&raw_recording).0)
}

/// The same with workers of all contracts, for tests that change an answer to one of them.
pub fn record_contracts(plan: &Plan) -> Result<RawRecording> {
    record_until(plan, &Contract::ALL, |observations, _| {
        Contract::ALL.iter().all(|it| has_all_verdicts(observations, *it))
    })
}

fn record_until(
    plan: &Plan,
    contracts: &'static [Contract],
    is_enough: fn(&Observations, usize) -> bool,
) -> Result<RawRecording> {
    runtime()?.block_on(async {
        let mut fixture = Fixture::open(plan, None, contracts).await?;
        fixture.start_actors();
        tokio::time::sleep(RECORDED_LIFE).await;
        fixture.restart().await?;
        let submitted = fixture.world.recorder.observations().submissions.len();
        let deadline = Instant::now() + RECORD_DEADLINE;
        while !is_enough(&fixture.world.recorder.observations(), submitted) {
            ensure!(Instant::now() < deadline, "not everything happened within {RECORD_DEADLINE:?}");
            tokio::time::sleep(RECORD_INTERVAL).await;
        }
        let (_, raw_recording) = fixture.end(true).await?;
        Ok(raw_recording)
    })
}

/// Whether completions of this contract got each verdict.
fn has_all_verdicts(observations: &Observations, contract: Contract) -> bool {
    let completions = observations.reports.iter().filter(|report| {
        report.contract == contract && matches!(report.request.kind, ReportKind::Completed(_))
    });
    let verdicts: Vec<Verdict> = completions.filter_map(|report| report.verdict()).collect();
    [Verdict::Committed, Verdict::Cancelled, Verdict::Rejected]
        .iter()
        .all(|verdict| verdicts.contains(verdict))
}

fn has_a_bit_of_everything(observations: &Observations, submitted: usize) -> bool {
    let count = |is_meant: fn(&ReportKind) -> bool, verdict: Verdict, state: Option<&str>| {
        let own = observations.reports.iter().filter(|report| report.request.intent == Intent::Own);
        own.filter(|report| {
            let response = report.response.as_ref();
            is_meant(&report.request.kind)
                && response.is_some_and(|response| {
                    response.verdict == Some(verdict) && response.state.as_deref() == state
                })
        })
        .count()
    };
    let completed = |kind: &ReportKind| matches!(kind, ReportKind::Completed(_));
    let failed = |kind: &ReportKind| matches!(kind, ReportKind::Failed(_));
    let accepted =
        observations.submissions[submitted..].iter().any(|submission| submission.task_id.is_some());
    accepted
        && count(completed, Verdict::Committed, Some("COMPLETED")) > 0
        && count(failed, Verdict::Committed, Some("WAITING")) > 0
        // Some of them because the task was cancelled, most because their lease ran out.
        && count(completed, Verdict::Cancelled, None) > 5
        && observations.beats.iter().any(|beat| beat.heartbeat_outcome == HeartbeatOutcome::Alive)
}

fn runtime() -> Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?)
}

async fn kill(plan: &Plan) -> Result<Reach> {
    let mut rng = plan.rng("killer");
    let mut fixture = Fixture::open(plan, None, NATIVE).await?;
    fixture.start_actors();
    kill_times(plan.kills(10), &mut fixture, &mut rng).await?;
    pause(&mut rng, 300..301).await;
    let reach = fixture.finish(true).await?;
    ensure!(reach.lost_answers > 0, "no answer was lost: the kills hit nobody ({reach:?})");
    reached_everything(reach)
}

/// Kills at least this many more times.
pub(crate) async fn kill_times(kills: usize, fixture: &mut Fixture, rng: &mut fastrand::Rng) -> Result<()> {
    let enough = fixture.kills() + kills;
    while fixture.kills() < enough {
        kill_once(fixture, rng).await?;
    }
    Ok(())
}

async fn kill_once(fixture: &mut Fixture, rng: &mut fastrand::Rng) -> Result<()> {
    let is_at_start = rng.u32(..5) == 0;
    if is_at_start {
        // Also while it reads its ledger, before it serves anybody.
        fixture.kill()?;
        fixture.server.spawn()?;
        pause(rng, 0..60).await;
    } else {
        pause(rng, 50..900).await;
    }
    fixture.restart().await
}

async fn stop(plan: &Plan) -> Result<Reach> {
    let mut rng = plan.rng("stopper");
    let mut fixture = Fixture::open(plan, None, NATIVE).await?;
    fixture.start_actors();
    let (stops, kills) = (plan.pick(3, 30), plan.kills(0));
    for round in 0..stops {
        stop_once(&mut fixture, &mut rng).await?;
        kill_times(share(kills, round, stops), &mut fixture, &mut rng).await?;
    }
    pause(&mut rng, 800..801).await;
    let reach = fixture.finish(true).await?;
    reached_everything(reach)
}

async fn stop_once(fixture: &mut Fixture, rng: &mut fastrand::Rng) -> Result<()> {
    pause(rng, 300..900).await;
    fixture.server.signal(Signal::STOP)?;
    tokio::time::sleep(LEASE * 2 + Duration::from_millis(rng.u64(..500))).await;
    fixture.server.signal(Signal::CONT)
}

async fn contracts(plan: &Plan) -> Result<Reach> {
    let mut rng = plan.rng("contracts");
    let mut fixture = Fixture::open(plan, None, &Contract::ALL).await?;
    fixture.start_actors();
    let (stops, kills) = (plan.pick(2, 20), plan.kills(8));
    for round in 0..stops {
        kill_times(share(kills, round, stops), &mut fixture, &mut rng).await?;
        stop_once(&mut fixture, &mut rng).await?;
    }
    pause(&mut rng, 800..801).await;
    let reach = reached_everything(fixture.finish(true).await?)?;
    for contract in Contract::ALL {
        let counts = reach.contracts.get(&contract).copied().unwrap_or_default();
        println!("  {:<8} {counts}", contract.name());
    }
    for contract in Contract::ALL {
        let counts = reach.contracts.get(&contract).copied().unwrap_or_default();
        let is_complete = match plan.form {
            Form::Short => counts.leases > 0 && counts.committed > 0,
            Form::Long => counts.has_everything(),
        };
        ensure!(is_complete, "{} did not reach everything: {counts}", contract.name());
    }
    Ok(reach)
}

async fn clock(plan: &Plan) -> Result<Reach> {
    let mut rng = plan.rng("clock");
    let mut fixture = Fixture::open(plan, None, NATIVE).await?;
    fixture.start_actors();
    let (rounds, kills) = (plan.pick(1, 5), plan.kills(0));
    for round in 0..rounds {
        for (index, offset_s) in OFFSETS_S.into_iter().enumerate() {
            pause(&mut rng, 300..900).await;
            fixture.server.set_clock_offset_s(offset_s);
            fixture.restart().await?;
            if round == 0 && offset_s == HOUR_S {
                check_that_the_clock_is_off(&fixture).await?;
            }
            let changes = rounds * OFFSETS_S.len();
            let share = share(kills, round * OFFSETS_S.len() + index, changes);
            kill_times(share, &mut fixture, &mut rng).await?;
        }
    }
    pause(&mut rng, 800..801).await;
    // The hour forth ends leases early, the hour back lets none live on; our clock can judge neither.
    let reach = fixture.finish(false).await?;
    reached_everything(reach)
}

/// Without this the scenario would pass on a server that never saw another clock.
async fn check_that_the_clock_is_off(fixture: &Fixture) -> Result<()> {
    let body = json!({"queue": format!("{QUEUE}-clock"), "payload": {}});
    let answer = fixture.world.api.post("/v1/tasks", &body).await;
    let id = answer.body()["taskId"].as_str().with_context(|| format!("a submit was answered {answer:?}"))?;
    let task = fixture.world.api.get(&format!("/v1/tasks/{id}")).await;
    let created = task.body()["createdAt"].as_str().context("a task has no createdAt")?;
    let ahead_s = created.parse::<Timestamp>()?.as_second() - Timestamp::now().as_second();
    ensure!(ahead_s > HOUR_S / 2, "the server's clock was set an hour forth, and yet it is {created} there");
    // Nobody works on that queue, and in the end every task must be final.
    let cancelled = fixture.world.api.post(&format!("/v1/tasks/{id}/cancel"), &json!({})).await;
    ensure!(cancelled.status() == Some(200), "a cancel was answered {cancelled:?}");
    Ok(())
}

async fn pause(rng: &mut fastrand::Rng, range_ms: std::ops::Range<u64>) {
    tokio::time::sleep(Duration::from_millis(rng.u64(range_ms))).await;
}

/// A run that never saw a lease expire or a report refused has not tested what it claims.
pub(crate) fn reached_everything(reach: Reach) -> Result<Reach> {
    let is_complete = reach.completed > 0
        && reach.committed_reports > 0
        && reach.cancelled_reports > 0
        && reach.rejected_reports > 0
        && reach.expired_leases > 0
        && reach.released_leases > 0
        && reach.repeated_submits > 0;
    ensure!(is_complete, "the run did not reach everything that it is meant to test: {reach:?}");
    Ok(reach)
}
