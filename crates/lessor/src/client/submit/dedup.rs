//! Generates dedup keys. A submit whose answer is lost is sent again; without a key there would be two tasks.

use lessor_sdk::protocol::random_id;
use wire::SubmitTask;

pub(super) fn ensure(task: &mut SubmitTask) -> anyhow::Result<()> {
    if task.dedup_key.is_none() {
        task.dedup_key = Some(format!("cli-{}", random_id()?));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::Json;

    #[test]
    fn a_key_is_generated_only_for_a_task_without_one() {
        let mut task = SubmitTask::new("q", Json::null());
        ensure(&mut task).unwrap();
        let made = task.dedup_key.clone().unwrap();
        ensure(&mut task).unwrap();
        assert_eq!(task.dedup_key, Some(made.clone()));
        let mut other = SubmitTask::new("q", Json::null());
        ensure(&mut other).unwrap();
        assert_ne!(other.dedup_key, Some(made));
    }
}
