//! One task on its way to a target: sent, kept alive until its worker must have begun, and watched until its lease is
//! over, which frees a place at the target.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use authority::command::{ExtendAnswer, ExtendLease, Grant, ReleaseLease};
use authority::event::ReleaseCause;
use authority::{Category, Lease, LeaseRef, Position, TaskError, Time};
use axum::http::StatusCode;
use bytes::Bytes;
use coordinator::{TaskDetail, Unavailable, WaitCondition};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use super::client::Answered;
use super::envelope::{dispatch_id, task_envelope};
use super::target_dispatcher::{PAUSE, TargetDispatcher};
use crate::convert::report_details::Details;
use crate::convert::{ids, report};

/// How long one watch lasts; the next one follows at once.
const WATCH: Duration = Duration::from_secs(60);
/// How often a request is repeated that the coordinator had no capacity for. Then the lease expires.
const MAX_TRIES: usize = 30;
/// The code of an attempt that ended because its target did not take it.
const UNACCEPTABLE: &str = "push_unacceptable";

pub(super) struct Dispatch {
    dispatcher: Arc<TargetDispatcher>,
    lease: LeaseRef,
    grant: Grant,
}

impl Dispatch {
    pub(super) fn new(dispatcher: Arc<TargetDispatcher>, grant: Grant) -> Dispatch {
        Dispatch { dispatcher, lease: grant.lease_ref(), grant }
    }

    /// Sends the task and sees it through. `answered` is dropped once it is known how the target is doing.
    pub(super) async fn run(self, answered: Option<oneshot::Sender<()>>) {
        let accepted = self.deliver(Instant::now() + self.beat(), answered.is_some()).await;
        drop(answered);
        if accepted {
            self.see_through(true).await;
        }
    }

    /// The same for a lease that was held already.
    pub(super) async fn again(self, began: bool) {
        // Nobody knows how much of the lease is left, so it is extended at once.
        if began || self.deliver(Instant::now(), false).await {
            self.see_through(!began).await;
        }
    }

    /// Gives the task back at no cost.
    async fn give_back(&self) {
        let release = || ReleaseLease { lease: self.lease.clone(), cause: ReleaseCause::Undelivered };
        insist(|| self.dispatcher.app.handle.release(release())).await;
    }

    /// Whether the target has the task. A target that fails is sent nothing but a probe.
    async fn deliver(&self, next_beat: Instant, is_probe: bool) -> bool {
        let sent = self.keeping_alive(next_beat, async {
            let _inside = self.dispatcher.limiter.enter(&self.dispatcher.app.push.connections).await;
            if !is_probe && self.dispatcher.health.unwell_until().is_some() {
                return None;
            }
            let began = self.dispatcher.health.begin();
            let now_s = self.dispatcher.app.handle.now().0 / 1_000;
            let answered = match self.envelope().await {
                Ok((id, body)) => self.dispatcher.client.post(&id, body, now_s).await,
                Err(why) => Answered::Unwell { why: why.to_string(), retry_after: None },
            };
            Some((began, answered))
        });
        let (began, answered) = match sent.await {
            Some(Some(sent)) => sent,
            Some(None) => {
                self.give_back().await;
                return false;
            }
            // The lease is over; whose task it is now is somebody else's matter.
            None => return false,
        };
        let (queue, task) = (&self.dispatcher.queue.name, self.lease.task);
        match answered {
            Answered::Accepted => {
                self.target_is_well(began);
                true
            }
            // It may have the task all the same, and then it takes tasks.
            Answered::Unacceptable(_) | Answered::Unwell { .. } if self.has_begun().await => {
                self.target_is_well(began);
                true
            }
            Answered::Unacceptable(status) => {
                self.target_is_well(began);
                tracing::warn!(%queue, %task, %status, "a push target does not accept a task");
                self.fail(status).await;
                false
            }
            Answered::Unwell { why, retry_after } => {
                let draw = ids::draw().unwrap_or_default();
                match self.dispatcher.health.failed(began, retry_after, draw) {
                    Some(1) => {
                        tracing::warn!(%queue, why, "a push target fails; it is left alone for a while")
                    }
                    failures => tracing::debug!(%queue, ?failures, why, "a push target fails"),
                }
                self.give_back().await;
                false
            }
        }
    }

    fn target_is_well(&self, began: super::health::Began) {
        if self.dispatcher.health.well(began) {
            tracing::info!(queue = %self.dispatcher.queue.name, "a push target takes tasks again");
        }
    }

    /// The dispatch's id and what is sent.
    async fn envelope(&self) -> Result<(String, Bytes), Unavailable> {
        let TargetDispatcher { app, callback_base_url, .. } = &*self.dispatcher;
        let mut envelope = task_envelope(app, &self.grant, callback_base_url).await?;
        let id = dispatch_id(&envelope.run_id, &envelope.task_id, &envelope.task_key, envelope.attempt);
        envelope.dispatch_id.clone_from(&id);
        let body = serde_json::to_vec(&envelope).unwrap_or_default();
        Ok((id, body.into()))
    }

