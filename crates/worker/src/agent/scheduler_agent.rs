//! The agent for servers that know only the five scheduler calls (`--protocol plan`).
//!
//! It runs actions alone, because a leased task names nothing else, and their digests are SHA-256. A lease is held by the
//! worker's heartbeats; the server says with its answer to a report whether the lease still counted.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use execution::ExecutionPayload;
use lessor_sdk::protocol::Backoff;
use tokio::task::{Id, JoinSet};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tonic::codegen::BoxFuture;
use tonic::{Code, Status};
use tonic_types::StatusExt;
use wire::grpc::{LeasedTask, TaskStatus, UpdateTaskStatusRequest, WorkerState, WorkerStats};

use super::health::Health;
use super::lease_table::{MAX_LEASES, MAX_UPLOADS_AGAIN, OUTPUTS_MISSING, outputs_stay_missing};
use super::scheduler_client::SchedulerClient;
use super::{FINAL_REPORT_TIMEOUT, STOP_GRACE};
use crate::action::unless;
use crate::{Config, Error, Failure, Outcome, Performer, Permit, Stopper};

/// A lease lasts for several heartbeats, so that one of them may be lost.
const HEARTBEATS_PER_LEASE: u32 = 3;
const MIN_HEARTBEAT_INTERVAL: Duration = Duration::from_secs(1);
/// How often a report that is answered with INTERNAL is repeated, which takes about twenty seconds. A server answers so when
/// something in it failed for a moment, and a server that cannot read the result may do so each time.
const MAX_INTERNAL_ERRORS: u32 = 8;

pub(super) struct SchedulerAgent {
    client: SchedulerClient,
    performer: Arc<dyn Performer>,
    slots: usize,
    instance: String,
    heartbeat_interval: Duration,
    health: Health,
    is_fit: bool,
    running: JoinSet<Ended>,
    /// The running attempts, each with the id of its task.
    attempts: HashMap<Id, (String, Permit)>,
    completed: i64,
    failed: i64,
}

/// How an attempt ended.
enum Ended {
    Completed,
    Failed,
    /// The lease was lost, or the attempt was stopped and not reported.
    Lost,
}

type Poll = BoxFuture<Vec<LeasedTask>, Status>;

impl SchedulerAgent {
    /// Works until it is stopped or refused, or until the server asks it to stop.
    pub(super) async fn serve(
        config: Config,
        performer: Arc<dyn Performer>,
        stop: Stopper,
    ) -> Result<(), Error> {
        let mut agent = SchedulerAgent {
            client: SchedulerClient::new(&config)?,
            health: Health::new(performer.clone()),
            is_fit: performer.fitness().await.is_ok(),
            performer,
            slots: config.max_concurrent_tasks.clamp(1, MAX_LEASES / 2),
            instance: config.workspace.clone().unwrap_or_default(),
            heartbeat_interval: config.heartbeat_interval,
            running: JoinSet::new(),
            attempts: HashMap::new(),
            completed: 0,
            failed: 0,
        };
        let ended = tokio::select! {
            ended = agent.work() => ended,
            () = stop.stop_requested() => Ok(()),
        };
        if ended.is_ok() {
            tracing::info!("draining: waiting for running tasks");
            let drained = timeout(config.drain_timeout, async {
                tokio::select! {
                    () = stop.immediate_stop_requested() => {}
                    () = agent.drain() => {}
                }
            });
            let _ = drained.await;
        }
        agent.leave().await;
        ended
    }

