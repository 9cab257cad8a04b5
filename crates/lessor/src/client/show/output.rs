//! Standard output. Colours reach terminals only, and not when NO_COLOR is set.

use std::fmt::Display;
use std::io::{ErrorKind, Write};

use anyhow::{Context, Result};

pub(crate) struct Output {
    to: anstream::AutoStream<std::io::Stdout>,
    /// Whether the reader has gone, as `head` does once it has seen enough.
    is_closed: bool,
}

impl Output {
    pub(crate) fn new() -> Output {
        Output { to: anstream::stdout(), is_closed: false }
    }

    pub(crate) fn line(&mut self, line: impl Display) -> Result<()> {
        self.print(format_args!("{line}\n"))
    }

    /// A reader that has gone needs nothing more: this is no error.
    pub(crate) fn print(&mut self, text: impl Display) -> Result<()> {
        match write!(self.to, "{text}").and_then(|()| self.to.flush()) {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => {
                self.is_closed = true;
                Ok(())
            }
            other => other.context("cannot write to standard output"),
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed
    }
}

/// Says something beside the output, for people only.
pub(crate) fn note(text: impl Display) {
    // Nothing depends on it: without standard error there is nobody to tell.
    let _ = writeln!(anstream::stderr(), "{text}");
}
