//! What happened, as a hash that two runs of one seed must share, and as lines for people when they are wanted.

use std::collections::VecDeque;

/// Lines kept of a failing history.
const KEPT_LINES: usize = 160;

#[derive(Default)]
pub struct Trace {
    hash: u64,
    lines: Option<VecDeque<String>>,
    pub events: u64,
}

impl Trace {
    pub fn silent() -> Trace {
        Trace::default()
    }

    pub fn readable() -> Trace {
        Trace { lines: Some(VecDeque::new()), ..Trace::default() }
    }

    pub fn hash(&self) -> u64 {
        self.hash
    }

    pub fn lines(&self) -> impl Iterator<Item = &String> {
        self.lines.iter().flatten()
    }

    /// Notes an event. The words say what is hashed; the text is made only when somebody reads it.
    pub fn note(&mut self, words: &[u64], text: impl FnOnce() -> String) {
        self.events += 1;
        for word in words {
            self.hash = (self.hash ^ word).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(17);
        }
        if let Some(lines) = &mut self.lines {
            if lines.len() == KEPT_LINES {
                lines.pop_front();
            }
            lines.push_back(text());
        }
    }
}
