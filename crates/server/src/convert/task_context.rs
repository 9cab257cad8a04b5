//! Conversions of the fields that describe a task to its worker, between the authority's options, JSON and protobuf.

use std::mem::take;
use std::sync::Arc;

use authority::TaskOptions;
use authority::limits::MAX_RESOURCES_BYTES;
use bytes::Bytes;
use wire::{Json, TaskContext, grpc};

use super::names::optional_name;
use super::problem::Problem;
use super::task_json::{parse_json, to_json, to_text};

/// Options with these fields alone, checked.
pub(crate) fn parse(context: &TaskContext) -> Result<TaskOptions, Problem> {
    Ok(TaskOptions {
        run_id: optional_name("runId", context.run_id.as_deref())?,
        asset_id: optional_name("assetId", context.asset_id.as_deref())?,
        task_key: optional_name("taskKey", context.task_key.as_deref())?,
        resources: context.resources.as_ref().map(resources).transpose()?,
        ..TaskOptions::default()
    })
}

pub(crate) fn to_wire(options: Option<&TaskOptions>) -> TaskContext {
    options.map_or_else(TaskContext::default, |options| TaskContext {
        run_id: to_text(&options.run_id),
        asset_id: to_text(&options.asset_id),
        task_key: to_text(&options.task_key),
        resources: options.resources.as_deref().map(to_json),
    })
}

pub(crate) fn from_proto(task: &mut grpc::SubmitTask) -> Result<TaskContext, Problem> {
    let given = |text: &mut String| Some(take(text)).filter(|text| !text.is_empty());
    Ok(TaskContext {
        run_id: given(&mut task.run_id),
        asset_id: given(&mut task.asset_id),
        task_key: given(&mut task.task_key),
        resources: parse_json("resources_json", &task.resources_json)?,
    })
}

/// A leased task with these fields alone.
pub(crate) fn to_proto(options: Option<&TaskOptions>) -> grpc::LeasedTask {
    options.map_or_else(grpc::LeasedTask::default, |options| grpc::LeasedTask {
        run_id: to_text(&options.run_id).unwrap_or_default(),
        asset_id: to_text(&options.asset_id).unwrap_or_default(),
        task_key: to_text(&options.task_key).unwrap_or_default(),
        resources_json: options.resources.as_deref().map(Bytes::copy_from_slice).unwrap_or_default(),
        ..grpc::LeasedTask::default()
    })
}

fn resources(json: &Json) -> Result<Arc<[u8]>, Problem> {
    let text = json.as_text();
    if !text.starts_with('{') {
        return Err(Problem::field("resources", "must be a JSON object"));
    }
    if text.len() > MAX_RESOURCES_BYTES {
        let what = format!("must have at most {MAX_RESOURCES_BYTES} bytes, but has {}", text.len());
        return Err(Problem::field("resources", what));
    }
    Ok(Arc::from(text.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resources_are_an_object() {
        assert!(resources(&wire::Json::from_text("{\"cpu\":2}").unwrap()).is_ok());
        assert!(resources(&wire::Json::from_text("[]").unwrap()).is_err());
    }
}
