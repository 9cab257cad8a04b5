//! Dedup keys for submits that name none. If the answer to a submit is lost, the submit is sent again; without a key
//! the task would then be there twice.

use wire::SubmitTask;

/// Gives the task a key of its own, unless it has one.
pub fn ensure(task: &mut SubmitTask) -> anyhow::Result<()> {
    if task.dedup_key.is_none() {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes).map_err(|error| anyhow::anyhow!("no randomness to be had: {error}"))?;
        task.dedup_key = Some(format!("cli-{:032x}", u128::from_be_bytes(bytes)));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::Json;

    #[test]
    fn a_key_is_made_only_where_there_is_none() {
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
