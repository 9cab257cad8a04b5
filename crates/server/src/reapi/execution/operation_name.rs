//! Operation names. A name contains the task's id, so it is stable over restarts, and a random part, so it cannot be
//! guessed: a name is valid only while the ledger says that it waits for the task (R33).

use std::fmt::Display;
use std::sync::Arc;

use authority::TaskId;
use tonic::Status;

use crate::convert::ids;

const COLLECTION: &str = "operations/";

/// A new name of an operation that waits for the task.
pub(crate) fn make(instance: &str, task: TaskId) -> Result<Arc<str>, Status> {
    Ok(named(instance, task)?.into())
}

/// The name of an operation that is over at once, because its result was cached, and has no task.
pub(crate) fn of_cached(instance: &str) -> Result<String, Status> {
    named(instance, "cached")
}

pub(crate) fn parse(name: &str) -> Option<(&str, TaskId)> {
    let at = name.rfind(COLLECTION)?;
    let (instance, rest) = name.split_at(at);
    let instance = match instance.strip_suffix('/') {
        Some(instance) if !instance.is_empty() => instance,
        None if instance.is_empty() => instance,
        _ => return None,
    };
    let (task, secret) = rest[COLLECTION.len()..].rsplit_once('-')?;
    if secret.is_empty() { None } else { ids::parse_task_id(task).map(|task| (instance, task)) }
}

/// A name that ends with a random part.
fn named(instance: &str, subject: impl Display) -> Result<String, Status> {
    let prefix = if instance.is_empty() { String::new() } else { format!("{instance}/") };
    match (getrandom::u64(), getrandom::u64()) {
        (Ok(a), Ok(b)) => Ok(format!("{prefix}{COLLECTION}{subject}-{a:016x}{b:016x}")),
        _ => Err(Status::internal("the system gave no randomness")),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn r33_a_name_leads_back_to_its_instance_and_task() {
        let task = ids::new_task_id(authority::Time(1_700_000_000_000)).unwrap();
        for instance in ["", "main", "a/b", "operations"] {
            let name = make(instance, task).unwrap();
            assert_eq!(parse(&name), Some((instance, task)), "{name}");
        }
        assert_ne!(make("", task).unwrap(), make("", task).unwrap());
    }

    #[test]
    fn other_names_lead_nowhere() {
        let cached = of_cached("main").unwrap();
        for bad in ["", "operations/", "operations/x-y", "/operations/1", &cached] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn no_name_makes_it_panic(name in "(operations/|[a-f0-9-]{0,40}|/){0,6}") {
            let _ = parse(&name);
        }
    }
}
