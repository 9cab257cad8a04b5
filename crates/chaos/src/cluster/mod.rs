//! A cluster under faults: three nodes, a primary of PostgreSQL with a synchronous replica, each on a host of its own, and
//! clients and workers that never retry by themselves.
//!
//! Each request goes to a random node; when that node is taken down, or cut off, the same request goes to another one. Any other error
//! through a live node while the database takes writes is a failure of the run.

mod databases;
mod events;
mod node_process;
mod report;
mod tables;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use tempfile::TempDir;
use test_servers::network::{Host, Network};

use self::databases::Databases;
use self::events::Event;
use self::node_process::NodeProcess;
use self::report::Report;
use self::tables::{Compared, Tables};
use crate::actors::{Actors, drain};
use crate::checks::{Reach, check, format_violations, reach};
use crate::contract::Contract;
use crate::evidence::{Evidence, collect};
use crate::history::{RawRecording, Recording, read_database};
use crate::nodes::Nodes;
use crate::plan::{Form, Plan};
use crate::recorder::At;
use crate::scenario::reached_everything;
use crate::worker::Character;
use crate::world::{LEASE, World};

const NAMES: [&str; 3] = ["a", "b", "c"];
const HOSTS: [&str; 5] = ["a", "b", "c", "db1", "db2"];
/// The eight workers: every character, and every contract at least once.
const WORKERS: [(Contract, Character); 8] = [
    (Contract::Native, Character::Honest),
    (Contract::Stream, Character::Honest),
    (Contract::Claim, Character::Slow),
    (Contract::Grpc, Character::Hostile),
    (Contract::Claim, Character::Repeater),
    (Contract::Callback, Character::Failer),
    (Contract::Native, Character::Heartbeater),
    (Contract::Stream, Character::Releaser),
];
/// The events of the short form. The others are in the long form, and have tests of their own.
const SHORT: [Event; 5] =
    [Event::KillOwner, Event::StopOwner, Event::CutDatabase, Event::HandOver, Event::PromoteUnreplicated];
/// Load before the first event, and between two.
const BETWEEN: Duration = Duration::from_millis(1_000);
/// So many tasks are compared with the tables in the long form. The load goes on until there are as many.
const MIN_TASKS: usize = 10_000;
const MAX_TIME_FOR_TASKS: Duration = Duration::from_secs(180);

pub(crate) struct Cluster {
    world: Arc<World>,
    databases: Databases,
    processes: Vec<NodeProcess>,
    database_hosts: [Host; 2],
    /// After everything that uses them.
    _network: Network,
    directory: Option<TempDir>,
}

/// What a run has left behind.
struct Ended {
    evidence: Evidence,
    raw_recording: RawRecording,
    tables: Tables,
}

/// Runs the events of the plan's form, and checks everything. Returns what was reached, for people.
pub(crate) async fn run(plan: &Plan) -> Result<String> {
    let mut cluster = Cluster::start(plan).await?;
    let budget = plan.pick(600, 20_000);
    let actors = Actors::start_workers(&cluster.world, budget, WORKERS.into_iter());
    let mut happened = Vec::new();
    let events: Vec<Event> = match plan.form {
        Form::Short => SHORT.to_vec(),
        Form::Long => Event::ALL.iter().copied().cycle().take(Event::ALL.len() * plan.rounds()?).collect(),
    };
    for event in events {
        tokio::time::sleep(BETWEEN).await;
        println!("{:8.3} {event:?}", cluster.now().as_secs_f64());
        match cluster.happen(event).await {
            Ok(it) => happened.push(it),
            Err(error) => return Err(error.context(cluster.keep())),
        }
    }
    tokio::time::sleep(BETWEEN).await;
    println!("{:8.3} the events are over", cluster.now().as_secs_f64());
    if plan.form == Form::Long {
        cluster.wait_for_tasks().await;
    }
    let ended = cluster.end(actors).await;
    let ended = match ended {
        Ok(ended) => ended,
        Err(error) => return Err(error.context(cluster.keep())),
    };
    let report = Report::of(&ended.evidence.observations.sent, &happened);
    println!("{report}");
    println!("{}", report.json());
    if let Some(file) = plan.report() {
        std::fs::write(&file, format!("{:#}\n", report.json()))
            .with_context(|| format!("cannot write {file}"))?;
    }
    match cluster.judge(plan, &report, ended) {
        Ok(reach) => Ok(format!("{reach:?}")),
        Err(error) => Err(error.context(cluster.keep())),
    }
}