    /// Leases and runs tasks; ends when the server asks the worker to stop.
    async fn work(&mut self) -> Result<(), Error> {
        let mut backoff = Backoff::unlimited();
        let mut poll: Option<Poll> = None;
        let mut next_heartbeat = Instant::now();
        let mut is_registered = false;
        loop {
            if !is_registered {
                self.register(&mut backoff).await?;
                is_registered = true;
            }
            let free = self.slots.saturating_sub(self.running.len());
            if poll.is_none() && self.is_fit && free > 0 {
                let client = self.client.clone();
                poll = Some(Box::pin(async move { client.lease(free).await }));
            }
            tokio::select! {
                leased = next(&mut poll) => {
                    poll = None;
                    match leased {
                        Ok(tasks) => {
                            backoff = Backoff::unlimited();
                            for task in tasks {
                                next_heartbeat = next_heartbeat.min(Instant::now() + self.interval_for(&task));
                                if self.running.len() < self.slots {
                                    self.begin(task);
                                } else {
                                    self.fail(task.task_id, "the worker was given more tasks than it asked for");
                                }
                            }
                        }
                        // The server may have forgotten the worker. If it has not, a registration would release the
                        // leases, as for a worker that has started anew.
                        Err(status) => {
                            pause(&mut backoff, &status).await;
                            is_registered = is_transient(&status);
                        }
                    }
                }
                Some(ended) = self.running.join_next_with_id() => self.on_end(ended),
                fitness = self.health.next_check() => self.is_fit = fitness.is_ok(),
                () = sleep_until(next_heartbeat) => {
                    next_heartbeat = Instant::now() + self.heartbeat_interval;
                    let state = match (self.is_fit, self.running.is_empty()) {
                        (false, _) => WorkerState::Draining,
                        (true, true) => WorkerState::Idle,
                        (true, false) => WorkerState::Busy,
                    };
                    if self.heartbeat(state).await {
                        tracing::info!("the coordinator asks this worker to stop");
                        return Ok(());
                    }
                }
            }
        }
    }

    async fn register(&mut self, backoff: &mut Backoff) -> Result<(), Error> {
        loop {
            match self.client.register().await {
                Ok(()) => {
                    tracing::info!("registered with the coordinator");
                    return Ok(());
                }
                Err(status) => match status.code() {
                    Code::InvalidArgument | Code::PermissionDenied | Code::Unauthenticated => {
                        return Err(Error::Refused(describe(&status)));
                    }
                    _ => pause(backoff, &status).await,
                },
            }
        }
    }

    async fn heartbeat(&mut self, state: WorkerState) -> bool {
        let stats = WorkerStats {
            active_tasks: i32::try_from(self.running.len()).unwrap_or(i32::MAX),
            total_completed: self.completed,
            total_failed: self.failed,
        };
        self.client.heartbeat(state, stats).await.unwrap_or_else(|status| {
            tracing::warn!(why = describe(&status), "a heartbeat failed");
            false
        })
    }

    /// The wall clocks of both machines may differ, so the result is only a hint that is kept within bounds.
    fn interval_for(&mut self, task: &LeasedTask) -> Duration {
        let expires = task.lease_expires_at.and_then(|at| SystemTime::try_from(at).ok());
        let length = expires.and_then(|at| at.duration_since(SystemTime::now()).ok());
        let needed = length.map_or(self.heartbeat_interval, |length| length / HEARTBEATS_PER_LEASE);
        self.heartbeat_interval = self.heartbeat_interval.min(needed.max(MIN_HEARTBEAT_INTERVAL));
        self.heartbeat_interval
    }

    fn begin(&mut self, task: LeasedTask) {
        tracing::info!(task = task.task_id, "the attempt has begun");
        let permit = Permit::new(None);
        let (client, performer) = (self.client.clone(), self.performer.clone());
        let task_id = task.task_id.clone();
        let attempt = run(client, performer, self.instance.clone(), task, permit.clone());
        let handle = self.running.spawn(attempt);
        self.attempts.insert(handle.id(), (task_id, permit));
    }

    /// Reports a failure of an attempt that does not run. Without a report the worker's heartbeats would hold its lease.
    fn fail(&mut self, task_id: String, message: &'static str) {
        tracing::error!(task = task_id, why = message, "an attempt failed");
        let (client, permit) = (self.client.clone(), Permit::new(None));
        let report = UpdateTaskStatusRequest {
            task_id: task_id.clone(),
            status: TaskStatus::Failed.into(),
            error_message: message.to_owned(),
            ..UpdateTaskStatusRequest::default()
        };
        let stopped = permit.clone();
        let handle = self.running.spawn(async move {
            if repeated(&client, report, &stopped).await.is_ok() { Ended::Failed } else { Ended::Lost }
        });
        self.attempts.insert(handle.id(), (task_id, permit));
    }

