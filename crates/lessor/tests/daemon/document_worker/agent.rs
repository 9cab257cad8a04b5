//! The plan's worker agent: register, heartbeat loop, lease loop, graceful shutdown.

use std::collections::HashMap;
use std::process::Output;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bazel_remote_apis::build::bazel::remote::execution::v2::{ActionResult, Command};
use tempfile::TempDir;
use tokio::sync::Semaphore;
use tonic::Status;
use tonic::transport::Channel;

use super::content::Content;
use super::worker_api::worker_scheduler_client::WorkerSchedulerClient;
use super::worker_api::{
    HeartbeatRequest, LeaseTaskRequest, LeasedTask, RegisterWorkerRequest, ResourceLimits, TaskStatus,
    UnregisterWorkerRequest, UpdateTaskStatusRequest, WorkerCapabilities, WorkerState, WorkerStats,
};

const SLOTS: usize = 2;
/// The plan says 30 s; tests do not wait for so long.
const HEARTBEAT_INTERVAL: Duration = Duration::from_millis(100);
const POLL_TIMEOUT_S: i64 = 1;

pub(super) struct Agent {
    worker_id: String,
    scheduler: WorkerSchedulerClient<Channel>,
    content: Content,
    work_dir: TempDir,
    free_slots: Arc<Semaphore>,
    /// How many attempts still fail for a fault of this machine.
    faults: AtomicUsize,
    is_stopping: AtomicBool,
    answered_polls: AtomicUsize,
    active: AtomicI32,
    completed: AtomicI64,
    failed: AtomicI64,
    leased: Mutex<Vec<String>>,
    refusals: Mutex<Vec<String>>,
}

impl Agent {
    pub(super) async fn connect(url: &str, worker_id: &str, faults: usize) -> Agent {
        Agent {
            worker_id: worker_id.to_owned(),
            scheduler: WorkerSchedulerClient::connect(url.to_owned()).await.unwrap(),
            content: Content::connect(url),
            work_dir: tempfile::tempdir().unwrap(),
            free_slots: Arc::new(Semaphore::new(SLOTS)),
            faults: AtomicUsize::new(faults),
            is_stopping: AtomicBool::new(false),
            answered_polls: AtomicUsize::new(0),
            active: AtomicI32::new(0),
            completed: AtomicI64::new(0),
            failed: AtomicI64::new(0),
            leased: Mutex::default(),
            refusals: Mutex::default(),
        }
    }

    pub(super) async fn run(self: Arc<Self>) {
        self.register().await;
        let heartbeats = tokio::spawn(self.clone().heartbeat_loop());
        self.clone().lease_loop().await;
        // Graceful shutdown: what runs is finished, then the worker leaves.
        let _all = self.free_slots.acquire_many(SLOTS as u32).await.unwrap();
        heartbeats.abort();
        let leave = UnregisterWorkerRequest { worker_id: self.worker_id.clone() };
        self.note(self.scheduler.clone().unregister_worker(leave).await);
    }

