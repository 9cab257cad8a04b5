//! The settings of a cluster's seed. Every seed leaves some faults out.

use crate::prng::Prng;

#[derive(Clone, Debug)]
pub(crate) struct ClusterConfig {
    pub nodes: usize,
    /// Commits wait for a replica, which a failover promotes.
    pub is_synchronous: bool,
    pub answers_wait_for_standby: bool,
    /// How far the wall clocks of the nodes are ahead, at most.
    pub skew_ms: u64,
    pub crashes: bool,
    pub suspends: bool,
    /// All nodes are down at once now and then.
    pub cold_starts: bool,
    pub drains: bool,
    pub database_cuts: bool,
    pub link_cuts: bool,
    pub failovers: bool,
    /// How many batches a failover loses at most.
    pub max_lost: u64,
    pub restarts: bool,
    /// The database stands still for a while.
    pub stalls: bool,
    pub lost_answers_permille: u64,
    pub late_commits_permille: u64,
    pub warnings_permille: u64,
    /// How late the replica is at most.
    pub max_lag_ms: u64,
    /// A snapshot is taken after so many records.
    pub snapshot_after: u64,
    pub takeover_after_ms: u64,
}

impl ClusterConfig {
    pub(crate) fn draw(rng: &mut Prng) -> ClusterConfig {
        let mut on = |permille: u64| rng.chance(permille);
        let flags =
            [on(600), on(550), on(250), on(350), on(400), on(350), on(550), on(300), on(300), on(400)];
        let [
            crashes,
            suspends,
            cold_starts,
            drains,
            database_cuts,
            link_cuts,
            failovers,
            restarts,
            stalls,
            late,
        ] = flags;
        let is_synchronous = on(500);
        let (loses, warns, answers_wait_for_standby, skewed) = (on(500), on(500), on(350), on(700));
        ClusterConfig {
            nodes: rng.between(2, 3) as usize,
            is_synchronous,
            answers_wait_for_standby,
            skew_ms: if skewed { *rng.pick(&[500, 10_000, 3 * 3_600_000]).unwrap_or(&500) } else { 0 },
            crashes,
            suspends,
            cold_starts,
            drains,
            database_cuts,
            link_cuts,
            failovers,
            max_lost: rng.between(0, 4),
            restarts,
            stalls,
            lost_answers_permille: if loses { rng.between(5, 40) } else { 0 },
            late_commits_permille: if late { rng.between(5, 40) } else { 0 },
            warnings_permille: if warns { rng.between(10, 150) } else { 0 },
            max_lag_ms: if warns { rng.between(5, 400) } else { rng.between(1, 8) },
            snapshot_after: rng.between(40, 400),
            takeover_after_ms: *rng.pick(&[1_000, 3_000]).unwrap_or(&3_000),
        }
    }
}
