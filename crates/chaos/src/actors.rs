//! The clients and workers of a run: four clients, eight workers of each contract or in all, and the drain at the end.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tokio::task::JoinSet;

use crate::contract::Contract;
use crate::submitter::Submitter;
use crate::worker::{CHARACTERS, Character, Worker};
use crate::world::{QUEUE, World};

const CLIENTS: usize = 4;
const DRAINERS: usize = 4;
const STOP_DEADLINE: Duration = Duration::from_secs(60);
const DRAIN_DEADLINE: Duration = Duration::from_secs(90);

pub(crate) struct Actors {
    world: Arc<World>,
    tasks: JoinSet<()>,
}

impl Actors {
    /// Eight workers of each contract.
    pub(crate) fn start(world: &Arc<World>) -> Self {
        let of_contract =
            |contract: &Contract| CHARACTERS.map(|character| (*contract, character)).into_iter();
        let workers = world.contracts.iter().flat_map(of_contract);
        Self::start_workers(world, world.plan.pick(2_000, 20_000), workers)
    }

    /// These workers, and clients that hand in so many tasks each.
    pub(crate) fn start_workers(
        world: &Arc<World>,
        budget: usize,
        workers: impl Iterator<Item = (Contract, Character)>,
    ) -> Self {
        let mut tasks = JoinSet::new();
        for index in 0..CLIENTS {
            tasks.spawn(Submitter::new(world.clone(), format!("client-{index}"), budget).run());
        }
        for (index, (contract, character)) in workers.enumerate() {
            let id = format!("{}-{index}", contract.name());
            tasks.spawn(Worker::new(world.clone(), contract, id, character).run());
        }
        Self { world: world.clone(), tasks }
    }

    /// Lets everybody finish what they have in hand.
    pub(crate) async fn stop(mut self) -> Result<()> {
        self.world.stop();
        let all = async {
            while let Some(task) = self.tasks.join_next().await {
                task.context("a client or worker panicked")?;
            }
            Ok(())
        };
        tokio::time::timeout(STOP_DEADLINE, all).await.context("a client or worker hangs")?
    }
}

/// Honest workers finish what is left, until no task is waiting or leased.
pub(crate) async fn drain(world: &Arc<World>) -> Result<()> {
    let deadline = Instant::now() + DRAIN_DEADLINE;
    let mut round = 0;
    loop {
        let open = open_tasks(world).await?;
        if open == 0 {
            return Ok(());
        }
        if Instant::now() > deadline {
            bail!("tasks of queue {QUEUE} are still open after {DRAIN_DEADLINE:?} of honest work");
        }
        round += 1;
        let mut drainers = JoinSet::new();
        let contracts = world.contracts.iter().cycle();
        for (index, contract) in contracts.take(DRAINERS.max(world.contracts.len())).enumerate() {
            let id = format!("drainer-{round}-{index}");
            let mut worker = Worker::new(world.clone(), *contract, id, Character::Honest);
            drainers.spawn(async move { while worker.drain().await > 0 {} });
        }
        while let Some(drainer) = drainers.join_next().await {
            drainer.context("a drainer panicked")?;
        }
    }
}

async fn open_tasks(world: &World) -> Result<usize> {
    let mut open = 0;
    for state in ["WAITING", "LEASED"] {
        let answer = world.api.ask(&format!("/v1/tasks?queue={QUEUE}&state={state}&limit=1")).await;
        let tasks = answer.body()["tasks"].as_array();
        open += tasks.with_context(|| format!("the list of {state} tasks was answered {answer:?}"))?.len();
    }
    Ok(open)
}