    pub(super) fn stop(&self) {
        self.is_stopping.store(true, Ordering::SeqCst);
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::SeqCst)
    }

    pub(super) fn answered_polls(&self) -> usize {
        self.answered_polls.load(Ordering::SeqCst)
    }

    pub(super) fn leased(&self) -> Vec<String> {
        self.leased.lock().unwrap().clone()
    }

    pub(super) fn refusals(&self) -> Vec<String> {
        self.refusals.lock().unwrap().clone()
    }

    async fn register(&self) {
        let resources = ResourceLimits { cpu_cores: 2.0, memory_bytes: 1 << 30, disk_bytes: 1 << 30 };
        let capabilities =
            WorkerCapabilities { max_concurrent_executions: SLOTS as i32, resources: Some(resources) };
        let request = RegisterWorkerRequest {
            worker_id: self.worker_id.clone(),
            capabilities: Some(capabilities),
            platform_properties: HashMap::from([("OSFamily".to_owned(), "Linux".to_owned())]),
        };
        self.note(self.scheduler.clone().register_worker(request).await);
    }

    async fn heartbeat_loop(self: Arc<Self>) {
        let mut ticker = tokio::time::interval(HEARTBEAT_INTERVAL);
        loop {
            ticker.tick().await;
            let active = self.active.load(Ordering::SeqCst);
            let state = match active {
                _ if self.is_stopping() => WorkerState::Draining,
                0 => WorkerState::Idle,
                _ => WorkerState::Busy,
            };
            let stats = WorkerStats {
                active_tasks: active,
                total_completed: self.completed.load(Ordering::SeqCst),
                total_failed: self.failed.load(Ordering::SeqCst),
            };
            let worker_id = self.worker_id.clone();
            let beat = HeartbeatRequest { worker_id, state: state.into(), stats: Some(stats) };
            let answer = self.note(self.scheduler.clone().report_heartbeat(beat).await);
            if answer.is_some_and(|answer| answer.should_shutdown) {
                self.stop();
            }
        }
    }

    async fn lease_loop(self: Arc<Self>) {
        while !self.is_stopping() {
            let slot = self.free_slots.clone().acquire_owned().await.unwrap();
            let worker_id = self.worker_id.clone();
            let ask = LeaseTaskRequest { worker_id, max_tasks: 1, timeout_seconds: POLL_TIMEOUT_S };
            match self.note(self.scheduler.clone().lease_task(ask).await) {
                Some(mut answer) => {
                    if let Some(task) = answer.tasks.pop() {
                        self.leased.lock().unwrap().push(task.task_id.clone());
                        let agent = self.clone();
                        tokio::spawn(async move {
                            agent.execute_task(task).await;
                            drop(slot);
                        });
                    }
                }
                // The server tells a worker that it has forgotten to register again.
                None => self.register().await,
            }
            self.answered_polls.fetch_add(1, Ordering::SeqCst);
        }
    }

    async fn execute_task(&self, task: LeasedTask) {
        let update = |status: TaskStatus| UpdateTaskStatusRequest {
            task_id: task.task_id.clone(),
            worker_id: self.worker_id.clone(),
            status: status.into(),
            result: None,
            error_message: String::new(),
        };
        self.active.fetch_add(1, Ordering::SeqCst);
        self.update(update(TaskStatus::Executing)).await;
        let (count, report) = match self.execute(&task).await {
            Ok(result) => {
                let completed = update(TaskStatus::Completed);
                (&self.completed, UpdateTaskStatusRequest { result: Some(result), ..completed })
            }
            Err(error_message) => {
                let failed = update(TaskStatus::Failed);
                (&self.failed, UpdateTaskStatusRequest { error_message, ..failed })
            }
        };
        self.update(report).await;
        count.fetch_add(1, Ordering::SeqCst);
        self.active.fetch_sub(1, Ordering::SeqCst);
    }

    async fn execute(&self, task: &LeasedTask) -> Result<ActionResult, String> {
        let fault = self.faults.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        if fault.is_ok() {
            return Err("the machine is on fire".to_owned());
        }
        let work_dir = tempfile::tempdir_in(self.work_dir.path()).map_err(|error| error.to_string())?;
        let command = self.content.inputs(&task.action_digest, work_dir.path()).await?;
        let output = run(&command, work_dir.path()).await.map_err(|error| error.to_string())?;
        self.content.outputs(&command, output, work_dir.path()).await
    }

    async fn update(&self, update: UpdateTaskStatusRequest) {
        self.note(self.scheduler.clone().update_task_status(update).await);
    }

    /// The answer, unless the call was refused, which is noted.
    fn note<T>(&self, answer: Result<tonic::Response<T>, Status>) -> Option<T> {
        match answer {
            Ok(answer) => Some(answer.into_inner()),
            Err(status) => {
                self.refusals.lock().unwrap().push(format!("{:?}: {}", status.code(), status.message()));
                None
            }
        }
    }
}

/// Runs a command in its directory. It is killed if nobody waits for it any more.
async fn run(command: &Command, root: &std::path::Path) -> std::io::Result<Output> {
    let mut process = tokio::process::Command::new(&command.arguments[0]);
    process.args(&command.arguments[1..]).current_dir(root.join(&command.working_directory));
    let variables = &command.environment_variables;
    process.envs(variables.iter().map(|variable| (&variable.name, &variable.value)));
    process.stdin(std::process::Stdio::null()).kill_on_drop(true).output().await
}
