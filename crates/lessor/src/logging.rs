//! Sets up logging: text on a terminal, JSON otherwise. `LESSOR_LOG` sets the level of each module.

use std::io::IsTerminal;

use tracing_appender::non_blocking::{NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::EnvFilter;

/// The number of lines that may wait to be written. If nobody reads standard error, further lines are dropped: a full
/// pipe must never block the work.
const MAX_WAITING_LINES: usize = 65_536;

/// Starts logging to standard error, by default at this level. Dropping the guard writes the lines that still wait.
#[must_use = "lines are lost when the guard is dropped too early"]
pub(crate) fn start(default_level: &str) -> WorkerGuard {
    let filter = filter(default_level);
    let (writer, guard) = NonBlockingBuilder::default()
        .lossy(true)
        .buffered_lines_limit(MAX_WAITING_LINES)
        .finish(std::io::stderr());
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(writer).with_target(false);
    if std::io::stderr().is_terminal() {
        lines.init();
    } else {
        lines.json().flatten_event(true).init();
    }
    guard
}

fn filter(default_level: &str) -> EnvFilter {
    let Some(wanted) = std::env::var("LESSOR_LOG").ok().filter(|wanted| !wanted.is_empty()) else {
        return EnvFilter::new(default_level);
    };
    EnvFilter::try_new(&wanted).unwrap_or_else(|error| {
        eprintln!("lessor: LESSOR_LOG={wanted} is not valid ({error}); logging at {default_level}");
        EnvFilter::new(default_level)
    })
}
