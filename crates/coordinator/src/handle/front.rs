//! The front of a node in a cluster: holds each call until it is answered and forwards it to whoever owns the ledger.
//!
//! A failover is a pause, not an error: when the owner is lost, the call goes to the next owner as it is. A repeated call
//! is answered like the first one ([`super::repeat`]). What waits is bounded: by number, by memory and by time.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use authority::{Position, Time};
use tokio::sync::{Semaphore, SemaphorePermit, watch};
use tokio::time::{Instant, sleep_until, timeout};

use super::call::{Call, CallReply};
use super::configuration::Changing;
use super::local::{INBOX_KIB, Local, MAX_INBOX_WAIT, WAITING_KIB};
use super::peer::{BoxFuture, Notices, OwnerHint, PeerError};
use super::repeat::{self, GiveBack, PollNames};
use super::route::{Route, RouterOptions, To};
use crate::metrics::Metrics;
use crate::replica::Replica;
use crate::request::{Read, Reply, Request, Unavailable};

/// How long a request without an owner is held before it is refused.
pub const DEFAULT_FAILOVER_WAIT: Duration = Duration::from_secs(10);
/// How long an answer may take, beyond what the call itself waits for, before the call is sent once more, and before its
/// caller is told that nobody knows what became of it: the owner waits for the database.
const MAX_ANSWER_WAIT: Duration = Duration::from_secs(15);
/// How long a stale read waits until this node has the position that it asks for, before the owner is asked.
const MAX_CATCH_UP_WAIT: Duration = Duration::from_secs(1);
/// Most times that one call is sent: a call that takes every owner down with it must not do so forever.
const MAX_FORWARDS: u32 = 32;
/// Most calls that are held at one time.
const MAX_HELD_CALLS: usize = 65_536;
/// An empty answer to a poll that comes earlier than this before the poll's end was sent by an owner that stopped.
pub const EARLY_MS: u64 = 100;

pub(super) struct Front {
    pub routes: watch::Receiver<Route>,
    pub notices: Notices,
    pub hints: watch::Sender<OwnerHint>,
    pub metrics: Metrics,
    pub failover_wait: Duration,
    follow_wait: Duration,
    /// Zero until it is set.
    pub heartbeat_timeout_ms: AtomicU64,
    replica: Mutex<Option<Replica>>,
    /// At or after everything that owners have answered.
    answered: AtomicU64,
    polls: PollNames,
    held: Semaphore,
    held_kib: Semaphore,
    waiting_kib: Semaphore,
}

/// What became of one attempt to have a call answered.
enum Attempt {
    Answered(CallReply),
    /// The call may have been decided; it can be sent again at once.
    Lost,
    /// The owner is there, and does not answer.
    Unanswered,
    /// The owner is gone; what it had begun to decide may be recorded.
    OwnerLost,
    /// The owner could not be reached in time.
    Unreachable,
    /// The owner has changed meanwhile.
    RouteChanged,
    /// Nothing more can be done.
    Refused(Unavailable),
}

impl Front {
    pub(super) fn new(routes: watch::Receiver<Route>, options: RouterOptions) -> Front {
        Front {
            routes,
            notices: Notices::default(),
            hints: watch::Sender::default(),
            metrics: Metrics::default(),
            failover_wait: options.failover_wait,
            follow_wait: options.follow_wait,
            heartbeat_timeout_ms: AtomicU64::new(0),
            replica: Mutex::default(),
            answered: AtomicU64::new(0),
            polls: PollNames::default(),
            held: Semaphore::new(MAX_HELD_CALLS),
            held_kib: Semaphore::new(INBOX_KIB),
            waiting_kib: Semaphore::new(WAITING_KIB),
        }
    }

    pub(super) fn now(&self) -> Time {
        self.notices.0.clock.now()
    }

