//! Shows the progress of a run: temporary bars on a terminal, and lines that stay.

use std::time::{Duration, Instant};

use indicatif::{HumanBytes, ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::client::show::{note, text::clean};

/// How often a bar moves while nothing happens.
const TICK: Duration = Duration::from_millis(120);

/// Cheap to clone.
#[derive(Clone)]
pub(super) struct Progress {
    bar: ProgressBar,
    is_quiet: bool,
    begun: Instant,
}

impl Progress {
    /// Standard error that is not a terminal gets lines only.
    pub(super) fn new(is_quiet: bool) -> Progress {
        let target = if is_quiet { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
        Progress { bar: ProgressBar::with_draw_target(None, target), is_quiet, begun: Instant::now() }
    }

    #[cfg(test)]
    pub(super) fn silent() -> Progress {
        Progress::new(true)
    }

    /// Starts a bar over this many bytes.
    pub(super) fn begin(&self, what: &str, total_bytes: u64) {
        self.bar.set_message(what.to_owned());
        self.bar.set_length(total_bytes);
        self.style("{msg} {wide_bar} {binary_bytes} of {binary_total_bytes}");
        self.bar.reset();
    }

    pub(super) fn advance(&self, bytes: u64) {
        self.bar.inc(bytes);
    }

    /// Starts a spinner.
    pub(super) fn wait(&self, what: &str) {
        self.bar.set_message(clean(what));
        self.style("{spinner} {msg} {elapsed}");
        self.bar.reset();
        self.bar.enable_steady_tick(TICK);
    }

    /// A line that stays.
    pub(super) fn line(&self, text: impl std::fmt::Display) {
        if !self.is_quiet {
            self.bar.suspend(|| note(format_args!("lessor: {text}")));
        }
    }

    /// A line that stays, unless a bar is visible.
    pub(super) fn line_unless_seen(&self, text: impl std::fmt::Display) {
        if self.bar.is_hidden() {
            self.line(text);
        }
    }

    /// A line that stays, even with `--quiet`.
    pub(super) fn warn(&self, text: impl std::fmt::Display) {
        self.bar.suspend(|| note(format_args!("lessor: {text}")));
    }

    /// Removes the bar, so that others can write to the terminal.
    pub(super) fn end(&self) {
        self.bar.disable_steady_tick();
        self.bar.finish_and_clear();
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.begun.elapsed()
    }

    fn style(&self, template: &str) {
        self.bar.disable_steady_tick();
        if let Ok(style) = ProgressStyle::with_template(template) {
            self.bar.set_style(style);
        }
    }
}

/// A time for people.
pub(super) fn took(time: Duration) -> String {
    match time.as_millis() {
        ms @ 0..1_000 => format!("{ms} ms"),
        ms @ 1_000..60_000 => format!("{}.{} s", ms / 1_000, ms % 1_000 / 100),
        ms => format!("{} min {} s", ms / 60_000, ms % 60_000 / 1_000),
    }
}

pub(super) fn size(bytes: u64) -> String {
    HumanBytes(bytes).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_told_in_the_unit_that_fits() {
        for (ms, told) in [(0, "0 ms"), (999, "999 ms"), (1_250, "1.2 s"), (61_000, "1 min 1 s")] {
            assert_eq!(took(Duration::from_millis(ms)), told);
        }
    }
}
