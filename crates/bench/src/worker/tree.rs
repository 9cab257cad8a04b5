//! Measures an input tree of many small files: with an empty cache, with a full cache, and with one changed file.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::Result;
use blobs::Digest;
use worker::executors::Backend;
use worker::{Actions, Cas};

use super::{Downloads, Line, Options, PROGRAM, Percentiles, Report, action, once, open};

/// Workers that start with an empty cache; each runs all kinds of actions.
const WORKERS: usize = 3;
/// Actions of each further kind for each worker.
const ROUNDS: usize = 5;
const DIRECTORIES: usize = 100;

pub(super) async fn run(
    options: &Options,
    dir: &Path,
    cas: &Arc<dyn Cas>,
    downloads: &Downloads,
    report: &Report,
) -> Result<()> {
    let same = action::store(&**cas, &[PROGRAM], &files(options, None)).await?;
    let mut changed = Vec::new();
    for round in 0..ROUNDS {
        changed.push(action::store(&**cas, &[PROGRAM], &files(options, Some(round))).await?);
    }
    let [mut cold, mut warm, mut one_changed] = [const { Vec::new() }; 3];
    for number in 0..WORKERS {
        let actions = open(Backend::Host, options, &dir.join(number.to_string()), cas.clone()).await?;
        cold.push(counted(&actions, downloads, same).await?);
        for _ in 0..ROUNDS {
            warm.push(counted(&actions, downloads, same).await?);
        }
        for action in &changed {
            one_changed.push(counted(&actions, downloads, *action).await?);
        }
    }
    for (tree, runs) in [("cold", cold), ("warm", warm), ("one-changed", one_changed)] {
        report.line(line(tree, options, runs));
    }
    Ok(())
}

/// About a hundred bytes each, and every one different.
fn files(options: &Options, changed: Option<usize>) -> Vec<(String, String)> {
    let file = |n: usize| {
        let path = format!("directory-{}/file-{n}", n % DIRECTORIES);
        let content = if changed == Some(n) { format!("{path} changed") } else { path.clone() };
        (path, format!("{content:0>100}"))
    };
    (0..options.files).map(file).collect()
}

/// The time of an action, and its downloaded bytes and calls.
async fn counted(actions: &Actions, downloads: &Downloads, action: Digest) -> Result<(Duration, [u64; 2])> {
    let count = || [&downloads.bytes, &downloads.calls].map(|count| count.load(Ordering::Relaxed));
    let before = count();
    let time = once(actions, action).await?;
    let after = count();
    Ok((time, [after[0] - before[0], after[1] - before[1]]))
}

/// The median time, and the downloads of the last action.
fn line(tree: &str, options: &Options, runs: Vec<(Duration, [u64; 2])>) -> Line {
    let [bytes, calls] = runs.last().map(|(_, downloads)| *downloads).unwrap_or_default();
    let times = Percentiles::of(runs.into_iter().map(|(time, _)| time));
    Line::new("worker")
        .with("tree", tree)
        .with("files", options.files)
        .figure("action_ms", times.at_ms(50.0))
        .with("fetched_bytes", bytes)
        .with("calls", calls)
}
