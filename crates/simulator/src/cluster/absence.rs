//! When others could not hear of a node. It is what the surroundings did to the node, not what anybody has noticed.

/// Two absences with no more than this between them count as one: a node shows itself at its next look only.
const GAP_MS: u64 = 1_000;

/// The spans of true time in which a node could not show itself.
#[derive(Clone, Default)]
pub(crate) struct Absences(Vec<(u64, u64)>);

impl Absences {
    pub(crate) fn add(&mut self, from: u64, until: u64) {
        if from < until {
            self.0.push((from, until));
        }
    }

    /// The longest absence so far that was not over at `since`.
    pub(crate) fn longest(&self, since: u64, now: u64) -> u64 {
        let mut spans = self.0.clone();
        spans.sort_unstable();
        let mut merged: Vec<(u64, u64)> = Vec::new();
        for (from, until) in spans {
            match merged.last_mut().filter(|last| from <= last.1 + GAP_MS) {
                Some(last) => last.1 = last.1.max(until),
                None => merged.push((from, until)),
            }
        }
        let goes_on = merged.iter().filter(|(_, until)| until + GAP_MS >= since);
        goes_on.map(|(from, until)| now.min(*until).saturating_sub(*from)).max().unwrap_or(0)
    }
}
