//! A history from its beginning to its end: a phase with faults, then a phase without in which everything must finish.

use authority::Position;
use fake_disk::FakeDisk;
use history::explain::explain;

use crate::actors::Cast;
use crate::bug::Bug;
use crate::config::{SimConfig, queue_defaults};
use crate::env::{Env, SimEvent};
use crate::host::{Host, HostEvent};
use crate::prng::Prng;
use crate::trace::Trace;
use auditor::Auditor;
use auditor::Coverage;
use auditor::history::Entry;

/// Virtual time in which everything must have finished once the faults are over.
const CALM_MS: u64 = 45 * 60 * 1_000;
/// No history needs more events than this; one that does runs in a circle. Workers that repeat themselves at once, on a
/// fast network and before a full disk, need hundreds of thousands.
const MAX_EVENTS: u64 = 2_000_000;
/// How long some histories go on after everything has ended, so that tasks are purged.
const AFTERMATH_MS: u64 = 70_000;
/// No final task is purged early that is younger than this; see `MIN_RETENTION_MS` of the authority.
const OLD_ENOUGH_MS: u64 = 11 * 60 * 1_000;

pub(crate) struct World<'a> {
    env: Env<'a>,
    host: Host,
    cast: Cast,
}

impl<'a> World<'a> {
    pub(crate) fn new(seed: u64, config: &SimConfig, bug: Option<Bug>, trace: &'a mut Trace) -> World<'a> {
        let mut rng = Prng::new(seed.wrapping_mul(0x9e37_79b9).wrapping_add(1));
        let auditor = Auditor::new(config.rules());
        let cast = Cast::new(&mut rng, config);
        let mut env = Env::new(rng, config.clone(), auditor, trace);
        env.bug = bug;
        World { env, host: Host::new(), cast }
    }

    /// Runs the history; the error says what is wrong with it.
    pub(crate) fn run(mut self) -> Result<Coverage, String> {
        self.live()?;
        let mut coverage = self.env.coverage.clone();
        coverage.add(&self.env.auditor.coverage);
        Ok(coverage)
    }

    fn live(&mut self) -> Result<(), String> {
        self.env.after(0, SimEvent::Host(HostEvent::Start));
        self.cast.begin(&mut self.env);
        self.env.after(500, SimEvent::Trouble);
        let end = self.env.now + self.env.config.safety_ms;
        while self.env.now < end {
            self.step()?;
        }
        self.calm()?;
        let features = &self.env.config.features;
        let short_of_memory = features.max_state_bytes.min(features.max_final_bytes) != usize::MAX;
        if short_of_memory {
            // So that tasks are old enough to be purged before their retention is over.
            self.host.suspend(&mut self.env, OLD_ENOUGH_MS);
        }
        if short_of_memory || self.env.rng.chance(250) {
            let end = self.env.now.max(self.host.suspended_until()) + AFTERMATH_MS;
            while self.env.now < end {
                self.step()?;
            }
        }
        self.end()
    }

    /// Runs the history and gives what the auditor read.
    pub(crate) fn record(mut self) -> Result<Vec<Entry>, String> {
        self.env.auditor.entries = Some(Vec::new());
        self.live()?;
        Ok(self.env.auditor.entries.take().unwrap_or_default())
    }

    /// Faults are over: every accepted task must end.
    fn calm(&mut self) -> Result<(), String> {
        self.env.faults = false;
        self.env.note(&[30], || "the faults are over".into());
        self.host.disk.set_capacity(None);
        let end = self.env.now + CALM_MS;
        loop {
            self.step()?;
            if !self.host.is_idle() {
                if self.env.now >= end {
                    return Err("the coordinator does not come to rest".into());
                }
                continue;
            }
            let Some(task) = self.env.auditor.unfinished() else { return Ok(()) };
            if self.env.now >= end {
                return Err(format!("task {task} never ends"));
            }
        }
    }

    /// Stops, starts again from the disk, and looks at every task's history.
    fn end(&mut self) -> Result<(), String> {
        while !self.host.is_idle() {
            self.step()?;
        }
        self.host.stop(&mut self.env)?;
        self.env.after(10, SimEvent::Host(HostEvent::Start));
        while !self.host.is_idle() {
            self.step()?;
        }
        let histories: Vec<_> = self.env.auditor.histories().collect();
        for (id, expected) in histories {
            let newest = expected.first().copied().unwrap_or(Position::ZERO);
            let (found, truncated) = self.host.walk_back(newest)?;
            let whole = if truncated { expected.starts_with(&found) } else { expected == found };
            if !whole {
                return Err(format!("the history of task {id} is {found:?}, but was {expected:?}"));
            }
        }
        if self.env.config.features.projection {
            self.env.auditor.all_applied()?;
        }
        self.check_timelines()
    }

    /// Checks the timeline of every task, purged ones too, as far as the ledger retains their records.
    fn check_timelines(&mut self) -> Result<(), String> {
        let (first, records) = self.host.read_history()?;
        let tasks: Vec<_> = self.env.auditor.tasks().collect();
        tasks.into_iter().try_for_each(|task| {
            self.env.auditor.check_timeline(&explain(task, &records, &queue_defaults()), first)
        })
    }

    fn step(&mut self) -> Result<(), String> {
        if self.env.trace.events > MAX_EVENTS {
            return Err("the history does not end".into());
        }
        let Some(event) = self.env.next() else { return Err("nothing is going to happen".into()) };
        match event {
            SimEvent::Arrive { ticket, request } => self.host.arrive(ticket, request, &mut self.env),
            SimEvent::Answer { ticket, reply } => self.cast.answered(ticket, reply, &mut self.env),
            SimEvent::GiveUp { ticket } => self.cast.give_up(ticket, &mut self.env),
            SimEvent::Act { actor, timer } => self.cast.wake(actor, timer, &mut self.env),
            SimEvent::Host(event) => self.host.event(event, &mut self.env),
            SimEvent::Cluster(_) => Ok(()),
            SimEvent::Trouble => {
                self.trouble();
                Ok(())
            }
        }
    }

    /// Faults of the surroundings that come and go.
    fn trouble(&mut self) {
        if !self.env.faults {
            return;
        }
        let env = &mut self.env;
        let next = env.rng.between(300, 2_000);
        env.after(next, SimEvent::Trouble);
        if env.strikes(env.config.cuts, 400) {
            let actor = env.rng.below(self.cast.len() as u64) as usize;
            let (direction, until) = (env.rng.chance(500), env.now + env.rng.between(200, 6_000));
            env.note(&[31, actor as u64], || format!("actor {actor} is cut off until {until}"));
            env.cut_until.insert((actor, direction), until);
            if env.rng.chance(300) {
                env.cut_until.insert((actor, !direction), until);
            }
        }
        if env.strikes(env.config.suspends, 80) {
            let span_ms = env.rng.between(500, 30_000);
            self.host.suspend(env, span_ms);
        }
        if env.strikes(env.config.full_disk, 350) {
            fill(&self.host.disk, env);
        } else if env.rng.chance(150) {
            self.host.disk.set_capacity(None);
        }
        if env.strikes(env.config.features.graceful_stops, 200) {
            self.host.begin_stop(env);
        }
        if env.strikes(env.config.crash_permille > 0, 60) {
            self.host.crash(env);
        }
    }
}

/// Leaves next to nothing on the disk.
fn fill(disk: &FakeDisk, env: &mut Env) {
    let left = env.rng.below(6_000);
    env.note(&[32, left], || format!("the disk has {left} bytes left"));
    disk.set_capacity(Some(disk.used_bytes() + left));
}
