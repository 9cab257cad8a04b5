//! ReportHeartbeat: a worker is alive and extends its leases. The stream parses its heartbeats here too.

use std::collections::HashMap;
use std::sync::Arc;

use authority::command::{ExtendAnswer, ExtendLease};
use authority::{Answer, LeaseRef, Position, Rejection, Scope};
use coordinator::{Batch, BatchItem, Liveness};
use prost::Message;
use tonic::Status;
use wire::grpc::{HeartbeatRequest, HeartbeatResponse, LeaseHeartbeat, LeaseStatus};

use super::MAX_SENT_MESSAGE_BYTES;
use super::session::Session;
use super::values::{at_most, cancel_reason, given, timestamp, worker_status};
use crate::app::App;
use crate::convert::lease_id::reference;
use crate::convert::{Code, Problem, grpc_status, report};
use crate::edge::auth::Caller;

/// Most leases that one message may name, and that are decided in one go.
pub(super) const MAX_NAMED_LEASES: usize = 1_000;
/// Most bytes of an answer that are about leases; the rest is for its other fields.
const MAX_TOLD_BYTES: usize = MAX_SENT_MESSAGE_BYTES - 1_024;

/// The queues of what a worker holds, for a caller that may act on some queues only.
#[derive(Default)]
struct HeldQueues {
    caller: Caller,
    queues: HashMap<Position, Arc<str>>,
}

impl HeldQueues {
    async fn of(session: &Session, caller: &Caller) -> Result<HeldQueues, Problem> {
        if !caller.has_queue_limit() {
            return Ok(HeldQueues::default());
        }
        let held = session.app.handle.leases(session.scope.clone(), session.worker.clone()).await?;
        let queues = held.into_iter().map(|held| (held.lease.fencing_token, held.queue)).collect();
        Ok(HeldQueues { caller: caller.clone(), queues })
    }

    /// Nothing can be done under a lease that is not held, so it is not checked.
    fn check(&self, lease: &LeaseRef) -> Result<(), Problem> {
        let queue = self.queues.get(&lease.fencing_token);
        queue.map_or(Ok(()), |queue| self.caller.check_queues([&**queue]))
    }
}

pub(super) async fn heartbeat(
    app: &App,
    scope: Scope,
    caller: &Caller,
    request: &HeartbeatRequest,
) -> Result<HeartbeatResponse, Status> {
    let session = Session::parse(app, scope, caller, &request.worker_id, &request.session_id).await?;
    at_most("leases", request.leases.len(), MAX_NAMED_LEASES)?;
    let said = worker_status(request.state, request.stats.as_ref());
    let recorded = app.handle.record_status(&session.scope, &session.worker, session.id.as_ref(), said);
    let liveness = recorded.await.map_err(Problem::from)?;
    let is_registered = matches!(liveness, Liveness::Registered | Liveness::Stopping);
    let leases = if !request.leases.is_empty() {
        extend_named(&session, caller, &request.leases).await?
    } else if is_registered || session.owner.is_none() {
        extend_all(&session, caller).await?
    } else {
        // Nobody knows yet whose worker it is; a name alone opens nothing. It was heard nevertheless, so that its registration
        // does not pass for the start of a worker.
        app.handle.record_heartbeat(&session.scope, &session.worker).await.map_err(Problem::from)?;
        Vec::new()
    };
    Ok(HeartbeatResponse {
        should_shutdown: matches!(liveness, Liveness::Superseded | Liveness::Stopping),
        registered: is_registered,
        leases,
        stopped_by_operator: liveness == Liveness::Stopping,
    })
}

/// Extends the leases that are named, except those that the caller may not touch. What is wrong with one of them does not
/// touch the others.
pub(super) async fn extend_named(
    session: &Session,
    caller: &Caller,
    beats: &[LeaseHeartbeat],
) -> Result<Vec<LeaseStatus>, Problem> {
    let queues = HeldQueues::of(session, caller).await?;
    let mut items = Batch::with_capacity(beats.len());
    let parsed: Vec<_> = beats.iter().map(|beat| parse(session, beat, &queues, &mut items)).collect();
    let answers = decide(&session.app, items).await?;
    note_extended(&session.app, caller, parsed.iter().flatten(), &answers).await;
    let mut answers = answers.into_iter();
    let statuses = beats.iter().zip(parsed).map(|(beat, parsed)| match parsed {
        Ok(lease) => to_proto(beat.lease_id.clone(), &lease, answers.next()),
        Err(problem) => {
            let lease_id = echo(beat.lease_id.clone());
            LeaseStatus {
                lease_id,
                lost: true,
                problem: Some(grpc_status::item(problem)),
                ..LeaseStatus::default()
            }
        }
    });
    Ok(statuses.collect())
}

/// A lease id to be sent back, unless it is longer than any that was made here.
pub(super) fn echo(lease_id: String) -> String {
    const MAX_ECHO_BYTES: usize = 64;
    if lease_id.len() <= MAX_ECHO_BYTES { lease_id } else { String::new() }
}