    fn on_end(&mut self, ended: Result<(Id, Ended), tokio::task::JoinError>) {
        let (id, ended) = match ended {
            Ok((id, ended)) => (id, Some(ended)),
            Err(error) => (error.id(), None),
        };
        let attempt = self.attempts.remove(&id);
        let Some(ended) = ended else {
            return attempt.into_iter().for_each(|(task, _)| self.fail(task, "the attempt ended in a panic"));
        };
        match ended {
            Ended::Completed => self.completed += 1,
            Ended::Failed => {
                self.failed += 1;
                self.health.check_now();
            }
            Ended::Lost => {}
        }
    }

    /// Waits for the running attempts, and keeps their leases meanwhile.
    async fn drain(&mut self) {
        let mut next_heartbeat = Instant::now();
        while !self.running.is_empty() {
            tokio::select! {
                Some(ended) = self.running.join_next_with_id() => self.on_end(ended),
                () = sleep_until(next_heartbeat) => {
                    next_heartbeat = Instant::now() + self.heartbeat_interval;
                    self.heartbeat(WorkerState::Draining).await;
                }
            }
        }
    }

    /// Stops what still runs and unregisters, which releases its leases.
    async fn leave(&mut self) {
        self.attempts.values().for_each(|(_, permit)| permit.lose());
        let finished = async { while self.running.join_next().await.is_some() {} };
        if timeout(STOP_GRACE, finished).await.is_err() {
            tracing::error!("some attempts did not stop in time and are dropped");
            self.running.shutdown().await;
        }
        self.performer.settle().await;
        match timeout(FINAL_REPORT_TIMEOUT, self.client.unregister()).await {
            Ok(Ok(())) => {}
            Ok(Err(status)) => tracing::warn!(why = describe(&status), "the worker could not unregister"),
            Err(_) => tracing::warn!("the worker could not unregister in time"),
        }
    }
}

async fn pause(backoff: &mut Backoff, status: &Status) {
    let delay = backoff.next_delay(None).unwrap_or_default();
    let retry_in_ms = delay.as_millis() as u64;
    tracing::warn!(why = describe(status), retry_in_ms, "the coordinator did not answer");
    sleep(delay).await;
}

async fn next(poll: &mut Option<Poll>) -> Result<Vec<LeasedTask>, Status> {
    match poll {
        Some(poll) => poll.await,
        None => std::future::pending().await,
    }
}

/// Runs one attempt and reports its end.
async fn run(
    client: SchedulerClient,
    performer: Arc<dyn Performer>,
    instance: String,
    task: LeasedTask,
    permit: Permit,
) -> Ended {
    let task_id = task.task_id.clone();
    let begun = UpdateTaskStatusRequest {
        task_id: task_id.clone(),
        status: TaskStatus::Executing.into(),
        ..UpdateTaskStatusRequest::default()
    };
    if let Err(status) = client.update(begun).await
        && !is_transient(&status)
    {
        tracing::warn!(task = task_id, why = describe(&status), "the lease was over on arrival");
        return Ended::Lost;
    }
    let outcome = match with_payload(task, instance) {
        Ok(task) => performer.perform(task, permit.clone()).await,
        Err(failure) => failure.into(),
    };
    if permit.cancelled().is_cancelled() {
        return Ended::Lost;
    }
    match repeated(&client, report(task_id.clone(), outcome), &permit).await {
        Ok(TaskStatus::Completed) => {
            tracing::info!(task = task_id, "committed");
            Ended::Completed
        }
        Ok(_) => Ended::Failed,
        Err(why) => {
            tracing::warn!(task = task_id, why, "the lease was lost, and the result is discarded");
            Ended::Lost
        }
    }
}

/// The task with the payload of an execution, which the calls do not carry.
fn with_payload(task: LeasedTask, instance: String) -> Result<LeasedTask, Failure> {
    if task.action_digest.is_empty() {
        return Err(Failure::invalid_payload(
            "the task names no action, and this protocol has nothing else".to_owned(),
        ));
    }
    let json = serde_json::json!({
        "operationName": task.operation_name, "actionDigest": task.action_digest, "instanceName": instance,
    });
    let payload = ExecutionPayload::decode(json.to_string().as_bytes()).and_then(|payload| payload.encode());
    let payload = payload.map_err(|error| Failure::invalid_payload(error.to_string()))?;
    Ok(LeasedTask { payload: Bytes::from(payload), ..task })
}

