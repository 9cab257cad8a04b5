//! Bounds the lines of the audit log. Every caller has a budget of its own, so that none hides the lines of another, and
//! all together have one, so that nobody fills a disk. What was suppressed is counted in the next line of the same caller.

use std::collections::HashMap;
use std::mem::take;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use authority::{ActorKind, Time};

/// Most callers with a budget of their own; the others share one.
const MAX_HOLDERS: usize = 1_024;

/// Whose budget a line counts against.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Holder {
    /// The kind, the id and the name of a credential.
    Credential(ActorKind, Arc<str>, Arc<str>),
    /// A caller without a valid credential, by its address.
    Address(IpAddr),
    /// Whoever is beyond [`MAX_HOLDERS`], and whose address is not known.
    Others,
}

/// How many lines of a kind are written in one second.
#[derive(Debug)]
pub(super) struct Budget {
    max_per_holder: u32,
    max_in_all: u32,
    used: Mutex<Used>,
}

#[derive(Debug, Default)]
struct Used {
    second: u64,
    lines: u32,
    holders: HashMap<Holder, HolderUse>,
    /// What was suppressed of callers that lost their place.
    suppressed: u64,
}

#[derive(Debug, Default)]
struct HolderUse {
    lines: u32,
    suppressed: u64,
}

impl Budget {
    pub(super) fn new(max_per_holder: u32, max_in_all: u32) -> Budget {
        Budget { max_per_holder, max_in_all, used: Mutex::default() }
    }

    /// Whether a line is written, and how many before it were not.
    pub(super) fn admit(&self, holder: Holder, now: Time) -> Option<Option<u64>> {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        used.turn_to(now.0 / 1_000);
        let used = &mut *used;
        let holder = used.holder_or_others(holder);
        let own = used.holders.entry(holder).or_default();
        if own.lines >= self.max_per_holder || used.lines >= self.max_in_all {
            own.suppressed += 1;
            return None;
        }
        own.lines += 1;
        used.lines += 1;
        let suppressed = take(&mut own.suppressed) + take(&mut used.suppressed);
        Some((suppressed > 0).then_some(suppressed))
    }
}

impl Used {
    /// Callers of whom nothing is left to be said lose their place.
    fn turn_to(&mut self, second: u64) {
        if self.second == second {
            return;
        }
        (self.second, self.lines) = (second, 0);
        self.holders.retain(|_, own| {
            own.lines = 0;
            own.suppressed > 0
        });
    }

    /// The holder, or the others if there are too many. Those who are silent by now make room.
    fn holder_or_others(&mut self, holder: Holder) -> Holder {
        if self.holders.len() < MAX_HOLDERS || self.holders.contains_key(&holder) {
            return holder;
        }
        let suppressed = &mut self.suppressed;
        self.holders.retain(|_, own| {
            if own.lines == 0 {
                *suppressed += own.suppressed;
            }
            own.lines > 0
        });
        if self.holders.len() < MAX_HOLDERS { holder } else { Holder::Others }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Holder {
        Holder::Credential(ActorKind::Key, name.into(), name.into())
    }

    fn admitted(budget: &Budget, holder: &Holder, ms: u64, count: u32) -> usize {
        (0..count).filter_map(|_| budget.admit(holder.clone(), Time(ms))).count()
    }

    #[test]
    fn lines_beyond_the_limit_of_a_second_are_counted_in_the_next_line() {
        let budget = Budget::new(100, 1_000);
        assert_eq!(admitted(&budget, &key("ci"), 5_000, 1_000), 100);
        assert_eq!(budget.admit(key("ci"), Time(6_000)), Some(Some(900)));
        assert_eq!(budget.admit(key("ci"), Time(6_001)), Some(None));
    }

    #[test]
    fn one_caller_does_not_hide_the_lines_of_another() {
        let budget = Budget::new(20, 100);
        assert_eq!(admitted(&budget, &key("loud"), 5_000, 10_000), 20);
        // A token may have the name of the key.
        let token = Holder::Credential(ActorKind::Token, "issuer".into(), "loud".into());
        assert_eq!((admitted(&budget, &key("quiet"), 5_000, 3), admitted(&budget, &token, 5_000, 3)), (3, 3));
        assert_eq!(budget.admit(key("quiet"), Time(6_000)), Some(None), "nothing of it was suppressed");
        assert_eq!(budget.admit(key("loud"), Time(7_000)), Some(Some(9_980)));
    }

    #[test]
    fn the_number_of_callers_is_bounded_and_nothing_suppressed_is_forgotten() {
        let budget = Budget::new(1, 10);
        let callers = 5 * MAX_HOLDERS as u64;
        let admitted = (0..callers).filter_map(|n| budget.admit(key(&n.to_string()), Time(5_000))).count();
        assert_eq!(admitted, 10);
        assert!(budget.used.lock().unwrap().holders.len() <= MAX_HOLDERS + 1);
        // Most have lost their places, and the next line counts them; the others wait for lines of their own.
        let counted = budget.admit(key("next"), Time(6_000)).unwrap().unwrap();
        let waiting: u64 = budget.used.lock().unwrap().holders.values().map(|own| own.suppressed).sum();
        assert_eq!(counted + waiting, callers - 10);
        assert!(counted > waiting);
    }
}