/// The statuses of leases about which nothing was decided.
pub(super) fn undecided(beats: Vec<LeaseHeartbeat>, problem: &Problem) -> Vec<LeaseStatus> {
    let status = |beat: LeaseHeartbeat| LeaseStatus {
        lease_id: echo(beat.lease_id),
        problem: Some(grpc_status::item(problem.clone())),
        ..LeaseStatus::default()
    };
    beats.into_iter().map(status).collect()
}

/// Extends all leases of the session or, if it has no name, all that the worker obtained by LeaseTask (C8, C17). If their statuses do not fit into a message, those that should stop come first.
async fn extend_all(session: &Session, caller: &Caller) -> Result<Vec<LeaseStatus>, Problem> {
    let (app, mut held) = (&session.app, session.held().await?);
    // The ids of other leases are not the caller's to learn: a worker's name proves nothing.
    held.retain(|held| caller.may_use(&held.queue));
    // The worker may not know that its completion decided nothing: the lease must not live forever.
    app.leave_out_refused(&mut held).await;
    let beat = |lease: &LeaseRef| BatchItem::Heartbeat {
        extend: ExtendLease { lease: lease.clone() },
        progress: None,
    };
    let answers = decide(app, held.iter().map(|held| beat(&held.lease)).collect()).await?;
    note_extended(app, caller, held.iter().map(|held| &held.lease), &answers).await;
    let mut answers = answers.into_iter();
    let statuses =
        held.iter().map(|held| to_proto(app.lease_ids.make(&held.lease), &held.lease, answers.next()));
    Ok(what_fits(statuses.collect()))
}

/// Leases that the caller has extended are the caller's, which is not known after a restart.
async fn note_extended<'a>(
    app: &App,
    caller: &Caller,
    leases: impl Iterator<Item = &'a LeaseRef>,
    answers: &[Answer],
) {
    let is_extended = |answer: &Answer| matches!(answer, Answer::Extended(ExtendAnswer::Extended { .. }));
    let extended = leases.zip(answers).filter(|(_, answer)| is_extended(answer));
    let extended: Vec<LeaseRef> = extended.map(|(lease, _)| lease.clone()).collect();
    app.note_leases(caller, &extended).await;
}

fn what_fits(mut leases: Vec<LeaseStatus>) -> Vec<LeaseStatus> {
    // Before each stand its field's number and its length.
    const FRAME_BYTES: usize = 8;
    let bytes = |status: &LeaseStatus| FRAME_BYTES + status.encoded_len();
    if leases.iter().map(bytes).sum::<usize>() > MAX_TOLD_BYTES {
        leases.sort_by_key(|status| !(status.should_cancel || status.lost));
        let mut message_bytes = 0;
        let fit = leases.iter().take_while(|status| {
            message_bytes += bytes(status);
            message_bytes <= MAX_TOLD_BYTES
        });
        leases.truncate(fit.count());
    }
    leases
}

/// Decides as many at a time as one message may name, so that others have their turn between.
pub(super) async fn decide(app: &App, items: Batch) -> Result<Vec<Answer>, Problem> {
    let mut answers = Vec::with_capacity(items.len());
    let mut items = items.into_iter();
    while items.len() > 0 {
        let some = items.by_ref().take(MAX_NAMED_LEASES).collect();
        answers.extend(app.handle.decide(some).await?);
    }
    Ok(answers)
}

fn parse(
    session: &Session,
    beat: &LeaseHeartbeat,
    queues: &HeldQueues,
    items: &mut Batch,
) -> Result<LeaseRef, Problem> {
    let Session { app, scope, worker, .. } = session;
    let lease = reference(app, scope, &beat.lease_id, worker, None)?;
    queues.check(&lease)?;
    let progress = report::progress(app, "progress_pct", beat.progress_pct, given(&beat.message))?;
    items.push(BatchItem::Heartbeat { extend: ExtendLease { lease: lease.clone() }, progress });
    Ok(lease)
}

fn to_proto(lease_id: String, lease: &LeaseRef, answer: Option<Answer>) -> LeaseStatus {
    let about = LeaseStatus { lease_id, task_id: lease.task.to_string(), ..LeaseStatus::default() };
    match answer {
        Some(Answer::Extended(ExtendAnswer::Extended { expires_at, cancel })) => LeaseStatus {
            expires_at: Some(timestamp(expires_at)),
            should_cancel: cancel.is_some(),
            cancel_reason: cancel_reason(cancel),
            ..about
        },
        // The lease id is genuine, so a task that is unknown by now was purged, and its lease is as gone as any.
        Some(Answer::Extended(ExtendAnswer::Lost | ExtendAnswer::Rejected(Rejection::UnknownTask))) => {
            LeaseStatus { lost: true, ..about }
        }
        Some(Answer::Extended(ExtendAnswer::Rejected(why))) => {
            LeaseStatus { lost: true, problem: Some(grpc_status::item(why.into())), ..about }
        }
        _ => {
            let unanswered = Problem::new(Code::OutcomeUnknown, "the coordinator gave no answer");
            LeaseStatus { problem: Some(grpc_status::item(unanswered)), ..about }
        }
    }
}
