//! Events, answers, tasks and queues as the scripts show them.

use authority::command::*;
use authority::event::{ExpiryCause, NextStep};
use authority::{Answer, Event, Outcome, Phase, QueueKey, Task};

use super::script::Names;
use crate::support::World;

pub(super) fn event(names: &Names, event: &Event) -> String {
    let task = event.task().map(|id| format!(" {}", names.of_task(id))).unwrap_or_default();
    let rest = match event {
        Event::TaskCreated(event) => {
            let later = event.not_before.map(|time| format!(" not before {time}")).unwrap_or_default();
            let redrive = event.options.as_ref().and_then(|options| options.redrive_of);
            let redrive = redrive.map(|old| format!(" again for {}", names.of_task(old))).unwrap_or_default();
            format!(" {}{later}{redrive}", event.queue.name)
        }
        Event::LeaseGranted(event) => {
            format!(" attempt {} to {} until {}", event.attempt, event.worker, event.expires_at)
        }
        Event::LeaseExtended(event) => {
            format!(" {} until {}", names.of_lease(event.fencing_token), event.expires_at)
        }
        Event::LeaseExpired(event) => {
            let cause = match event.cause {
                ExpiryCause::Silence => "by silence",
                ExpiryCause::Timeout => "by timeout",
                ExpiryCause::WorkerLost => "by worker lost",
            };
            let last = if event.exhausted { ", the last" } else { "" };
            format!(" {} {cause}{last}", names.of_lease(event.fencing_token))
        }
        Event::LeaseReleased(event) => format!(" {} {:?}", names.of_lease(event.fencing_token), event.cause),
        Event::AttemptStarted(event) => {
            format!(" {} by {}", names.of_lease(event.fencing_token), event.worker)
        }
        Event::TaskCompleted(event) => {
            format!(" {} {}", names.of_lease(event.fencing_token), String::from_utf8_lossy(&event.result))
        }
        Event::TaskFailed(event) => {
            let next = match event.next {
                NextStep::RetryAt(time) => format!("again at {time}"),
                NextStep::Final => "final".to_string(),
            };
            let error = format!("{} {}", event.error.category.name(), event.error.message);
            format!(" {} {error}, {next}", names.of_lease(event.fencing_token))
        }
        Event::TaskDead(event) => {
            let detail = event.detail.as_ref().map(|detail| format!(" ({detail})")).unwrap_or_default();
            let report = event.report.as_ref().map(|report| names.of_lease(report.fencing_token));
            let report = report.map(|lease| format!(" as {lease} reported")).unwrap_or_default();
            format!(" {}{detail}{report}", event.reason.name())
        }
        Event::TaskCancelled(event) => format!(" {} discarded", names.of_lease(event.fencing_token)),
        Event::CancelRequested(event) => {
            format!(" {:?} ({}) until {}", event.cause, event.reason, event.grace_until)
        }
        Event::OperationAttached(event) => format!(" {}", event.operation),
        Event::OperationDetached(event) => format!(" {}", event.operation),
        Event::QueueConfigured(event) => format!(" {}", event.queue.name),
        Event::TasksPurged(event) => {
            event.tasks.iter().map(|id| format!(" {}", names.of_task(*id))).collect::<String>()
        }
        Event::TokenKeyRotated(event) => format!(" {}", event.key_id),
        Event::KeyCreated(event) => format!(" {} {}", event.key.id, event.key.name),
        Event::KeyRevoked(event) => format!(" {} by {}", event.key_id, event.revoked_by),
        Event::OwnerTookOver(event) => format!(" epoch {} {}", event.epoch, event.node),
    };
    format!("{}{task}{rest}", event.name())
}

