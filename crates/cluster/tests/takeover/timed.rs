//! Timed takeovers: by a standby that holds the state, and by a node that has read nothing.

use std::time::Instant;

use authority::Command;
use cluster::{Phase, TAKEOVER_AFTER};
use coordinator::BatchItem;
use ledger::postgres::Membership;
use test_servers::postgres::{execute, shared};

use crate::{Nodes, task};

/// How many tasks the shard has. A million of them: `LESSOR_TAKEOVER_TASKS=1000000`, with `--nocapture`.
fn tasks() -> u128 {
    std::env::var("LESSOR_TAKEOVER_TASKS").map_or(3_000, |tasks| tasks.parse().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shard_is_taken_over_by_a_hot_standby_and_by_a_cold_node() {
    let url = shared().create_database();
    let (nodes, tasks) = (Nodes::on(&url), tasks());
    let (a, b) = (nodes.start("a", TAKEOVER_AFTER), nodes.start("b", TAKEOVER_AFTER));
    a.handle.status().await.unwrap();
    let mut membership = Membership::new(nodes.database("test"));
    // An owner serves before it has announced itself.
    let owner = loop {
        if let Some(owner) = membership.observe().await.unwrap().owner {
            break owner;
        }
    };
    let (owner, standby) = if owner.node == "a" { (a, b) } else { (b, a) };
    for first in (1..=tasks).step_by(1_000) {
        let submit = |id| BatchItem::Command(Command::SubmitTask(Box::new(task(id))));
        owner.handle.decide((first..=tasks.min(first + 999)).map(submit).collect()).await.unwrap();
    }
    owner.task.abort();
    drop(owner);
    let began = Instant::now();
    assert_eq!(standby.handle.status().await.unwrap().tasks as u128, tasks);
    let hot = began.elapsed();

    // Nobody lives who has read anything.
    standby.task.abort();
    drop(standby);
    let began = Instant::now();
    let c = nodes.start("c", TAKEOVER_AFTER);
    assert_eq!(c.handle.status().await.unwrap().tasks as u128, tasks);
    let cold = began.elapsed();
    let read = "SELECT (SELECT coalesce(sum(length(body)), 0) FROM lessor.batch) \
                + (SELECT coalesce(max(bytes), 0) FROM lessor.snapshot)";
    let bytes = &execute(&url, read)[0][0];
    println!("{tasks} tasks: hot standby {hot:?}, cold node {cold:?} and at most {bytes} bytes read");
    c.phase.send_replace(Phase::End);
    c.task.await.unwrap().unwrap();
}
