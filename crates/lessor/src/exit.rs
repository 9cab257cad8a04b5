//! How the program ends, so that scripts and service managers can tell why.

use std::process::ExitCode;

use coordinator::{Failure, StartError};

/// Something did not work; the message says what.
pub const FAILED: u8 = 1;
/// The command was not understood, or what it was given to read was not.
const USAGE: u8 = 2;
/// The data directory was refused: it is damaged, foreign, in use, not readable or writable, or of a newer version.
/// Nothing was changed.
pub const REFUSED: u8 = 3;
/// The ledger failed while running, or while it was taken over. The next start finds out what is on disk.
const LEDGER_FAILED: u8 = 4;
/// The command worked, but the task that it waited for ended FAILED or DEAD.
pub const TASK_FAILED: u8 = 5;
/// `lessor run`: the command took longer than it may. As `timeout` has it.
pub const COMMAND_TIMED_OUT: u8 = 124;
/// `lessor run`: the command was not run to its end, or its outputs could not be written. The codes below are the
/// command's own, and this one is seldom used by any; `env` and `timeout` have it for the same.
pub const COMMAND_NOT_RUN: u8 = 125;

/// Says what went wrong, and with which code to end.
pub fn report(error: &anyhow::Error) -> ExitCode {
    eprintln!("lessor: {}", words(error));
    let failed_at_start = matches!(error.downcast_ref(), Some(StartError::Failed(_)));
    if let Some(not_run) = error.downcast_ref::<crate::run::Error>() {
        return ExitCode::from(not_run.exit_code());
    }
    if error.is::<Failure>() || failed_at_start {
        ExitCode::from(LEDGER_FAILED)
    } else if error.is::<StartError>()
        || error.is::<crate::data_dir::Refused>()
        || crate::content::is_refusal(error)
        || crate::log::is_refusal(error)
    {
        ExitCode::from(REFUSED)
    } else if error.is::<crate::config::file::Invalid>()
        || error.downcast_ref::<crate::client::Error>().is_some_and(crate::client::Error::is_usage)
    {
        ExitCode::from(USAGE)
    } else {
        ExitCode::from(FAILED)
    }
}

/// The error and its causes, each said once: many an error quotes its cause, and names it as its cause too.
fn words(error: &anyhow::Error) -> String {
    let mut words = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !words.ends_with(&cause) {
            words = format!("{words}: {cause}");
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("cannot read x: {0}")]
    struct Quoting(#[source] std::io::Error);

    #[test]
    fn a_cause_is_said_once() {
        let denied = || std::io::Error::other("denied");
        assert_eq!(words(&Quoting(denied()).into()), "cannot read x: denied");
        assert_eq!(words(&anyhow::Error::new(Quoting(denied())).context("no")), "no: cannot read x: denied");
        assert_eq!(words(&anyhow::Error::new(denied()).context("no")), "no: denied");
    }
}