    pub(super) fn durable(&self) -> Position {
        let noticed = *self.notices.0.durable.borrow();
        match &self.routes.borrow().to {
            To::Local(local) => *local.durable.borrow(),
            // Its answers are ahead of its notices.
            To::Peer { peer, .. } => noticed.max(peer.durable()),
            To::Unknown => noticed,
        }
    }

    /// A position at or after everything that this node has answered so far.
    pub(super) fn position(&self) -> Position {
        let applied = self.replica().map_or(Position::ZERO, |replica| replica.applied());
        applied.max(self.durable()).max(Position(self.answered.load(Ordering::Acquire)))
    }

    pub(super) fn set_replica(&self, replica: Option<Replica>) {
        *self.replica.lock().unwrap_or_else(PoisonError::into_inner) = replica;
    }

    pub(super) fn replica(&self) -> Option<Replica> {
        self.replica.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Answers a read from the state that this node follows, once it reaches up to `min`. Nothing when the owner must answer:
    /// this node follows nobody, is too far behind, or cannot know.
    pub(super) async fn read_stale(&self, read: &Read, min: Position) -> Option<Reply> {
        let replica = self.replica()?;
        timeout(MAX_CATCH_UP_WAIT, replica.reaches(min)).await.ok()?;
        replica.read(read)
    }

    /// Has a call answered by the owner of the ledger. Boxed, so that a handle's future is no larger for it.
    pub(super) fn call(self: &Arc<Front>, mut call: Call) -> BoxFuture<'_, Result<CallReply, Unavailable>> {
        Box::pin(async move {
            let _held = self.hold(call.bytes()).await?;
            let was_live = match repeat::revoked_key(&call) {
                Some(key_id) => self.is_live_key(&key_id).await?,
                None => false,
            };
            // Whoever gives up on a poll gives back what was granted to it meanwhile.
            let mut give_back = self.polls.name(&mut call).map(|poll| GiveBack::new(self.clone(), poll));
            let (reply, forwards) = self.forward(&call, give_back.as_mut()).await?;
            if let Some(give_back) = give_back {
                give_back.delivered();
            }
            Ok(if forwards > 1 { repeat::as_first(&call, reply, was_live) } else { reply })
        })
    }

    /// Answers a call by the coordinator of this process. A change of keys is answered when the nodes that are connected follow it.
    pub(super) async fn call_local(&self, local: &Local, call: Call) -> CallReply {
        let configuration = &self.notices.0.configuration;
        let changing = call.configures().then(|| Changing::begin(configuration));
        let changes_keys = call.changes_keys();
        let reply = local.call(call).await;
        if let Some(change) = changing.map(Changing::done)
            && changes_keys
            && reply.unavailable().is_none()
        {
            configuration.followed_in_time(change, self.follow_wait).await;
        }
        reply
    }

    async fn forward(
        &self,
        call: &Call,
        mut give_back: Option<&mut GiveBack>,
    ) -> Result<(CallReply, u32), Unavailable> {
        let mut routes = self.routes.clone();
        let (mut since, mut why, mut forwards) = (Instant::now(), Unavailable::NoOwner, 0);
        let (mut ended_early, mut was_unanswered) = (None, false);
        loop {
            let route = routes.borrow_and_update().clone();
            let give_up = since + self.failover_wait;
            if !matches!(route.to, To::Unknown) {
                if forwards >= MAX_FORWARDS {
                    return Err(why);
                }
                forwards += 1;
                if let Some(give_back) = &mut give_back {
                    give_back.is_sent = true;
                }
                match self.attempt(call, &route, &mut routes, give_up).await {
                    Attempt::Answered(reply) if self.is_early(call, &reply) => ended_early = Some(reply),
                    Attempt::Answered(reply) => return Ok((reply, forwards)),
                    Attempt::Refused(why) => return Err(why),
                    Attempt::Unanswered if was_unanswered => return Err(Unavailable::OutcomeUnknown),
                    again @ (Attempt::Lost | Attempt::RouteChanged | Attempt::Unanswered) => {
                        was_unanswered |= matches!(again, Attempt::Unanswered);
                        (since, why) = (Instant::now(), Unavailable::OutcomeUnknown);
                        continue;
                    }
                    Attempt::OwnerLost => (since, why) = (Instant::now(), Unavailable::OutcomeUnknown),
                    Attempt::Unreachable => {}
                }
            }
            let give_up = since + self.failover_wait;
            tokio::select! {
                changed = routes.wait_for(|now| now.serial != route.serial) => {
                    changed.map_err(|_| Unavailable::Stopped)?;
                }
                () = sleep_until(give_up.min(self.end_of_poll(call))) => {
                    let is_poll = matches!(call, Call::Ask(Request::Poll { .. }));
                    let is_over = is_poll && self.remaining_ms(call) == 0;
                    return match ended_early {
                        Some(reply) => Ok((reply, forwards)),
                        None if is_over => Ok((CallReply::Asked(Reply::Leased(Vec::new())), forwards)),
                        None => Err(why),
                    };
                }
            }
        }
    }