pub(super) fn answer(names: &Names, answer: &Answer) -> Vec<String> {
    let one = |text: String| vec![text];
    match answer {
        Answer::Submitted(SubmitAnswer::Created(id)) => one(format!("created {}", names.of_task(*id))),
        Answer::Submitted(SubmitAnswer::Existing(view)) => {
            one(format!("existing {}", names.of_task(view.task.id)))
        }
        Answer::Submitted(SubmitAnswer::DedupConflict(id)) => {
            one(format!("dedup conflict with {}", names.of_task(*id)))
        }
        Answer::Submitted(SubmitAnswer::Refused(why)) => one(format!("refused {why:?}")),
        Answer::Leased(grants) if grants.is_empty() => one("nothing".to_string()),
        Answer::Leased(grants) => grants.iter().map(|grant| show_grant(names, grant)).collect(),
        Answer::Extended(ExtendAnswer::Extended { expires_at, cancel }) => {
            let stop = cancel.as_ref().map(|why| format!(", stop: {why}")).unwrap_or_default();
            one(format!("until {expires_at}{stop}"))
        }
        Answer::Extended(ExtendAnswer::Lost) => one("lost".to_string()),
        Answer::Extended(ExtendAnswer::Rejected(why)) => one(format!("rejected {why:?}")),
        Answer::Started(answer) => one(format!("{answer:?}")),
        Answer::Reported(verdict) => one(show_verdict(*verdict)),
        Answer::Released(ReleaseAnswer::Over(state)) => one(format!("over, {state:?}")),
        Answer::Released(ReleaseAnswer::Rejected(why)) => one(format!("rejected {why:?}")),
        Answer::Ended(answer) => one(format!("{answer:?}")),
        Answer::Redriven(RedriveAnswer::Created(id)) => one(format!("created {}", names.of_task(*id))),
        Answer::Redriven(RedriveAnswer::Existing(id)) => one(format!("existing {}", names.of_task(*id))),
        Answer::Redriven(other) => one(format!("{other:?}")),
        Answer::Configured(ConfigureAnswer::Invalid(_)) => one("invalid".to_string()),
        Answer::Configured(other) => one(format!("{other:?}")),
        Answer::Attached(answer) => one(format!("{answer:?}")),
        Answer::KeyCreated(answer) => one(format!("{answer:?}")),
        Answer::KeyRevoked(answer) => one(format!("{answer:?}")),
        Answer::Done(more) => one(if *more { "done, more" } else { "done" }.to_string()),
    }
}

pub(super) fn tasks(world: &World, names: &Names, only: Option<&str>) -> Result<Vec<String>, String> {
    let chosen = names.tasks.iter().filter(|(name, _)| only.is_none_or(|only| only == *name));
    let lines: Vec<String> = chosen
        .map(|(name, id)| match world.state.task(*id) {
            Some(task) => format!("{name} {}", show_task(names, task)),
            None => format!("{name} unknown"),
        })
        .collect();
    if lines.is_empty() { Err("there is no such task".to_string()) } else { Ok(lines) }
}

pub(super) fn queue(world: &World, key: &QueueKey) -> String {
    let Some(view) = world.state.queue_view(key) else { return format!("{} unknown", key.name) };
    let oldest = view.oldest_waiting.map(|time| format!(", oldest from {time}")).unwrap_or_default();
    format!(
        "{} waiting {} ({} delayed), leased {}, completed {}, failed {}, dead {}{oldest}",
        view.key.name, view.waiting, view.delayed, view.leased, view.completed, view.failed, view.dead
    )
}

fn show_task(names: &Names, task: &Task) -> String {
    let phase = match &task.phase {
        Phase::Waiting { not_before, exhausted, .. } => {
            let later = not_before.map(|time| format!(" not before {time}")).unwrap_or_default();
            format!("WAITING{later}{}", if *exhausted { " exhausted" } else { "" })
        }
        Phase::Leased(lease) => {
            format!(
                "LEASED {} to {} until {}",
                names.of_lease(lease.fencing_token),
                lease.worker,
                lease.expires_at
            )
        }
        Phase::Completed { at, result, .. } => {
            format!("COMPLETED at {at} {}", String::from_utf8_lossy(result))
        }
        Phase::Failed { at, .. } => format!("FAILED at {at}"),
        Phase::Dead { at, reason, .. } => format!("DEAD at {at} {}", reason.name()),
    };
    let cancel = task.cancel.as_ref().map(|cancel| format!(", stop by {}", cancel.grace_until));
    let released = (task.releases > 0).then(|| format!(", released {}", task.releases));
    let error = task.last_error.as_ref().map(|error| format!(", error {}", error.message));
    let waiters = (!task.operations.is_empty()).then(|| format!(", waiters {}", task.operations.join(" ")));
    let rest: String = [cancel, released, error, waiters].into_iter().flatten().collect();
    format!("{phase}, attempt {}{rest}", task.attempt)
}

fn show_grant(names: &Names, grant: &Grant) -> String {
    let lease = names.of_lease(grant.fencing_token);
    let (task, attempt, beat) = (names.of_task(grant.task), grant.attempt, grant.heartbeat_interval_ms);
    format!("{lease} {task} attempt {attempt} until {}, heartbeat every {beat}", grant.expires_at)
}

fn show_verdict(verdict: Verdict) -> String {
    match verdict {
        Verdict::Committed(Outcome::RetryAt(time)) => format!("COMMITTED, WAITING until {time}"),
        Verdict::Committed(Outcome::Completed) => "COMMITTED, COMPLETED".to_string(),
        Verdict::Committed(Outcome::Failed) => "COMMITTED, FAILED".to_string(),
        Verdict::Committed(Outcome::Dead(reason)) => format!("COMMITTED, DEAD {}", reason.name()),
        Verdict::Committed(Outcome::Discarded) => "COMMITTED although discarded".to_string(),
        Verdict::Cancelled => "CANCELLED".to_string(),
        Verdict::Rejected(why) => format!("REJECTED {why:?}"),
    }
}
