//! The common form of handlers, for workers and push targets.

use std::pin::Pin;
use std::sync::Arc;

use serde::Serialize;
use wire::{Json, strict_json};

use crate::{Failure, Outcome, Task};

const MAX_RESULT_BYTES: usize = 1024 * 1024;
/// The report around the result is one of the levels that the coordinator accepts.
const MAX_RESULT_LEVELS: usize = strict_json::MAX_JSON_DEPTH - 1;

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
    let not_json = |why: String| {
        Failure::configuration(format!("the result is not JSON: {why}")).code("result_not_json")
    };
    let json = Json::from_value(result).map_err(|error| not_json(error.to_string()))?;
    let size_bytes = json.as_text().len();
    if size_bytes > MAX_RESULT_BYTES {
        let reason =
            format!("the result has {size_bytes} bytes as JSON, and at most {MAX_RESULT_BYTES} are accepted");
        return Err(Failure::configuration(reason).code("result_too_large"));
    }
    let text = json.as_text().as_bytes();
    strict_json::check(text, MAX_RESULT_LEVELS).map_err(|fault| not_json(fault.what))?;
    Ok(json)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_taken(text: impl Into<String>) -> bool {
        result_json(&Json::from_text(text).unwrap()).is_ok()
    }

    #[test]
    fn nesting_is_bounded() {
        let lists = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        let objects = |levels: usize| format!("{}1{}", "{\"a\":".repeat(levels), "}".repeat(levels));
        assert!(is_taken(lists(MAX_RESULT_LEVELS)) && is_taken(objects(MAX_RESULT_LEVELS)));
        assert!(!is_taken(lists(MAX_RESULT_LEVELS + 1)) && !is_taken(objects(MAX_RESULT_LEVELS + 1)));
    }

    #[test]
    fn what_keeps_to_the_grammar_and_no_more_is_found() {
        for refused in
            [r#""\ud800""#, r#"{"\udfff":1}"#, "1e999", r#"{"a":1,"\u0061":2}"#, r#"[{"a":1,"a":1}]"#]
        {
            assert!(!is_taken(refused), "{refused}");
        }
        for taken in
            ["null", "true", "-1", "1.5", "18446744073709551616", r#""\ud83d\ude00""#, r#"[{"a":{"a":"["}}]"#]
        {
            assert!(is_taken(taken), "{taken}");
        }
    }
}
