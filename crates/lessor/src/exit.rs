//! Exit codes, so that scripts and service managers know why the program ended.

use std::process::ExitCode;

use coordinator::{Failure, StartError};

/// The command failed; the message says why.
pub(crate) const FAILED: u8 = 1;
/// The command line or an input file is not valid.
const USAGE: u8 = 2;
/// The data directory was refused: it is damaged, foreign, in use, not readable or writable, or of a newer version.
/// Nothing was changed.
pub(crate) const REFUSED: u8 = 3;
/// The ledger failed while running, or during takeover. The next start finds out what is on disk.
const LEDGER_FAILED: u8 = 4;
/// The command worked, but the task that it waited for ended FAILED or DEAD.
pub(crate) const TASK_FAILED: u8 = 5;
/// `lessor run`: the command timed out. The same code as of `timeout`.
pub(crate) const COMMAND_TIMED_OUT: u8 = 124;
/// `lessor run`: the command was not run to its end, or its outputs could not be written. Lower codes are the command's
/// own; `env` and `timeout` use this code for the same case.
pub(crate) const COMMAND_NOT_RUN: u8 = 125;

pub(crate) fn report(error: &anyhow::Error) -> ExitCode {
    eprintln!("lessor: {}", format_error(error));
    let failed_at_start = matches!(error.downcast_ref(), Some(StartError::Failed(_)));
    if let Some(not_run) = error.downcast_ref::<crate::run::Error>() {
        return ExitCode::from(not_run.exit_code());
    }
    if matches!(error.downcast_ref(), Some(cluster::Error::NameTaken { .. })) {
        ExitCode::from(FAILED)
    } else if error.is::<Failure>() || error.is::<cluster::Error>() || failed_at_start {
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

/// The error and its causes, without repetition: many errors quote their cause in their own message.
fn format_error(error: &anyhow::Error) -> String {
    let mut text = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !text.ends_with(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("cannot read x: {0}")]
    struct Quoting(#[source] std::io::Error);

    #[test]
    fn a_cause_is_printed_once() {
        let denied = || std::io::Error::other("denied");
        assert_eq!(format_error(&Quoting(denied()).into()), "cannot read x: denied");
        assert_eq!(
            format_error(&anyhow::Error::new(Quoting(denied())).context("no")),
            "no: cannot read x: denied"
        );
        assert_eq!(format_error(&anyhow::Error::new(denied()).context("no")), "no: denied");
    }
}
