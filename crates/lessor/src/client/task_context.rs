//! The fields that describe a task to its worker: as options of `lessor submit`, and shown with a task.

use wire::{Json, Task, TaskContext};

use super::show::Record;

#[derive(clap::Args)]
pub(super) struct ContextOptions {
    /// The run that the task is part of, passed to the worker
    #[arg(long, value_name = "ID")]
    run_id: Option<String>,

    /// The asset that the task produces, passed to the worker
    #[arg(long, value_name = "ID")]
    asset_id: Option<String>,

    /// The task's name within its run, passed to the worker
    #[arg(long, value_name = "KEY")]
    task_key: Option<String>,

    /// A JSON object that is passed to the worker
    #[arg(long, value_name = "JSON", value_parser = parse_json)]
    resources: Option<Json>,
}

impl ContextOptions {
    pub(super) fn to_wire(&self) -> TaskContext {
        TaskContext {
            run_id: self.run_id.clone(),
            asset_id: self.asset_id.clone(),
            task_key: self.task_key.clone(),
            resources: self.resources.clone(),
        }
    }
}

/// Shows the fields that are texts.
pub(super) fn show(record: &mut Record, task: &Task) {
    record.optional("run", task.run_id.as_ref());
    record.optional("asset", task.asset_id.as_ref());
    record.optional("task key", task.task_key.as_ref());
}

fn parse_json(text: &str) -> Result<Json, String> {
    Json::from_text(text).map_err(|error| format!("it is not JSON: {error}"))
}
