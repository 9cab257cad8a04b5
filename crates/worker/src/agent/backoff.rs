//! Backoff between tries to reach the coordinator: they grow to a bound and are left to chance in part. They never
//! end: a worker that nobody tends has nothing better to do than to come back.

use std::time::Duration;

const FIRST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub struct Backoff {
    next: Duration,
}

impl Backoff {
    pub fn new() -> Backoff {
        Backoff { next: FIRST }
    }

    pub fn after_failure(&mut self) -> Duration {
        let pause = self.next.mul_f64(share());
        self.next = (self.next * 2).min(LONGEST);
        pause
    }

    pub fn after_success(&mut self) {
        self.next = FIRST;
    }
}

/// Between a half and one. Without randomness the pauses are whole, which only costs their spread.
fn share() -> f64 {
    getrandom::u32().map_or(1.0, |draw| 0.5 + f64::from(draw) / f64::from(u32::MAX) / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_bound_and_begin_again_after_a_success() {
        let mut backoff = Backoff::new();
        for n in 0..20 {
            let whole = (FIRST * 2_u32.saturating_pow(n)).min(LONGEST);
            let pause = backoff.after_failure();
            assert!(pause >= whole / 2 && pause <= whole, "{n}: {pause:?}");
        }
        backoff.after_success();
        assert!(backoff.after_failure() <= FIRST);
    }
}
