//! Runs tasks by the kind that their payload has: actions and commands, whatever the name of their queue.

use std::sync::Arc;

use serde::Deserialize;
use serde::de::IgnoredAny;
use wire::grpc::LeasedTask;

use crate::command::Commands;
use crate::inputs::blocking;
use crate::{Actions, Cas, Config, Error, Executor, Failure, Outcome, Performer, Permit};

pub struct Work {
    actions: Actions,
    commands: Commands,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Kind {
    action_digest: Option<IgnoredAny>,
    command: Option<IgnoredAny>,
}

impl Work {
    pub async fn open(
        config: &Config,
        executor: Arc<dyn Executor>,
        cas: Arc<dyn Cas>,
    ) -> Result<Work, Error> {
        let actions = Actions::open(&config.worker_id, &config.actions, executor, cas).await?;
        let instance = config.workspace.clone().unwrap_or_default();
        Ok(Work { commands: Commands { context: actions.context.clone(), instance }, actions })
    }
}

#[tonic::async_trait]
impl Performer for Work {
    async fn perform(&self, task: LeasedTask, permit: Permit) -> Outcome {
        let invalid = |why: &str| {
            Failure::invalid_payload(format!("the payload is neither an action nor a command: {why}")).into()
        };
        match serde_json::from_slice(&task.payload) {
            Ok(Kind { action_digest: Some(_), command: None }) => self.actions.perform(task, permit).await,
            Ok(Kind { action_digest: None, command: Some(_) }) => {
                let ended = self.commands.run(&task, &permit).await;
                ended.map_or_else(Outcome::Failed, Outcome::Json)
            }
            Ok(Kind { action_digest: None, command: None }) => {
                invalid("it has no `actionDigest` and no `command`")
            }
            Ok(_) => invalid("it has both `actionDigest` and `command`"),
            Err(_) => invalid("it is not an object such as {\"command\": [\"ls\", \"-l\"]}"),
        }
    }

    /// If the disk is full, evicts cached contents first.
    async fn fitness(&self) -> Result<(), String> {
        let (disk, inputs) = (self.actions.context.disk.clone(), self.actions.inputs.clone());
        let check = move || match disk.check() {
            Ok(()) => Ok(()),
            Err(_) => {
                inputs.evict(disk.lacking_bytes());
                disk.check()
            }
        };
        blocking(check).await.map_err(|failure| failure.message)
    }

    async fn settle(&self) {
        self.actions.settle().await;
    }
}
