//! The configuration of a seed: its faults and the size of its world. Every seed leaves some faults out, because faults
//! that are always there hide each other (swarm testing).

use crate::features::Features;
use crate::prng::Prng;
use auditor::Rules;
use authority::{QueueConfig, QueueDefaults};

/// The queue that has defaults of its own, as the queue of remote executions has in production.
pub(crate) const EXECUTION_QUEUE: &str = "exec";

/// The defaults that the coordinator is started with. The lease is shorter than in production and the queue is small, so
/// that both matter in a short history.
pub fn queue_defaults() -> QueueDefaults {
    let config = QueueConfig {
        lease_ms: Some(3_000),
        heartbeat_interval_ms: Some(1_000),
        max_queue_size: Some(6),
        ..QueueConfig::default()
    };
    QueueDefaults::default().with(EXECUTION_QUEUE, config)
}

#[derive(Clone, Debug)]
pub struct SimConfig {
    /// At a crash, what was not synced is kept, lost or torn; without it only the process dies.
    pub power_cuts: bool,
    /// At a power cut, what was not synced may also be noise.
    pub garbage: bool,
    pub failed_syncs: bool,
    pub full_disk: bool,
    /// Syncs that take seconds while requests go on arriving.
    pub stalls: bool,
    pub loss_permille: u64,
    pub duplicate_permille: u64,
    pub max_delay_ms: u64,
    /// One direction between one actor and the coordinator is cut for a while.
    pub cuts: bool,
    /// The wall clock is set forth or back between two starts.
    pub wall_jumps: bool,
    /// The machine stands still while time goes on.
    pub suspends: bool,
    /// Workers whose clocks run too slow or too fast.
    pub worker_drift: bool,
    /// The chance of a crash at each point where one may happen.
    pub crash_permille: u64,
    /// Lease references that were never granted reach the engine.
    pub edge_broken: bool,
    pub hostile: bool,
    pub segment_bytes: u64,
    pub snapshot_after_bytes: u64,
    pub history_max_bytes: u64,
    /// With less than this left and no reserve, the driver decides nothing more.
    pub room_bytes: u64,
    pub clients: u64,
    pub workers: u64,
    /// How long new work comes in.
    pub safety_ms: u64,
    pub features: Features,
    /// Before some starts, bits of what is on the disk have flipped.
    pub bit_flips: bool,
    /// How late the driver looks at the clock.
    pub late_ms: u64,
    /// The silence after which a worker is lost.
    pub heartbeat_timeout_ms: u64,
}

impl SimConfig {
    /// By which rules a history of this world is judged.
    pub fn rules(&self) -> Rules {
        let memory_bound = self.features.max_state_bytes != usize::MAX;
        let queue_defaults = queue_defaults();
        Rules {
            edge_broken: self.edge_broken,
            memory_bound,
            final_bound: self.features.max_final_bytes != usize::MAX,
            queue_defaults,
            heartbeat_timeout_ms: self.heartbeat_timeout_ms,
            ..Rules::default()
        }
    }

    /// The same world for a cluster, whose ledger is in a database.
    pub(crate) fn without_disk(mut self) -> SimConfig {
        self.safety_ms += 10_000;
        // Silence of a worker is judged by one owner at a time.
        self.heartbeat_timeout_ms = 120_000;
        self
    }

    pub fn draw(rng: &mut Prng) -> SimConfig {
        let calm = rng.chance(60);
        let mut on = |permille: u64| !calm && rng.chance(permille);
        let flags =
            [on(600), on(300), on(350), on(300), on(400), on(400), on(400), on(300), on(300), on(400)];
        let (hostile, edge_broken, crashes, loss, duplicates) = (on(600), on(150), on(700), on(500), on(500));
        let [power_cuts, garbage, failed_syncs, full_disk, stalls, cuts, wall_jumps, suspends, drift, slow] =
            flags;
        let mut config = SimConfig {
            power_cuts,
            garbage,
            failed_syncs,
            full_disk,
            stalls,
            loss_permille: if loss { rng.between(5, 150) } else { 0 },
            duplicate_permille: if duplicates { rng.between(5, 150) } else { 0 },
            max_delay_ms: if slow { rng.between(50, 1_500) } else { rng.between(1, 20) },
            cuts,
            wall_jumps,
            suspends,
            worker_drift: drift,
            crash_permille: if crashes { rng.between(1, 12) } else { 0 },
            edge_broken,
            // A broken edge shows only when somebody tries it.
            hostile: hostile || edge_broken,
            segment_bytes: *rng.pick(&[24 << 10, 32 << 10, 64 << 10]).unwrap_or(&(64 << 10)),
            snapshot_after_bytes: rng.between(1_000, 12_000),
            history_max_bytes: *rng.pick(&[0, 64 << 10, 10 << 20]).unwrap_or(&0),
            room_bytes: *rng.pick(&[0, 12 << 10]).unwrap_or(&0),
            clients: rng.between(1, 3),
            workers: rng.between(2, 5),
            safety_ms: rng.between(2_000, 12_000),
            features: Features::draw(rng),
            bit_flips: !calm && rng.chance(400),
            late_ms: if !calm && rng.chance(500) { rng.between(20, 2_500) } else { 0 },
            heartbeat_timeout_ms: if rng.chance(500) { rng.between(500, 2_500) } else { 120_000 },
        };
        if config.features.short_memory {
            config.segment_bytes = 24 << 10;
            config.history_max_bytes = 0;
            config.snapshot_after_bytes = config.snapshot_after_bytes.min(4_000);
            config.safety_ms += 8_000;
        }
        if rng.chance(300) {
            // A log that is soon trimmed.
            config = SimConfig {
                segment_bytes: 24 << 10,
                snapshot_after_bytes: 1_500,
                history_max_bytes: 0,
                ..config
            };
        }
        config
    }
}
