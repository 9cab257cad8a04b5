//! The reason why a check did not pass.

/// The reason, for the developers of the coordinator.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Finding {
    /// The coordinator violates the contract.
    #[error("{0}")]
    Broken(String),
    /// The requirement could not be checked.
    #[error("{0}")]
    Skipped(String),
}

impl Finding {
    pub(crate) fn broken(what: impl Into<String>) -> Finding {
        Finding::Broken(what.into())
    }
}

/// Fails with a message unless the condition holds.
pub(crate) fn must(holds: bool, what: impl FnOnce() -> String) -> Result<(), Finding> {
    if holds { Ok(()) } else { Err(Finding::Broken(what())) }
}

/// A text of the coordinator, shortened to one line of a report.
pub(crate) fn short(text: &str) -> String {
    const MAX_CHARS: usize = 300;
    match text.char_indices().nth(MAX_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
