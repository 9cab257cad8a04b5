//! Traces a run: a hash that two runs of one seed must share, and optionally lines for a reader.

use std::collections::VecDeque;

/// The last lines of a failing history that are printed.
const MAX_LINES: usize = 160;

#[derive(Default)]
pub(crate) struct Trace {
    hash: u64,
    lines: Option<VecDeque<String>>,
    pub events: u64,
}

impl Trace {
    pub(crate) fn silent() -> Trace {
        Trace::default()
    }

    pub(crate) fn readable() -> Trace {
        Trace { lines: Some(VecDeque::new()), ..Trace::default() }
    }

    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }

    pub(crate) fn lines(&self) -> impl Iterator<Item = &String> {
        self.lines.iter().flatten()
    }

    /// Adds an event. The values are hashed; the text is formatted only for a readable trace.
    pub(crate) fn note(&mut self, values: &[u64], text: impl FnOnce() -> String) {
        self.events += 1;
        for value in values {
            self.hash = (self.hash ^ value).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(17);
        }
        if let Some(lines) = &mut self.lines {
            if lines.len() == MAX_LINES {
                lines.pop_front();
            }
            lines.push_back(text());
        }
    }
}
