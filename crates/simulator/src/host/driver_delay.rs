//! Delays the driver as a loaded machine does: the driver looks at the clock late, and requests that have arrived stay
//! undecided. A late look breaks no rule: whatever was received in time counts as in time, and whatever came
//! late finds its lease expired, whether or not that was recorded.

use authority::Time;

use crate::env::Env;

#[derive(Default)]
pub(super) struct DriverDelay {
    stalled_until: u64,
}

impl DriverDelay {
    /// How late the driver looks at the clock, beyond its usual lag.
    pub(super) fn tick_ms(env: &Env) -> u64 {
        if env.faults { env.config.late_ms } else { 0 }
    }

    /// Whether it is time for a tick that is due.
    pub(super) fn ticks(due: Time, horizon: Time, env: &Env) -> bool {
        due.plus_ms(DriverDelay::tick_ms(env)) <= horizon
    }

    /// How many requests the driver takes now.
    pub(super) fn takes(&mut self, env: &mut Env) -> u64 {
        if env.config.late_ms > 0 && env.strikes(true, 30) {
            self.stalled_until = env.now + env.rng.between(20, 2 * env.config.late_ms);
        }
        let take = env.rng.between(1, 8);
        if self.left_ms(env) > 0 { 0 } else { take }
    }

    /// How long the driver still stands still.
    pub(super) fn left_ms(&self, env: &Env) -> u64 {
        self.stalled_until.saturating_sub(env.now)
    }
}
