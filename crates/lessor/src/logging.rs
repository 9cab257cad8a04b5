//! Log lines: for people on a terminal, JSON otherwise. `LESSOR_LOG` chooses the level and the modules.

use std::io::IsTerminal;

use tracing_appender::non_blocking::{NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::EnvFilter;

/// Lines that may wait to be written. When nobody reads standard error, further ones are dropped: a full pipe must
/// never hold up the work.
const MAX_WAITING_LINES: usize = 65_536;

/// Logs to standard error from here on, at the usual level unless told otherwise, and writes what still waits when the guard is dropped.
#[must_use = "lines are lost when the guard is dropped too early"]
pub fn start(usual: &str) -> WorkerGuard {
    let filter = filter(usual);
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

fn filter(usual: &str) -> EnvFilter {
    let Some(wanted) = std::env::var("LESSOR_LOG").ok().filter(|wanted| !wanted.is_empty()) else {
        return EnvFilter::new(usual);
    };
    EnvFilter::try_new(&wanted).unwrap_or_else(|error| {
        eprintln!("lessor: LESSOR_LOG={wanted} is not understood ({error}); logging at {usual}");
        EnvFilter::new(usual)
    })
}
