//! Runs the tools of an operator: `lessor log verify` finds the ledger sound, and `lessor log explain` names every
//! attempt of a task.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use auditor::history::Recorded;
use authority::{Event, TaskId};

/// Tasks that are explained: those with the most attempts.
const SAMPLE: usize = 3;

pub(crate) fn check(binary: &Path, data: &Path, records: &[Recorded]) -> Result<()> {
    log(binary, data, &["verify"])?;
    let mut attempts: BTreeMap<TaskId, u32> = BTreeMap::new();
    for record in records {
        if let Event::LeaseGranted(granted) = &record.event {
            attempts.insert(granted.task, granted.attempt);
        }
    }
    let mut sample: Vec<_> = attempts.into_iter().collect();
    sample.sort_by_key(|(_, attempts)| std::cmp::Reverse(*attempts));
    for (task, attempts) in sample.into_iter().take(SAMPLE) {
        let explanation = log(binary, data, &["explain", &task.to_string()])?;
        let missing =
            (1..=attempts).find(|attempt| !explanation.contains(&format!("attempt {attempt} was given to")));
        ensure!(
            missing.is_none(),
            "attempt {missing:?} is missing in the explanation of task {task}:\n{explanation}"
        );
    }
    Ok(())
}

/// Runs `lessor log` and gives what it prints; it must end well.
fn log(binary: &Path, data: &Path, what: &[&str]) -> Result<String> {
    let mut command = Command::new(binary);
    let output = command.arg("log").args(what).arg("--data").arg(data).output();
    let output = output.with_context(|| format!("cannot run {}", binary.display()))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (printed, complaint) = (text(&output.stdout), text(&output.stderr));
    ensure!(
        output.status.success(),
        "`lessor log {}` ended with {}:\n{printed}{complaint}",
        what[0],
        output.status
    );
    Ok(printed)
}
