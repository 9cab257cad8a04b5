//! One run from start to audit: a server on its own directory, clients and workers, faults, and the verdict.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Result, bail};
use tempfile::TempDir;

use crate::actors::{Actors, drain};
use crate::checks::{Reach, check, format_violations, reach};
use crate::contract::Contract;
use crate::evidence::{Evidence, collect};
use crate::history::{Cut, RawRecording, Recording, read_records};
use crate::log_tools;
use crate::nodes::Nodes;
use crate::plan::Plan;
use crate::server::Server;
use crate::tmpfs::Tmpfs;
use crate::world::{LEASE, World};

pub(crate) struct Fixture {
    pub world: Arc<World>,
    pub actors: Option<Actors>,
    pub server: Server,
    cuts: Vec<Cut>,
    /// After the server, so that nothing is removed under its feet; the mount before the directory below it.
    pub disk: Option<Tmpfs>,
    directory: TempDir,
}

impl Fixture {
    /// A started server with a configured queue and no clients or workers yet.
    pub(crate) async fn open(
        plan: &Plan,
        disk_bytes: Option<u64>,
        contracts: &'static [Contract],
    ) -> Result<Self> {
        let directory = tempfile::Builder::new().prefix("lessor-chaos-").tempdir()?;
        let disk_path = directory.path().join("disk");
        std::fs::create_dir(&disk_path)?;
        let disk = disk_bytes.map(|bytes| Tmpfs::mount(&disk_path, bytes)).transpose()?;
        let mut server = Server::new(&plan.binary, &disk_path.join("data"), &log_path(directory.path()));
        server.pushes = contracts.contains(&Contract::Callback);
        server.start().await?;
        let world = Arc::new(World::new(plan.clone(), Nodes::single(server.address()?)?, contracts).await?);
        world.configure_queue(LEASE).await?;
        Ok(Self { world, actors: None, server, cuts: Vec::new(), disk, directory })
    }

    pub(crate) fn start_actors(&mut self) {
        self.actors = Some(Actors::start(&self.world));
    }

    /// Kills the server, which must be running, and looks where its ledger ends.
    pub(crate) fn kill(&mut self) -> Result<()> {
        self.check_that_it_runs()?;
        self.server.kill()?;
        self.cuts.push(Cut::look(self.server.data(), self.world.recorder.now())?);
        Ok(())
    }

    /// How often it was killed so far.
    pub(crate) fn kills(&self) -> usize {
        self.cuts.len()
    }

    /// Kills the server and starts it again.
    pub(crate) async fn restart(&mut self) -> Result<()> {
        self.kill()?;
        self.world.note_start();
        self.server.start().await
    }

    /// Ends the faults, drains, and checks all answers of the server.
    pub(crate) async fn finish(mut self, has_fair_clock: bool) -> Result<Reach> {
        let kills = self.kills();
        let (mut evidence, raw_recording) = self.end(has_fair_clock).await?;
        let began = Instant::now();
        let (recording, unexpected_answers) = Recording::of(&raw_recording);
        evidence.observations.unexpected_answers.extend(unexpected_answers);
        let mut violations = check(&evidence, &recording.records);
        violations.extend(recording.audit().err());
        if violations.is_empty() {
            let (records, exchanges) = (recording.records.len(), recording.exchanges.len());
            println!("{records} records and {exchanges} exchanges judged in {:?}", began.elapsed());
            if !raw_recording.dispatches.is_empty() {
                let ids: BTreeSet<&str> =
                    raw_recording.dispatches.iter().map(|it| it.envelope.dispatch_id.as_str()).collect();
                let (sent, again) =
                    (raw_recording.dispatches.len(), raw_recording.dispatches.len() - ids.len());
                let refused = raw_recording.dispatches.iter().filter(|it| !it.answer.is_success()).count();
                println!("{sent} dispatches, {again} of them sent again, {refused} refused by the target");
            }
            log_tools::check(self.server.binary(), self.server.data(), &recording.records)?;
            return Ok(Reach { kills, ..reach(&evidence) });
        }
        let explanation = format_violations(&evidence, &violations);
        let log = self.server.log_tail();
        drop(self.server);
        let kept =
            if self.disk.is_some() { "nowhere, it was in memory".into() } else { keep(self.directory) };
        bail!("{explanation}\nthe server's log ends:\n{log}\nthe data is kept in {kept}")
    }

    /// Ends the faults, drains, asks about everything once more, and stops the server.
    pub(crate) async fn end(&mut self, has_fair_clock: bool) -> Result<(Evidence, RawRecording)> {
        if let Some(actors) = self.actors.take() {
            actors.stop().await?;
        }
        self.check_that_it_runs()?;
        drain(&self.world).await?;
        let mut evidence = collect(&self.world, has_fair_clock).await?;
        self.server.stop().await?;
        let records = read_records(self.server.data())?;
        let raw_recording = RawRecording {
            calls: std::mem::take(&mut evidence.observations.calls),
            rpcs: std::mem::take(&mut evidence.observations.rpcs),
            dispatches: std::mem::take(&mut evidence.observations.dispatches),
            records,
            cuts: std::mem::take(&mut self.cuts),
        };
        Ok((evidence, raw_recording))
    }

    fn check_that_it_runs(&mut self) -> Result<()> {
        if let Some(status) = self.server.exited() {
            bail!("the server ended on its own with {status}; its log ends:\n{}", self.server.log_tail());
        }
        Ok(())
    }
}

fn log_path(directory: &Path) -> std::path::PathBuf {
    directory.join("server.log")
}

fn keep(directory: TempDir) -> String {
    directory.keep().display().to_string()
}
