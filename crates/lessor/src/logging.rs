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
    let given = std::env::var("LESSOR_LOG").unwrap_or_default();
    parse(&given, default_level).unwrap_or_else(|error| {
        eprintln!("lessor: LESSOR_LOG={given} is not valid ({error}); logging at {default_level}");
        Targets::new().with_default(default_level)
    })
}

/// A level for everything, levels of modules, or both, separated by commas.
pub(crate) fn parse(given: &str, default_level: LevelFilter) -> Result<Targets, String> {
    let directives: Vec<_> = given.split(',').map(str::trim).filter(|part| !part.is_empty()).collect();
    if directives.is_empty() {
        return Ok(Targets::new().with_default(default_level));
    }
    match directives.iter().find(|directive| directive.contains(['[', '{', ' '])) {
        Some(unknown) => Err(format!("`{unknown}` is neither LEVEL nor MODULE=LEVEL")),
        None => directives.join(",").parse::<Targets>().map_err(|error| error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_and_levels_of_modules_are_understood() {
        let filter = |given| parse(given, LevelFilter::INFO).unwrap().to_string();
        assert_eq!(filter(""), "info");
        assert_eq!(filter(" , "), "info");
        assert_eq!(filter("debug,"), "debug");
        assert_eq!(filter("warn, coordinator=debug"), "coordinator=debug,warn");
    }

    #[test]
    fn filters_on_spans_and_fields_are_refused() {
        for given in ["server[request]=debug", "[{task=1}]=debug", "server=loud"] {
            assert!(parse(given, LevelFilter::INFO).is_err(), "{given}");
        }
    }
}
