//! The optional features of the product that a seed uses, and their limits.

use crate::prng::Prng;

#[derive(Clone, Debug)]
pub struct Features {
    /// A projection follows the ledger.
    pub projection: bool,
    /// A failed projection stays down for seconds.
    pub slow_projection: bool,
    /// History goes as soon as it may, and purged tasks come back: short retention, long histories.
    pub short_memory: bool,
    /// A snapshot's slice looks at so many slots at most.
    pub slice_slots: u32,
    /// Memory for tasks, and for the final ones among them.
    pub max_state_bytes: usize,
    pub max_final_bytes: usize,
    /// An operator stops the coordinator now and then, and it starts again.
    pub graceful_stops: bool,
    /// An operator makes the calls that ordinary clients do not.
    pub operator: bool,
    /// Tasks that not every worker may run.
    pub requirements: bool,
}

impl Features {
    pub fn draw(rng: &mut Prng) -> Features {
        let [projection, slow_projection, short_memory] = [rng.chance(500), rng.chance(400), rng.chance(250)];
        let slice_slots = *rng.pick(&[1, 2, 5, 2_048]).unwrap_or(&2_048);
        let max_state_bytes = if rng.chance(250) { rng.between(4_000, 40_000) as usize } else { usize::MAX };
        // Each of the two limits is sometimes the only one.
        let bounds_final = if slow_projection { max_state_bytes != usize::MAX } else { short_memory };
        Features {
            projection,
            slow_projection,
            short_memory,
            slice_slots,
            max_state_bytes,
            max_final_bytes: if bounds_final { 2_000 } else { usize::MAX },
            graceful_stops: rng.chance(400),
            operator: rng.chance(600),
            requirements: rng.chance(500),
        }
    }
}
