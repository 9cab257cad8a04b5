//! Checks the ledger of a run: no task had two holders at a time, nothing was accepted twice or too late, and
//! no action was committed again.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, bail, ensure};
use auditor::history::Recorded;
use authority::{Event, Position, TaskId, Time};
use serde_json::Value;

use super::RunCounts;

#[derive(Default)]
struct TaskState {
    action: String,
    /// The lease that lives, and until when.
    lease: Option<(Position, Time)>,
    is_over: bool,
}

pub(super) fn check(records: &[Recorded], run_counts: &mut RunCounts) -> Result<()> {
    let mut states: BTreeMap<TaskId, TaskState> = BTreeMap::new();
    let mut committed = BTreeSet::new();
    for record in records {
        let Some(task) = record.event.task() else { continue };
        let at = record.position;
        let state = match &record.event {
            Event::TaskCreated(created) => {
                let payload: Value = serde_json::from_slice(&created.payload)?;
                let action = payload["actionDigest"].as_str().context("a task is an action")?.to_owned();
                states.entry(task).or_insert(TaskState { action, ..TaskState::default() })
            }
            _ => states.get_mut(&task).with_context(|| format!("{at}: task {task} was never created"))?,
        };
        match &record.event {
            Event::LeaseGranted(granted) => {
                ensure!(state.lease.is_none(), "{at}: task {task} was leased to two at a time");
                ensure!(!state.is_over, "{at}: task {task} was leased although it was over");
                ensure!(!committed.contains(&state.action), "{at}: a committed action was leased again");
                state.lease = Some((at, granted.expires_at));
            }
            Event::LeaseExtended(extended) => {
                let lease = state.lease.as_mut().with_context(|| format!("{at}: no lease to extend"))?;
                lease.1 = extended.expires_at;
            }
            Event::LeaseExpired(_) => {
                run_counts.expired_leases += 1;
                ensure!(state.lease.take().is_some(), "{at}: no lease to expire");
            }
            Event::LeaseReleased(_) => ensure!(state.lease.take().is_some(), "{at}: no lease to release"),
            Event::TaskCancelled(_) => run_counts.late_reports += 1,
            Event::TaskCompleted(_) => {
                let (lease, until) =
                    state.lease.take().with_context(|| format!("{at}: nobody held task {task}"))?;
                ensure!(record.at <= until, "{at}: accepted after lease {lease} had ended");
                ensure!(!state.is_over, "{at}: task {task} was committed twice");
                state.is_over = true;
                ensure!(committed.insert(state.action.clone()), "{at}: an action was committed twice");
            }
            Event::TaskFailed(_) => state.lease = None,
            Event::TaskDead(dead) => bail!("{at}: task {task} died: {dead:?}"),
            _ => {}
        }
    }
    let open = states.values().filter(|state| !state.is_over).count();
    ensure!(open == 0, "{open} tasks never ended");
    ensure!(
        committed.len() == run_counts.actions,
        "{} of {} actions were committed",
        committed.len(),
        run_counts.actions
    );
    run_counts.further_leases = further_leases(records);
    Ok(())
}

/// Leases beyond the first of each task.
pub(super) fn further_leases(records: &[Recorded]) -> usize {
    let leases = records.iter().filter(|record| matches!(record.event, Event::LeaseGranted(_)));
    let leased: Vec<TaskId> = leases.filter_map(|record| record.event.task()).collect();
    leased.len() - leased.iter().collect::<BTreeSet<_>>().len()
}
