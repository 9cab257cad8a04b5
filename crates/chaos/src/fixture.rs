//! One run from start to audit: the server on its own directory, the crew, the faults in between, the verdict.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Result, bail};
use tempfile::TempDir;

use crate::contract::Contract;
use crate::crew::{Crew, drain};
use crate::evidence::{Evidence, collect};
use crate::history::{Cut, Recording, Testimony, read_records};
use crate::log_tools;
use crate::outside::{Reach, check, explain, reach};
use crate::plan::Plan;
use crate::server::Server;
use crate::tmpfs::Tmpfs;
use crate::world::{LEASE, World};

pub struct Fixture {
    pub world: Arc<World>,
    pub crew: Option<Crew>,
    pub server: Server,
    cuts: Vec<Cut>,
    /// After the server, so that nothing is removed under its feet; the mount before the directory below it.
    pub disk: Option<Tmpfs>,
    directory: TempDir,
}

impl Fixture {
    /// A started server with a configured queue and nobody there yet; workers of these contracts are to come.
    pub async fn open(plan: &Plan, disk_bytes: Option<u64>, contracts: &'static [Contract]) -> Result<Self> {
        let directory = tempfile::Builder::new().prefix("lessor-chaos-").tempdir()?;
        let disk_path = directory.path().join("disk");
        std::fs::create_dir(&disk_path)?;
        let disk = disk_bytes.map(|bytes| Tmpfs::mount(&disk_path, bytes)).transpose()?;
        let mut server = Server::new(&plan.binary, &disk_path.join("data"), &log_path(directory.path()));
        server.pushes = contracts.contains(&Contract::Callback);
        server.start().await?;
        let world = Arc::new(World::new(plan.clone(), server.address()?, contracts).await?);
        world.configure_queue(LEASE).await?;
        Ok(Self { world, crew: None, server, cuts: Vec::new(), disk, directory })
    }

    pub fn send_in_the_crew(&mut self) {
        self.crew = Some(Crew::send_in(&self.world));
    }

    /// Kills the server and looks where its ledger ends.
    pub fn kill(&mut self) -> Result<()> {
        self.server.kill()?;
        self.cuts.push(Cut::look(self.server.data(), self.world.facts.now())?);
        Ok(())
    }

    /// Kills the server and starts it again.
    pub async fn restart(&mut self) -> Result<()> {
        self.kill()?;
        self.world.note_start();
        self.server.start().await
    }

    /// Ends the faults, drains, and holds the server to what it said.
    pub async fn finish(mut self, has_fair_clock: bool) -> Result<Reach> {
        let (mut evidence, testimony) = self.end(has_fair_clock).await?;
        let began = Instant::now();
        let (recording, surprises) = Recording::of(&testimony);
        evidence.book.surprises.extend(surprises);
        let mut violations = check(&evidence, &recording.records);
        violations.extend(recording.audit().err());
        if violations.is_empty() {
            let (records, exchanges) = (recording.records.len(), recording.exchanges.len());
            println!("{records} records and {exchanges} exchanges judged in {:?}", began.elapsed());
            if !testimony.dispatches.is_empty() {
                let ids: BTreeSet<&str> =
                    testimony.dispatches.iter().map(|it| it.envelope.dispatch_id.as_str()).collect();
                let (sent, again) = (testimony.dispatches.len(), testimony.dispatches.len() - ids.len());
                let refused = testimony.dispatches.iter().filter(|it| !it.answer.is_success()).count();
                println!("{sent} dispatches, {again} of them sent again, {refused} refused by the target");
            }
            log_tools::check(self.server.binary(), self.server.data(), &recording.records)?;
            return Ok(reach(&evidence));
        }
        let explanation = explain(&evidence, &violations);
        let log = self.server.log_tail();
        drop(self.server);
        let kept =
            if self.disk.is_some() { "nowhere, it was in memory".into() } else { kept(self.directory) };
        bail!("{explanation}\nthe server's log ends:\n{log}\nthe data is kept in {kept}")
    }

    /// Ends the faults, drains, asks about everything once more, and stops the server.
    pub async fn end(&mut self, has_fair_clock: bool) -> Result<(Evidence, Testimony)> {
        if let Some(crew) = self.crew.take() {
            crew.stop().await?;
        }
        if let Some(status) = self.server.exited() {
            bail!("the server ended on its own with {status}; its log ends:\n{}", self.server.log_tail());
        }
        drain(&self.world).await?;
        let mut evidence = collect(&self.world, has_fair_clock).await?;
        self.server.stop().await?;
        let records = read_records(self.server.data())?;
        let testimony = Testimony {
            calls: std::mem::take(&mut evidence.book.calls),
            rpcs: std::mem::take(&mut evidence.book.rpcs),
            dispatches: std::mem::take(&mut evidence.book.dispatches),
            records,
            cuts: std::mem::take(&mut self.cuts),
        };
        Ok((evidence, testimony))
    }
}

fn log_path(directory: &Path) -> std::path::PathBuf {
    directory.join("server.log")
}

fn kept(directory: TempDir) -> String {
    directory.keep().display().to_string()
}
