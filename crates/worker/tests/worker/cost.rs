//! The overhead of the worker for a command that does nothing. Run with `--nocapture` for the figures.

use std::process::Command;
use std::time::{Duration, Instant};

use super::actions::support::{Stage, Tree, command};

const ROUNDS: usize = 60;

/// The bound is for machines that do ten things at a time, and so is taking the best of many; on a quiet one all
/// of them are far below it.
#[tokio::test]
async fn a_no_op_action_costs_little_beside_its_process() {
    const MAX_OVERHEAD: Duration = Duration::from_millis(100);
    let stage = Stage::new().await;
    let inputs = Tree::default().file(&stage.cas, "a", "a").file(&stage.cas, "b/c", "c");
    let action = stage.action(command(&["/bin/true"]), &inputs, None);
    let (mut bare, mut whole) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let begun = Instant::now();
        Command::new("/bin/true").status().unwrap();
        bare.push(begun.elapsed());
        let begun = Instant::now();
        stage.run_action(action).await.unwrap();
        whole.push(begun.elapsed());
    }
    let (bare, whole) = (bare.iter().min().unwrap(), whole.iter().min().unwrap());
    println!("a bare process: {bare:?}, as an action: {whole:?}");
    assert!(*whole < *bare + MAX_OVERHEAD, "{bare:?} {whole:?}");
}

#[tokio::test]
async fn a_tree_is_laid_out_faster_when_its_contents_are_here() {
    const FILES: usize = 2_000;
    let stage = Stage::new().await;
    let mut inputs = Tree::default();
    for n in 0..FILES {
        inputs = inputs.file(&stage.cas, &format!("d{}/f{n}", n % 20), &format!("content {n}"));
    }
    let action = stage.action(command(&["/bin/true"]), &inputs, None);
    let begun = Instant::now();
    stage.run_action(action).await.unwrap();
    let cold = begun.elapsed();
    let begun = Instant::now();
    stage.run_action(action).await.unwrap();
    println!("{FILES} files: cold {cold:?}, warm {:?}", begun.elapsed());
    stage.cas.take_calls();
    stage.run_action(action).await.unwrap();
    assert_eq!(stage.cas.take_calls().len(), 1, "nothing but the action is fetched");
}
