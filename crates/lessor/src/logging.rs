//! Sets up logging: text on a terminal, JSON otherwise. `LESSOR_LOG` sets the level of each module.

use std::io::IsTerminal;

use tracing::level_filters::LevelFilter;
use tracing_appender::non_blocking::{NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// The number of lines that may wait to be written. If nobody reads standard error, further lines are dropped: a full
/// pipe must never block the work.
const MAX_WAITING_LINES: usize = 65_536;

/// Starts logging to standard error, by default at this level. Dropping the guard writes the lines that still wait.
#[must_use = "lines are lost when the guard is dropped too early"]
pub(crate) fn start(default_level: LevelFilter) -> WorkerGuard {
    let (writer, guard) = NonBlockingBuilder::default()
        .lossy(true)
        .buffered_lines_limit(MAX_WAITING_LINES)
        .finish(std::io::stderr());
    let lines = tracing_subscriber::fmt::layer().with_writer(writer).with_target(false);
    let filtered = tracing_subscriber::registry().with(targets(default_level));
    if std::io::stderr().is_terminal() {
        filtered.with(lines).init();
    } else {
        filtered.with(lines.json().flatten_event(true)).init();
    }
    guard
}

fn targets(default_level: LevelFilter) -> Targets {
    let default = Targets::new().with_default(default_level);
    match std::env::var("LESSOR_LOG") {
        Ok(directives) if !directives.is_empty() => directives.parse().unwrap_or_else(|error| {
            eprintln!("lessor: LESSOR_LOG={directives} is not valid ({error}); logging at {default_level}");
            default
        }),
        _ => default,
    }
}