    async fn attempt(
        &self,
        call: &Call,
        route: &Route,
        routes: &mut watch::Receiver<Route>,
        give_up: Instant,
    ) -> Attempt {
        let from = self.now();
        let answer_by = Instant::now() + MAX_ANSWER_WAIT + Duration::from_millis(self.remaining_ms(call));
        let answered = async {
            match &route.to {
                To::Local(local) => {
                    let reply = self.call_local(local, call.rebased(from, local.now())).await;
                    self.answered.fetch_max(local.durable.borrow().0, Ordering::AcqRel);
                    if is_over(&reply) { Attempt::OwnerLost } else { Attempt::Answered(reply) }
                }
                To::Peer { peer, .. } => {
                    match peer.call(call.rebased(from, Time::ZERO), route.epoch, give_up).await {
                        Ok(reply) => {
                            self.answered.fetch_max(peer.durable().0, Ordering::AcqRel);
                            Attempt::Answered(reply)
                        }
                        Err(PeerError::Lost) => Attempt::Lost,
                        Err(PeerError::Unreachable) => Attempt::Unreachable,
                        Err(PeerError::NotOwner(hint)) => {
                            self.take_hint(hint);
                            Attempt::OwnerLost
                        }
                        Err(PeerError::Overloaded) => Attempt::Refused(Unavailable::Overloaded),
                        Err(PeerError::NotUnderstood(what)) => {
                            tracing::error!(%what, "a call and its answer are not understood by both nodes");
                            Attempt::Refused(Unavailable::NotUnderstood)
                        }
                    }
                }
                To::Unknown => Attempt::Unreachable,
            }
        };
        tokio::select! {
            biased;
            attempt = answered => attempt,
            changed = routes.wait_for(|now| now.serial != route.serial) => match changed {
                Ok(_) => Attempt::RouteChanged,
                Err(_) => Attempt::Refused(Unavailable::Stopped),
            },
            () = sleep_until(answer_by) => Attempt::Unanswered,
        }
    }

    pub(super) fn take_hint(&self, hint: OwnerHint) {
        self.hints.send_if_modified(|last| {
            let completes = hint.epoch == last.epoch && hint != *last && hint.owner.is_some();
            let is_newer = hint.epoch > last.epoch || completes;
            if is_newer {
                *last = hint;
            }
            is_newer
        });
    }

    /// Whether an owner that stopped has ended a poll before its time.
    fn is_early(&self, call: &Call, reply: &CallReply) -> bool {
        let is_empty = matches!(reply, CallReply::Asked(Reply::Leased(grants)) if grants.is_empty());
        is_empty && self.remaining_ms(call) > EARLY_MS
    }

    fn remaining_ms(&self, call: &Call) -> u64 {
        call.until().map_or(0, |until| until.since_ms(self.now()))
    }