impl Cluster {
    async fn start(plan: &Plan) -> Result<Cluster> {
        let network = Network::new(&HOSTS);
        let hosts: Vec<Host> = (0..HOSTS.len()).map(|at| network.host(at).clone()).collect();
        let database_hosts = [hosts[3].clone(), hosts[4].clone()];
        let databases = Databases::start(&database_hosts[0], &database_hosts[1]);
        let directory = tempfile::Builder::new().prefix("lessor-chaos-").tempdir()?;
        // The long form measures with the default.
        let takeover_after = Duration::from_millis(plan.pick(1_500, 3_000));
        let process = |(name, host): (&&str, &Host)| {
            NodeProcess::new(&plan.binary, directory.path(), name, host, databases.url(), takeover_after)
        };
        let mut processes = NAMES.iter().zip(&hosts).map(process).collect::<Result<Vec<_>>>()?;
        processes[0].init_cluster()?;
        for process in &mut processes {
            process.spawn()?;
        }
        for process in &mut processes {
            process.wait_until_ready().await?;
        }
        let addresses: Vec<String> = processes.iter().map(NodeProcess::address).collect();
        let nodes = Nodes::cluster(&addresses)?;
        let target = network.own_address();
        let world = Arc::new(World::with_target_on(target, plan.clone(), nodes, &Contract::ALL).await?);
        world.configure_queue(LEASE).await?;
        let directory = Some(directory);
        Ok(Cluster { world, databases, processes, database_hosts, _network: network, directory })
    }

    fn now(&self) -> At {
        self.world.recorder.now()
    }

    /// Starts a node that has ended, and lets requests go to it.
    async fn start_node(&mut self, at: usize) -> Result<()> {
        self.processes[at].spawn()?;
        self.processes[at].wait_until_ready().await?;
        self.world.nodes.node(at).up()
    }

    /// The host of a node, and those of all other nodes.
    fn split(&self, at: usize) -> (Host, Vec<Host>) {
        let others = self.processes.iter().enumerate().filter(|(other, _)| *other != at);
        (self.processes[at].host.clone(), others.map(|(_, node)| node.host.clone()).collect())
    }

    /// Lets the load go on until there are enough tasks.
    async fn wait_for_tasks(&self) {
        let until = self.now() + MAX_TIME_FOR_TASKS;
        while self.accepted() < MIN_TASKS && self.now() < until {
            tokio::time::sleep(BETWEEN).await;
        }
    }

    fn accepted(&self) -> usize {
        let observations = self.world.recorder.observations();
        let ids = observations.submissions.iter().filter_map(|submission| submission.task_id.as_deref());
        ids.collect::<BTreeSet<&str>>().len()
    }

    /// Ends the load, drains, asks about everything once more, reads the tables, stops the nodes and reads the ledger.
    async fn end(&mut self, actors: Actors) -> Result<Ended> {
        actors.stop().await?;
        drain(&self.world).await?;
        let mut evidence = collect(&self.world, true).await?;
        let tables = Tables::read(&self.databases).await?;
        for process in &mut self.processes {
            process.terminate().await?;
        }
        let url = self.databases.primary_url();
        let records = tokio::task::spawn_blocking(move || read_database(&url)).await??;
        let raw_recording = RawRecording {
            calls: std::mem::take(&mut evidence.observations.calls),
            rpcs: std::mem::take(&mut evidence.observations.rpcs),
            dispatches: std::mem::take(&mut evidence.observations.dispatches),
            records,
            cuts: Vec::new(),
        };
        Ok(Ended { evidence, raw_recording, tables })
    }

    fn judge(&self, plan: &Plan, report: &Report, ended: Ended) -> Result<Reach> {
        let Ended { mut evidence, raw_recording, tables } = ended;
        let (mut recording, unexpected_answers) = Recording::of(&raw_recording);
        recording.add_configuration_of_nodes();
        evidence.observations.unexpected_answers.extend(unexpected_answers);
        let mut violations = check(&evidence, &recording.records);
        violations.extend(recording.audit().err());
        ensure!(violations.is_empty(), "{}", format_violations(&evidence, &violations));
        let failures = &report.failures;
        ensure!(
            failures.is_empty(),
            "{} requests failed, among them:\n{}",
            failures.len(),
            failures[..failures.len().min(10)].join("\n")
        );
        println!("{} records and {} exchanges judged", recording.records.len(), recording.exchanges.len());
        let Compared { tasks, attempts } = tables.compare(&evidence)?;
        println!("{tasks} tasks with {attempts} attempts: the tables equal the API");
        let ledger = format!("postgres:{}", self.databases.primary_url());
        lessor(&plan.binary, &["log", "verify", "--ledger", &ledger])?;
        let verified = lessor(&plan.binary, &["tables", "verify", "--ledger", &ledger])?;
        ensure!(verified.contains(": 0 differences"), "{verified}");
        let reach = reach(&evidence);
        match plan.form {
            Form::Short => Ok(reach),
            Form::Long => {
                ensure!(tasks >= MIN_TASKS, "there were only {tasks} tasks");
                report.check_pauses()?;
                reached_everything(reach)
            }
        }
    }

    /// Keeps the logs of the nodes, and says where.
    fn keep(&mut self) -> String {
        let kept = self.directory.take().map(TempDir::keep);
        format!("the logs of the nodes are in {}", kept.unwrap_or_default().display())
    }
}

/// Runs the binary and gives what it prints; it must end well.
fn lessor(binary: &Path, arguments: &[&str]) -> Result<String> {
    let output = Command::new(binary).args(arguments).output().context("cannot run the binary")?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if !output.status.success() {
        bail!(
            "{arguments:?} ended with {}:\n{}{}",
            output.status,
            text(&output.stdout),
            text(&output.stderr)
        );
    }
    Ok(text(&output.stdout))
}