fn report(task_id: String, outcome: Outcome) -> UpdateTaskStatusRequest {
    let (status, result, error_message) = match outcome {
        Outcome::Action(result) => (TaskStatus::Completed, Some(*result), String::new()),
        Outcome::Json(_) => (TaskStatus::Completed, None, String::new()),
        Outcome::Failed(failure) => {
            tracing::error!(task = task_id, code = failure.code, why = failure.message, "an attempt failed");
            (TaskStatus::Failed, None, failure.message)
        }
    };
    UpdateTaskStatusRequest {
        task_id,
        status: status.into(),
        result,
        error_message,
        ..UpdateTaskStatusRequest::default()
    }
}

/// Repeats a report until it is accepted or the worker stops, and returns the status that was accepted. An end that was not
/// reported would leave the task leased for as long as the worker sends heartbeats, so a completion that is refused becomes
/// a failure.
async fn repeated(
    client: &SchedulerClient,
    report: UpdateTaskStatusRequest,
    permit: &Permit,
) -> Result<TaskStatus, String> {
    let mut backoff = Backoff::unlimited();
    let (mut uploads_again, mut internal_errors) = (0, 0);
    let mut report = report;
    loop {
        let status = match client.update(report.clone()).await {
            Ok(()) => return Ok(report.status()),
            Err(status) => status,
        };
        if is_outputs_missing(&status) {
            tracing::warn!(
                why = describe(&status),
                "outputs are missing in the content store and are uploaded again"
            );
            uploads_again += 1;
            let uploaded = if uploads_again > MAX_UPLOADS_AGAIN {
                Err(outputs_stay_missing())
            } else {
                unless(permit.cancelled(), permit.upload_again()).await
            };
            if let Err(failure) = uploaded {
                report = self::report(report.task_id, failure.into());
            }
            continue;
        }
        internal_errors += u32::from(status.code() == Code::Internal);
        if is_refusal(&status, internal_errors) && report.status() == TaskStatus::Completed {
            report = self::report(report.task_id, Failure::result_rejected(&describe(&status)).into());
            (backoff, internal_errors) = (Backoff::unlimited(), 0);
            continue;
        }
        let is_worth_a_repeat =
            is_transient(&status) || status.code() == Code::Internal && !is_refusal(&status, internal_errors);
        let Some(delay) = backoff.next_delay(None).filter(|_| is_worth_a_repeat) else {
            return Err(describe(&status));
        };
        tokio::select! {
            () = permit.cancelled().cancelled() => return Err("the worker stops".to_owned()),
            () = sleep(delay) => {}
        }
    }
}

/// Whether the server does not find the outputs of a completion.
fn is_outputs_missing(status: &Status) -> bool {
    let details = status.get_error_details();
    details.error_info().is_some_and(|info| info.reason == OUTPUTS_MISSING)
}

/// Whether the server does not take the report, however often it is sent.
fn is_refusal(status: &Status, internal_errors: u32) -> bool {
    match status.code() {
        Code::InvalidArgument => true,
        Code::Internal => internal_errors > MAX_INTERNAL_ERRORS,
        _ => false,
    }
}

/// Whether the answer decided nothing.
fn is_transient(status: &Status) -> bool {
    matches!(
        status.code(),
        Code::Unavailable | Code::DeadlineExceeded | Code::ResourceExhausted | Code::Unknown
    )
}

fn describe(status: &Status) -> String {
    format!("{:?}: {}", status.code(), status.message())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn internal_errors_refuse_a_report_once_there_were_too_many() {
        let internal = Status::internal("");
        assert!(!is_refusal(&internal, 1) && !is_refusal(&internal, MAX_INTERNAL_ERRORS));
        assert!(is_refusal(&internal, MAX_INTERNAL_ERRORS + 1));
        assert!(is_refusal(&Status::invalid_argument(""), 0));
        assert!(!is_refusal(&Status::unavailable(""), MAX_INTERNAL_ERRORS + 1));
    }
}
