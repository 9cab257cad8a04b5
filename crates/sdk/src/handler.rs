//! The common form of handlers, for workers and push targets.

use std::pin::Pin;
use std::sync::Arc;

use serde::Serialize;
use wire::Json;

use crate::{Failure, Outcome, Task, strict};

const MAX_RESULT_BYTES: usize = 1024 * 1024;

pub(crate) type Handler = Arc<dyn Fn(Task) -> Running + Send + Sync>;
pub(crate) type Running = Pin<Box<dyn Future<Output = Result<Json, Failure>> + Send>>;
pub(crate) type OnOutcome = Arc<dyn Fn(&Task, &Outcome) + Send + Sync>;

pub(crate) fn boxed<H, F, R>(handler: H) -> Handler
where
    H: Fn(Task) -> F + Send + Sync + 'static,
    F: Future<Output = Result<R, Failure>> + Send + 'static,
    R: Serialize + Send + 'static,
{
    let handler = Arc::new(handler);
    Arc::new(move |task: Task| -> Running {
        let handler = handler.clone();
        // The handler is called inside, so that a panic before its first await is caught as well.
        Box::pin(async move { result_json(&handler(task).await?) })
    })
}

/// Encodes a handler's result, or fails if the coordinator would not accept it.
fn result_json(result: &impl Serialize) -> Result<Json, Failure> {
    let not_json = |error: serde_json::Error| {
        Failure::configuration(format!("the result is not JSON: {error}")).code("result_not_json")
    };
    let json = Json::from_value(result).map_err(not_json)?;
    let size_bytes = json.as_text().len();
    if size_bytes > MAX_RESULT_BYTES {
        let reason =
            format!("the result has {size_bytes} bytes as JSON, and at most {MAX_RESULT_BYTES} are accepted");
        return Err(Failure::configuration(reason).code("result_too_large"));
    }
    strict::check(&json).map_err(not_json)?;
    Ok(json)
}