    /// When a poll is over, which then is answered without an owner; far in the future for any other call.
    fn end_of_poll(&self, call: &Call) -> Instant {
        const FAR: Duration = Duration::from_secs(24 * 60 * 60);
        let is_poll = matches!(call, Call::Ask(Request::Poll { .. }));
        Instant::now() + if is_poll { Duration::from_millis(self.remaining_ms(call)) } else { FAR }
    }

    async fn is_live_key(&self, key_id: &str) -> Result<bool, Unavailable> {
        let read = Call::Ask(Request::Read(crate::request::Read::Keys));
        Ok(match self.forward(&read, None).await?.0 {
            CallReply::Asked(Reply::Keys(keys)) => keys.iter().any(|stored| *stored.key.id == *key_id),
            _ => false,
        })
    }

    /// Accounts for a call while it is held.
    async fn hold(&self, bytes: usize) -> Result<Held<'_>, Unavailable> {
        let call = self.held.try_acquire().map_err(|_| Unavailable::Overloaded)?;
        let kib = bytes.div_ceil(1_024).min(INBOX_KIB) as u32;
        let memory = match self.held_kib.try_acquire_many(kib) {
            Ok(memory) => memory,
            Err(_) => {
                let waiting = self.waiting_kib.try_acquire_many(kib.min(WAITING_KIB as u32));
                let _waiting = waiting.map_err(|_| Unavailable::Overloaded)?;
                let memory = timeout(MAX_INBOX_WAIT, self.held_kib.acquire_many(kib)).await;
                memory.map_err(|_| Unavailable::Overloaded)?.map_err(|_| Unavailable::Stopped)?
            }
        };
        Ok(Held { _call: call, _memory: memory })
    }
}

/// The permits of a call that is held.
struct Held<'a> {
    _call: SemaphorePermit<'a>,
    _memory: SemaphorePermit<'a>,
}

/// Whether a coordinator answered so because it has ended: another owner may answer the call.
pub(super) fn is_over(reply: &CallReply) -> bool {
    matches!(reply.unavailable(), Some(Unavailable::Stopped | Unavailable::OutcomeUnknown))
}

/// Follows the notices of whoever owns the ledger, until the router is gone.
pub(super) async fn follow(mut routes: watch::Receiver<Route>, notices: Notices, failover_wait: Duration) {
    loop {
        let route = routes.borrow_and_update().clone();
        let following = async {
            match &route.to {
                To::Local(local) => follow_local(local, &notices).await,
                To::Peer { peer, .. } => loop {
                    // Returns when the connection is lost, and waits for the next one.
                    peer.follow(notices.clone()).await;
                },
                To::Unknown => {
                    tokio::time::sleep(failover_wait).await;
                    notices.0.takes_work.send_if_modified(|last| std::mem::replace(last, false));
                    std::future::pending().await
                }
            }
        };
        tokio::select! {
            () = following => {}
            changed = routes.changed() => if changed.is_err() { return },
        }
    }
}

async fn follow_local(local: &Local, notices: &Notices) {
    let (mut takes_work, mut durable) = (local.takes_work.clone(), local.durable.clone());
    let (mut registered, mut ordered) = (local.registry.watch(), local.registry.watch_orders());
    let board = &*notices.0;
    board.clock.follow(local.now());
    notices.post_all();
    loop {
        let takes = *takes_work.borrow_and_update();
        board.takes_work.send_if_modified(|last| std::mem::replace(last, takes) != takes);
        board.durable.send_replace(*durable.borrow_and_update());
        let open = tokio::select! {
            changed = takes_work.changed() => changed.is_ok(),
            changed = durable.changed() => changed.is_ok(),
            changed = registered.changed() => { board.registered.send_replace(()); changed.is_ok() }
            changed = ordered.changed() => { board.ordered.send_replace(()); changed.is_ok() }
        };
        if !open {
            // The coordinator has ended; the supervisor sets the next route.
            return std::future::pending().await;
        }
    }
}
