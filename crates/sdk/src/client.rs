//! The client: submits, reads, cancels and redrives tasks.

use std::time::Duration;

use wire::{
    BatchItem, CancelTask, ListTasks, MAX_BATCH_TASKS, MAX_WAIT_MS, SubmitBatch, SubmittedBatch, TaskHistory,
    TaskList, WaitTask,
};

use crate::transport::{ANSWER_TIMEOUT, Address, Answer, Request, Transport};
use crate::{Error, HistoryEvent, Submit, Submitted, TaskState, clock};

/// A task as people and services see it.
pub type TaskInfo = wire::Task;

/// How long a request is retried: enough for a coordinator to restart.
const RETRY_FOR: Duration = Duration::from_secs(30);

/// A clone shares its connections.
#[derive(Clone, Debug)]
pub struct Client {
    transport: Transport,
    retry_for: Duration,
}

impl Client {
    /// For the coordinator that LESSOR_URL names, or one on this machine, with the credentials of the environment.
    pub fn from_env() -> Result<Client, Error> {
        Client::with(&Address::default())
    }

    pub fn new(url: impl Into<String>) -> Result<Client, Error> {
        Client::with(&Address { url: Some(url.into()), ..Address::default() })
    }

    /// A client for a tenant and one of its workspaces.
    pub fn scoped(
        url: impl Into<String>,
        tenant: impl Into<String>,
        workspace: impl Into<String>,
    ) -> Result<Client, Error> {
        let (tenant, workspace) = (Some(tenant.into()), Some(workspace.into()));
        Client::with(&Address { url: Some(url.into()), tenant, workspace, ..Address::default() })
    }

    /// A client with credentials, for instance. Missing fields come from the environment.
    pub fn with(address: &Address) -> Result<Client, Error> {
        Ok(Client { transport: Transport::new(address)?, retry_for: RETRY_FOR })
    }

    /// How long a request without an answer is retried.
    pub fn retry_for(self, retry_for: Duration) -> Client {
        Client { retry_for, ..self }
    }

    /// Submits one task. If its dedup key finds an existing task, that task is the answer.
    pub async fn submit(&self, task: Submit) -> Result<Submitted, Error> {
        let request = self.transport.post(&["tasks"], &task.into_wire()?)?;
        self.call(request).await?.parse()
    }

    /// Submits many tasks, 1,000 with each request. Each task is accepted or refused on its own; the answers are in the
    /// order of the tasks.
    ///
    /// If the first request fails, the call fails. If a later one fails, the accepted tasks stay, and its error is the
    /// answer for its tasks and for all later ones, which are not sent.
    pub async fn submit_batch(
        &self,
        tasks: impl IntoIterator<Item = Submit>,
    ) -> Result<Vec<Result<Submitted, Error>>, Error> {
        let mut tasks = tasks.into_iter().map(Submit::into_wire).collect::<Result<Vec<_>, _>>()?;
        let count = tasks.len();
        // Encodes everything first, so that nothing is sent if something cannot be encoded.
        let mut requests = Vec::with_capacity(count.div_ceil(MAX_BATCH_TASKS));
        while !tasks.is_empty() {
            let rest = tasks.split_off(tasks.len().min(MAX_BATCH_TASKS));
            let batch = SubmitBatch { tasks: std::mem::replace(&mut tasks, rest) };
            requests.push(self.transport.post(&["tasks", "batch"], &batch)?);
        }
        let mut answers = Vec::with_capacity(count);
        for request in requests {
            match self.call(request).await.and_then(|answer| answer.parse::<SubmittedBatch>()) {
                Ok(batch) => answers.extend(batch.tasks.into_iter().map(|item| self.submitted(item))),
                Err(error) if answers.is_empty() => return Err(error),
                Err(error) => {
                    answers.resize_with(count, || Err(error.clone()));
                    break;
                }
            }
        }
        Ok(answers)
    }

    fn submitted(&self, item: BatchItem) -> Result<Submitted, Error> {
        match (item.task_id, item.state, item.error) {
            (_, _, Some(problem)) => Err(Error::Refused(Box::new(problem))),
            (Some(task_id), Some(state), None) => Ok(Submitted { task_id, state }),
            _ => Err(Error::Foreign {
                url: self.transport.url().to_owned(),
                status: 200,
                why: "an item of the batch has neither a task nor an error".to_owned(),
            }),
        }
    }

    pub async fn get(&self, task_id: &str) -> Result<TaskInfo, Error> {
        let request = self.transport.get(&["tasks", task_id], &WaitTask::default())?;
        self.call(request).await?.parse()
    }

    /// Waits for a task to become final. After `wait`, returns the task as it is.
    pub async fn wait(&self, task_id: &str, wait: Duration) -> Result<TaskInfo, Error> {
        let end = clock::now() + wait;
        loop {
            let part = clock::until(end).min(Duration::from_millis(MAX_WAIT_MS));
            let query = WaitTask { wait_ms: Some(part.as_millis() as u64) };
            let request = self.transport.get(&["tasks", task_id], &query)?;
            let until = clock::now() + self.retry_for + part;
            let task: TaskInfo =
                self.transport.call(&request, ANSWER_TIMEOUT + part, until).await?.parse()?;
            if task.state.is_final() || clock::now() >= end {
                return Ok(task);
            }
        }
    }

    /// Cancels a task. A waiting task is dead at once; a leased one when its worker has stopped.
    pub async fn cancel(&self, task_id: &str, reason: Option<&str>) -> Result<TaskInfo, Error> {
        let body = CancelTask { reason: reason.map(str::to_owned) };
        let request = self.transport.post(&["tasks", task_id, "cancel"], &body)?;
        self.call(request).await?.parse()
    }

    /// Redrives a FAILED or DEAD task as a new task.
    pub async fn redrive(&self, task_id: &str) -> Result<TaskInfo, Error> {
        let nothing = serde_json::Map::new();
        let request = self.transport.post(&["tasks", task_id, "redrive"], &nothing)?;
        self.call(request).await?.parse()
    }

    /// Lists all matching tasks: queues by name, in each queue the newest task first.
    pub async fn list(&self, queue: Option<&str>, state: Option<TaskState>) -> Result<Vec<TaskInfo>, Error> {
        let mut query = ListTasks { queue: queue.map(str::to_owned), state, ..ListTasks::default() };
        let mut tasks = Vec::new();
        loop {
            let page = self.list_page(&query).await?;
            tasks.extend(page.tasks);
            match page.next_page_token {
                Some(token) => query.page_token = Some(token),
                None => return Ok(tasks),
            }
        }
    }

    /// Lists one page, for lists that are too long for memory.
    pub async fn list_page(&self, query: &ListTasks) -> Result<TaskList, Error> {
        self.call(self.transport.get(&["tasks"], query)?).await?.parse()
    }

    /// The ledger's records of a task, oldest first.
    pub async fn history(&self, task_id: &str) -> Result<Vec<HistoryEvent>, Error> {
        let request = self.transport.get(&["tasks", task_id, "history"], &())?;
        Ok(self.call(request).await?.parse::<TaskHistory>()?.events)
    }

    async fn call(&self, request: Request) -> Result<Answer, Error> {
        self.transport.call(&request, ANSWER_TIMEOUT, clock::now() + self.retry_for).await
    }
}
