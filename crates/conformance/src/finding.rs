//! Why a check did not pass.

/// What was found, in words for whoever builds the coordinator.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Finding {
    /// The coordinator does not do what the contract says.
    #[error("{0}")]
    Broken(String),
    /// It could not be found out, and that is not the contract's fault.
    #[error("{0}")]
    Skipped(String),
}

impl Finding {
    pub(crate) fn broken(what: impl Into<String>) -> Finding {
        Finding::Broken(what.into())
    }
}

/// What the contract says must hold.
pub(crate) fn must(holds: bool, what: impl FnOnce() -> String) -> Result<(), Finding> {
    if holds { Ok(()) } else { Err(Finding::Broken(what())) }
}

/// A text of the coordinator's, short enough for one line of a report.
pub(crate) fn short(text: &str) -> String {
    const MAX_CHARS: usize = 300;
    match text.char_indices().nth(MAX_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