    /// Does something that may take longer than the lease. None when the lease is over first.
    async fn keeping_alive<T>(&self, mut next_beat: Instant, work: impl Future<Output = T>) -> Option<T> {
        let mut work = pin!(work);
        loop {
            tokio::select! {
                biased;
                done = &mut work => return Some(done),
                () = sleep_until(next_beat) => {
                    if let Extended::Over = self.extend().await {
                        return None;
                    }
                    next_beat = Instant::now() + self.beat();
                }
            }
        }
    }

    /// Watches the task until its lease is over. While its worker need not have begun, the lease is kept alive.
    async fn see_through(&self, mut keep_alive: bool) {
        let length = Duration::from_millis(self.grant.length_ms);
        // The last extension lasts until a worker must have begun.
        let last_beat = Instant::now() + length.max(self.dispatcher.app.push.options.begin_within) - length;
        let mut ours = self.grant.expires_at;
        let mut next_beat = Instant::now();
        let mut seen = self.lease.fencing_token;
        loop {
            if keep_alive && Instant::now() >= next_beat {
                match self.extend().await {
                    Extended::Until(time) => ours = ours.max(time),
                    Extended::Unknown => {}
                    Extended::Over => return,
                }
                keep_alive = Instant::now() < last_beat;
                next_beat = (Instant::now() + self.beat()).min(last_beat);
            }
            let wait = if keep_alive {
                next_beat.saturating_duration_since(Instant::now()).min(WATCH)
            } else {
                WATCH
            };
            match self.change_after(seen, wait).await {
                Ok(None) | Err(Unavailable::Stopped) => return,
                Ok(Some((last, lease))) => {
                    seen = last;
                    // A start, or an extension that is not from here, is the worker's sign of life.
                    keep_alive &= lease.started_by.is_none() && lease.expires_at <= ours;
                }
                Err(_) => sleep(PAUSE).await,
            }
        }
    }

    /// The task's newest record and its lease, after a change or the wait. None when the lease is over.
    async fn change_after(
        &self,
        seen: Position,
        wait: Duration,
    ) -> Result<Option<(Position, Lease)>, Unavailable> {
        let turn_until = Instant::now() + wait;
        let Ok(_turn) = timeout_at(turn_until, self.dispatcher.app.push.watches.acquire()).await else {
            // Too many are watched; what has changed meanwhile can be read all the same.
            return self.present().await;
        };
        let (scope, task) = (self.lease.scope.clone(), self.lease.task);
        let left = turn_until.saturating_duration_since(Instant::now());
        let detail =
            self.dispatcher.app.handle.wait_task(scope, task, WaitCondition::ChangeAfter(seen), left).await?;
        Ok(detail.and_then(|detail| self.own(&detail)))
    }

    /// The same at once.
    async fn present(&self) -> Result<Option<(Position, Lease)>, Unavailable> {
        let detail = self.dispatcher.app.handle.task(self.lease.scope.clone(), self.lease.task).await?;
        Ok(detail.and_then(|detail| self.own(&detail)))
    }

    fn own(&self, detail: &TaskDetail) -> Option<(Position, Lease)> {
        let task = &detail.view.task;
        let lease = task.lease().filter(|lease| lease.fencing_token == self.lease.fencing_token)?;
        Some((task.last, lease.clone()))
    }

    async fn has_begun(&self) -> bool {
        matches!(self.present().await, Ok(Some((_, lease))) if lease.started_by.is_some())
    }

    /// The attempt ends as a failure, so that a task which the target does not take cannot block the queue.
    async fn fail(&self, status: StatusCode) {
        let error = TaskError {
            category: Category::Infrastructure,
            code: Some(UNACCEPTABLE.into()),
            message: format!("the push target answered {status}").into(),
        };
        if let Ok(failure) = report::failure(self.lease.clone(), error, Some(true), Details::default()) {
            insist(|| self.dispatcher.app.handle.fail(failure.clone())).await;
        }
    }

    async fn extend(&self) -> Extended {
        match self.dispatcher.app.handle.heartbeat(ExtendLease { lease: self.lease.clone() }, None).await {
            Ok(ExtendAnswer::Extended { expires_at, .. }) => Extended::Until(expires_at),
            Ok(ExtendAnswer::Lost | ExtendAnswer::Rejected(_)) => Extended::Over,
            Err(_) => Extended::Unknown,
        }
    }

    /// How often the lease is extended from here.
    fn beat(&self) -> Duration {
        Duration::from_millis((self.grant.length_ms / 3).max(1))
    }
}

enum Extended {
    Until(Time),
    Over,
    Unknown,
}

/// Says something to the coordinator until it is taken.
async fn insist<T, F: Future<Output = Result<T, Unavailable>>>(say: impl Fn() -> F) {
    for _ in 0..MAX_TRIES {
        match say().await {
            Ok(_) | Err(Unavailable::Stopped | Unavailable::OutcomeUnknown) => return,
            Err(
                Unavailable::Overloaded
                | Unavailable::NoSpace
                | Unavailable::NoOwner
                | Unavailable::NoStandby
                | Unavailable::NotUnderstood,
            ) => sleep(PAUSE).await,
        }
    }
}
