//! Several agents of one machine, each for an instance of its own.

use std::collections::{HashMap, VecDeque};

use super::support::{Served, in_time, sharing, task};

const SLOTS: usize = 2;
/// Tasks of each instance that wait or run at any time.
const BACKLOG: usize = 4;
/// Tasks of each instance that have to end.
const TASKS: usize = 12;

#[tokio::test]
async fn busy_instances_never_run_more_than_the_slots_together_and_none_starves() {
    let instances = ["one", "other"];
    let served = Served::start().await;
    let mut begun = sharing(&served, SLOTS, &instances);
    let mut instance_of = HashMap::new();
    for instance in instances {
        for _ in 0..BACKLOG {
            instance_of.insert(served.submit_to(instance, task()).await, instance);
        }
    }
    let mut ended: HashMap<&str, usize> = instances.map(|instance| (instance, 0)).into();
    let mut running = VecDeque::new();
    // No instance ever runs out of tasks, so this comes to an end only if each gets its turn.
    while ended.values().any(|ended| *ended < TASKS) {
        while running.len() < SLOTS {
            running.push_back(in_time(begun.recv()).await.expect("the agents live"));
        }
        let oldest = running.pop_front().unwrap();
        let instance = instance_of[&oldest.task.task_id];
        instance_of.insert(served.submit_to(instance, task()).await, instance);
        assert!(begun.try_recv().is_err(), "more runs than there are slots");
        oldest.done();
        *ended.entry(instance).or_default() += 1;
    }
}
