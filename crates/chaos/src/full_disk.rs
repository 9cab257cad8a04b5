//! The disk fills up under the server: new work is refused with a clear answer, running work still commits (D4),
//! and when space is back, so is everything else. A server that is killed meanwhile starts again on the full disk.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use wire::Verdict;

use crate::api::Answer;
use crate::checks::Reach;
use crate::contract::Contract;
use crate::fixture::Fixture;
use crate::plan::{Plan, share};
use crate::scenario::{kill_times, reached_everything};
use crate::tmpfs::Tmpfs;
use crate::worker::{Character, Worker};
use crate::world::{LEASE, QUEUE, World};

/// What the server needs in any case: the segment in use and the next one.
const DISK_BASE_BYTES: u64 = 128 << 20;
/// Each round leaves a full segment of history behind, and snapshots of its tasks.
const DISK_ROUND_BYTES: u64 = 192 << 20;
const PAYLOAD_BYTES: usize = 256 << 10;
const HELD_TASKS: u32 = 40;
/// Long enough to be still alive when the disk is full.
const HELD_LEASE: Duration = Duration::from_secs(60);
/// What a kill and a start may add to it.
const HELD_LEASE_PER_KILL: Duration = Duration::from_secs(5);
const RECOVERY_DEADLINE: Duration = Duration::from_secs(30);
const POLL_INTERVAL: Duration = Duration::from_millis(50);

pub(crate) async fn run(plan: &Plan) -> Result<Reach> {
    let rounds = plan.pick(1, 5);
    // One half strikes while the disk is full, the other half while everybody is at work again.
    let kills = plan.kills(0);
    let kills_when_full = kills / 2;
    let disk_bytes = DISK_BASE_BYTES + rounds as u64 * DISK_ROUND_BYTES;
    let mut fixture = Fixture::open(plan, Some(disk_bytes), &[Contract::Native]).await?;
    for round in 0..rounds {
        // As much as the whole disk: by then a submit must have been refused.
        let max_submits = disk_bytes / PAYLOAD_BYTES as u64;
        let kills = share(kills_when_full, round, rounds);
        fill_and_free(&mut fixture, round, max_submits, kills).await?;
    }
    fixture.world.configure_queue(LEASE).await?;
    fixture.start_actors();
    kill_times(kills - kills_when_full, &mut fixture, &mut plan.rng("full disk")).await?;
    tokio::time::sleep(Duration::from_secs(2)).await;
    // Some leases were long, others short: their times are not judged by our clock here.
    reached_everything(fixture.finish(false).await?)
}

async fn fill_and_free(fixture: &mut Fixture, round: usize, max_submits: u64, kills: usize) -> Result<()> {
    let world = fixture.world.clone();
    world.configure_queue(HELD_LEASE + HELD_LEASE_PER_KILL * u32::try_from(kills)?).await?;
    for index in 0..HELD_TASKS {
        let (answer, task_id) = world.submit(&task(&format!("held-{round}-{index}"), 10)).await;
        ensure!(task_id.is_some(), "a submit with room on the disk was answered {answer:?}");
    }
    let mut holder =
        Worker::new(world.clone(), Contract::Native, format!("holder-{round}"), Character::Honest);
    let held = holder.lease(HELD_TASKS).await;
    ensure!(!held.is_empty(), "no task could be leased with room on the disk");

    disk(fixture)?.fill()?;
    let accepted = submit_until_refused(&world, round, max_submits).await?;
    println!("the disk is full after {accepted} more tasks of {PAYLOAD_BYTES} bytes");
    for _ in 0..kills {
        fixture.restart().await.context("a server was killed while the disk was full")?;
    }
    for grant in &held {
        let completion = holder.completion(grant);
        let is_kept = holder.client().beat(&completion.lease).await;
        ensure!(is_kept, "a heartbeat on a full disk was refused");
        let response = holder.client().report(&completion).await;
        let is_committed = response.is_some_and(|response| response.verdict == Some(Verdict::Committed));
        // Nobody else is there, so the last call is this one.
        let answer = world.recorder.observations().calls.last().map(|call| call.answer.clone());
        ensure!(is_committed, "a completion on a full disk was answered {answer:?}");
    }
    let (answer, _) = world.submit(&task(&format!("refused-{round}"), PAYLOAD_BYTES)).await;
    check_refusal(&answer)?;

    disk(fixture)?.free()?;
    let deadline = Instant::now() + RECOVERY_DEADLINE;
    for attempt in 0.. {
        let (_, task_id) = world.submit(&task(&format!("recovered-{round}-{attempt}"), 10)).await;
        if task_id.is_some() {
            break;
        }
        if let Some(status) = fixture.server.exited() {
            bail!(
                "the server ended with {status} on a full disk; its log ends:\n{}",
                fixture.server.log_tail()
            );
        }
        ensure!(
            Instant::now() < deadline,
            "no submit was accepted {RECOVERY_DEADLINE:?} after space was freed"
        );
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    Ok(())
}

async fn submit_until_refused(world: &Arc<World>, round: usize, max_submits: u64) -> Result<u64> {
    for count in 0..max_submits {
        let (answer, task_id) = world.submit(&task(&format!("filler-{round}-{count}"), PAYLOAD_BYTES)).await;
        if task_id.is_none() {
            check_refusal(&answer)?;
            return Ok(count);
        }
    }
    bail!("{max_submits} tasks of {PAYLOAD_BYTES} bytes were accepted on a full disk")
}

fn disk(fixture: &Fixture) -> Result<&Tmpfs> {
    fixture.disk.as_ref().context("the data lies on no small disk")
}

fn check_refusal(answer: &Answer) -> Result<()> {
    let is_clear = matches!(answer.status(), Some(429 | 503)) && answer.body()["code"].is_string();
    ensure!(is_clear, "a submit on a full disk was answered {answer:?}");
    Ok(())
}

fn task(marker: &str, payload_bytes: usize) -> Value {
    json!({"queue": QUEUE, "payload": {"marker": marker, "pad": "x".repeat(payload_bytes)}})
}
