//! The fields of an action whose meaning the protocol spreads over several messages.

use std::time::Duration;

use crate::InvalidMessage;
use crate::reapi::{Action, Command, Platform};

/// The time limit of the action's command; none when the action has no limit.
pub fn timeout(action: &Action) -> Result<Option<Duration>, InvalidMessage> {
    let Some(timeout) = &action.timeout else { return Ok(None) };
    match (u64::try_from(timeout.seconds), u32::try_from(timeout.nanos)) {
        (Ok(seconds), Ok(nanos)) => {
            let timeout = Duration::from_secs(seconds).saturating_add(Duration::from_nanos(nanos.into()));
            Ok(Some(timeout).filter(|timeout| !timeout.is_zero()))
        }
        _ => Err(InvalidMessage::new("the action's timeout must not be negative")),
    }
}

/// The platform that the action requires. Clients before version 2.2 name it in the command only.
#[allow(deprecated)]
pub fn platform<'a>(action: &'a Action, command: &'a Command) -> Option<&'a Platform> {
    action.platform.as_ref().or(command.platform.as_ref())
}
