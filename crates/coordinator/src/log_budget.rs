//! Limits the lines of a kind that are logged, so that nobody fills a disk with them. What was suppressed is counted in the
//! next line.

use std::sync::{Mutex, PoisonError};

use authority::Time;

/// How many lines of a kind are written in one second.
#[derive(Debug)]
pub struct LogBudget {
    max_per_second: u32,
    used: Mutex<Used>,
}

#[derive(Debug, Default)]
struct Used {
    second: u64,
    lines: u32,
    suppressed: u64,
}

impl LogBudget {
    pub const fn new(max_per_second: u32) -> LogBudget {
        LogBudget { max_per_second, used: Mutex::new(Used { second: 0, lines: 0, suppressed: 0 }) }
    }

    /// Whether a line is written, and how many before it were not.
    pub fn admit(&self, now: Time) -> Option<Option<u64>> {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        let second = now.0 / 1_000;
        if used.second != second {
            (used.second, used.lines) = (second, 0);
        }
        if used.lines >= self.max_per_second {
            used.suppressed += 1;
            return None;
        }
        used.lines += 1;
        let suppressed = std::mem::take(&mut used.suppressed);
        Some((suppressed > 0).then_some(suppressed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_beyond_the_limit_of_a_second_are_counted_in_the_next_line() {
        let budget = LogBudget::new(100);
        let in_second = |ms: u64, count: u32| (0..count).filter_map(|_| budget.admit(Time(ms))).count();
        assert_eq!(in_second(5_000, 1_000), 100);
        assert_eq!(budget.admit(Time(6_000)), Some(Some(900)));
        assert_eq!(budget.admit(Time(6_001)), Some(None));
    }
}
