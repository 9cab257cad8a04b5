//! Backoff between repeats: they grow, are left to chance in part, and end.
//!
//! Only a fault on the way is repeated: no connection, a reset, a time-out, or an answer that decided nothing (full,
//! not serving). An answer that decided something is never a reason to ask again.

use std::time::Duration;

pub const FIRST_PAUSE: Duration = Duration::from_millis(100);
const MAX_PAUSE: Duration = Duration::from_secs(5);
/// Longest that the coordinator, or whoever answers in its place, may ask to wait.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(30);
/// Enough for a coordinator to be restarted: the pauses add up to more than a minute.
const MAX_TRIES: u32 = 20;

/// Whether an answer with this status decides nothing: too slow, full, broken or not serving, or a gateway that does
/// not reach it.
pub fn is_undecided(status: u16) -> bool {
    matches!(status, 408 | 429 | 500 | 502..=504)
}

/// The pauses of one request.
#[derive(Debug)]
pub struct Backoff {
    next: Duration,
    tries: u32,
}

impl Backoff {
    pub fn new() -> Backoff {
        Backoff { next: FIRST_PAUSE, tries: 0 }
    }

    /// How long to wait after a failed try; nothing when there have been enough. The coordinator's own word on when
    /// to come back is kept, within a bound.
    pub fn after(&mut self, retry_after: Option<Duration>) -> Option<Duration> {
        self.tries += 1;
        if self.tries >= MAX_TRIES {
            return None;
        }
        let pause = self.next.mul_f64(share());
        self.next = (self.next * 2).min(MAX_PAUSE);
        Some(pause.max(retry_after.unwrap_or_default().min(MAX_RETRY_AFTER)))
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
    fn pauses_grow_to_a_bound_and_end() {
        let mut backoff = Backoff::new();
        let all: Vec<Duration> = std::iter::from_fn(|| backoff.after(None)).collect();
        assert_eq!(all.len() as u32, MAX_TRIES - 1);
        for (n, pause) in all.iter().enumerate() {
            let whole = (FIRST_PAUSE * 2_u32.saturating_pow(n as u32)).min(MAX_PAUSE);
            assert!(*pause >= whole / 2 && *pause <= whole, "{n}: {pause:?}");
        }
        assert!(all.iter().sum::<Duration>() > Duration::from_secs(30));
    }

    #[test]
    fn the_coordinators_word_on_when_to_come_back_is_kept_within_a_bound() {
        assert_eq!(Backoff::new().after(Some(Duration::from_secs(7))), Some(Duration::from_secs(7)));
        for day_or_longer in [Duration::from_secs(86_400), Duration::from_secs(u64::MAX), Duration::MAX] {
            assert_eq!(Backoff::new().after(Some(day_or_longer)), Some(MAX_RETRY_AFTER));
        }
    }
}
