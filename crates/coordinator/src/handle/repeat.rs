//! Repeats of a call whose first answer may be lost: the answer to the repeat must be the answer to the first.
//!
//! Most calls repeat by themselves: reports by their content, cancels, configuration, orders and attached operations
//! because they change nothing the second time. The others are made to here: a poll gets a name by which its leases are
//! found again, and the answers to a repeated submit, redrive and revocation are put back.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use authority::command::{LeaseTasks, RedriveAnswer, ReleaseLease, RevokeKey, RevokeKeyAnswer, SubmitAnswer};
use authority::event::ReleaseCause;
use authority::{Answer, Command, Contract, Digest};

use super::call::{Call, CallReply};
use super::front::Front;
use crate::request::{BatchItem, Reply, Request};

/// Names polls that have none, each once.
pub(super) struct PollNames {
    node: u64,
    next: AtomicU64,
}

impl Default for PollNames {
    fn default() -> PollNames {
        // The keys of the hasher are random.
        PollNames { node: RandomState::new().hash_one(0_u64), next: AtomicU64::new(0) }
    }
}

impl PollNames {
    /// Names a poll that its worker has not named, and returns it as it is now. Any other call is left alone.
    pub(super) fn name(&self, call: &mut Call) -> Option<LeaseTasks> {
        let Call::Ask(Request::Poll { lease, .. }) = call else { return None };
        if lease.request.is_some() {
            return None;
        }
        let mut digest = [0; 16];
        digest[..8].copy_from_slice(&self.node.to_be_bytes());
        digest[8..].copy_from_slice(&self.next.fetch_add(1, Ordering::Relaxed).to_be_bytes());
        lease.request = Some(Digest(digest));
        Some(lease.clone())
    }
}

/// Gives the leases of a poll back if its caller goes away before the answer: nobody else knows the poll's name.
pub(super) struct GiveBack {
    /// Set once an owner may have granted something.
    pub is_sent: bool,
    front: Option<(Arc<Front>, LeaseTasks)>,
}

impl GiveBack {
    pub(super) fn new(front: Arc<Front>, poll: LeaseTasks) -> GiveBack {
        GiveBack { is_sent: false, front: Some((front, poll)) }
    }

    /// The caller has the answer.
    pub(super) fn delivered(mut self) {
        self.front = None;
    }
}

impl Drop for GiveBack {
    fn drop(&mut self) {
        let Some((front, poll)) = self.front.take().filter(|_| self.is_sent) else { return };
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { give_back(&front, poll).await });
        }
    }
}

/// Asks for what was granted to a poll, and gives it back. What cannot be given back expires.
async fn give_back(front: &Arc<Front>, poll: LeaseTasks) {
    // It asks for no more tasks than the poll has, and is no sign of life of the worker.
    let again = LeaseTasks { max_tasks: 0, contract: Contract::Stream, ..poll };
    let until = front.now();
    let granted = front.call(Call::Ask(Request::Poll { lease: again, until })).await;
    let Ok(CallReply::Asked(Reply::Leased(grants))) = granted else { return };
    let release = |lease| ReleaseLease { lease, cause: ReleaseCause::Undelivered };
    let releases = grants.iter().map(|grant| Command::ReleaseLease(release(grant.lease_ref())));
    let items: crate::request::Batch = releases.map(BatchItem::Command).collect();
    if !items.is_empty() {
        let _ = front.call(Call::Ask(Request::Decide(items))).await;
    }
}

/// The key that a call revokes.
pub(super) fn revoked_key(call: &Call) -> Option<Arc<str>> {
    match call {
        Call::Ask(request) => match request.command() {
            Some(Command::RevokeKey(RevokeKey { key_id, .. })) => Some(key_id.clone()),
            _ => None,
        },
        _ => None,
    }
}

/// The answer to a request that was sent more than once, as the answer to the first.
pub fn answer_to_repeat(request: &Request, reply: Reply) -> Reply {
    match as_first(&Call::Ask(request.clone()), CallReply::Asked(reply), false) {
        CallReply::Asked(reply) => reply,
        // What was asked of the engine is answered by the engine.
        _ => Reply::Unavailable(crate::request::Unavailable::OutcomeUnknown),
    }
}

/// The answer to a repeated call as the answer to the first. `was_live` says whether the key to be revoked lived before.
pub(super) fn as_first(call: &Call, reply: CallReply, was_live: bool) -> CallReply {
    let (Call::Ask(Request::Decide(items)), CallReply::Asked(Reply::Decided(mut answers))) =
        (call, reply.clone())
    else {
        return reply;
    };
    for (item, answer) in items.iter().zip(&mut answers) {
        let BatchItem::Command(command) = item else { continue };
        let first = match (command, &*answer) {
            // Ids are made for one call, so a task with this id was created by this call.
            (Command::SubmitTask(submit), Answer::Submitted(SubmitAnswer::Existing(view)))
                if view.task.id == submit.id =>
            {
                Answer::Submitted(SubmitAnswer::Created(submit.id))
            }
            (Command::RedriveTask(redrive), Answer::Redriven(RedriveAnswer::Existing(id)))
                if *id == redrive.id =>
            {
                Answer::Redriven(RedriveAnswer::Created(redrive.id))
            }
            (Command::RevokeKey(_), Answer::KeyRevoked(RevokeKeyAnswer::Unknown)) if was_live => {
                Answer::KeyRevoked(RevokeKeyAnswer::Revoked)
            }
            _ => continue,
        };
        *answer = first;
    }
    CallReply::Asked(Reply::Decided(answers))
}
