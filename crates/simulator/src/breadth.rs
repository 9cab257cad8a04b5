//! Which parts of the product a seed uses beyond the plain ones, and under which limits.

use crate::prng::Prng;

#[derive(Clone, Debug)]
pub struct Breadth {
    /// Something beyond the ledger follows it.
    pub effects: bool,
    /// What follows the ledger is out of order for seconds when it fails.
    pub slow_effects: bool,
    /// History goes as soon as it may, and purged tasks come back: short retention, long histories.
    pub short_memory: bool,
    /// A snapshot's slice looks at so many slots at most.
    pub slice_slots: u32,
    /// Memory for tasks.
    pub max_state_bytes: usize,
    /// An operator stops the coordinator now and then, and it starts again.
    pub graceful_stops: bool,
    /// One who uses the calls that ordinary clients do not.
    pub operator: bool,
    /// Tasks that not every worker may run.
    pub requirements: bool,
}

impl Breadth {
    pub fn draw(rng: &mut Prng) -> Breadth {
        Breadth {
            effects: rng.chance(500),
            slow_effects: rng.chance(400),
            short_memory: rng.chance(250),
            slice_slots: *rng.pick(&[1, 2, 5, 2_048]).unwrap_or(&2_048),
            max_state_bytes: match rng.chance(250) {
                true => rng.between(4_000, 40_000) as usize,
                false => usize::MAX,
            },
            graceful_stops: rng.chance(400),
            operator: rng.chance(600),
            requirements: rng.chance(500),
        }
    }
}
