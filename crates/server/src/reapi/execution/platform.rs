//! The platform properties that an action requires of its worker (R37).

use std::collections::BTreeMap;
use std::sync::Arc;

use authority::Properties;
use execution::action;
use tonic::Status;

use crate::convert::names;
use crate::reapi::messages::{Action, Command};

pub(super) fn requirements(action: &Action, command: &Command) -> Result<Arc<Properties>, Status> {
    let mut pairs = BTreeMap::new();
    let platform = action::platform(action, command);
    for property in platform.map(|platform| &platform.properties).into_iter().flatten() {
        let before = pairs.insert(property.name.clone(), property.value.clone());
        if before.is_some_and(|value| value != property.value) {
            return Err(Status::invalid_argument(format!(
                "platform: {} is required with two different values, which no worker offers",
                property.name
            )));
        }
    }
    Ok(names::properties("platform", Some(&pairs))?)
}

/// Explains to people why no registered worker offers the required properties.
pub(super) fn explain(required: &Properties, offered: &[Arc<Properties>]) -> String {
    let nobody_offers: Vec<String> = required
        .iter()
        .filter(|(name, value)| {
            let one = Properties::new([((*name).clone(), (*value).clone())]);
            !offered.iter().any(|offered| one.satisfied_by(offered))
        })
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    match (offered.len(), nobody_offers.is_empty()) {
        (0, _) => {
            "no worker is registered for this instance: start one, or use another instance_name".to_owned()
        }
        (workers, false) => format!(
            "none of the {workers} registered workers offers {}: change the platform properties, or start a worker \
             that offers them",
            nobody_offers.join(", ")
        ),
        (workers, true) => {
            let all: Vec<String> = required.iter().map(|(name, value)| format!("{name}={value}")).collect();
            format!("none of the {workers} registered workers offers all of {} together", all.join(", "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reapi::messages::Platform;
    use crate::reapi::messages::platform::Property;

    fn platform(pairs: &[(&str, &str)]) -> Option<Platform> {
        let property =
            |(name, value): &(&str, &str)| Property { name: (*name).into(), value: (*value).into() };
        Some(Platform { properties: pairs.iter().map(property).collect() })
    }

    #[test]
    #[allow(deprecated)]
    fn r37_the_actions_platform_comes_before_the_commands() {
        let command = Command { platform: platform(&[("os", "old")]), ..Command::default() };
        let action = Action { platform: platform(&[("os", "new")]), ..Action::default() };
        let value = |action: &Action| {
            let required = requirements(action, &command).unwrap();
            required.iter().map(|(_, value)| value.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(value(&action), ["new"]);
        assert_eq!(value(&Action::default()), ["old"]);
    }

    #[test]
    fn the_explanation_names_the_property() {
        let required =
            Properties::new([(Arc::from("gpu"), Arc::from("1")), (Arc::from("os"), Arc::from("linux"))]);
        let linux = Arc::new(Properties::new([(Arc::from("os"), Arc::from("linux"))]));
        assert!(explain(&required, &[linux]).contains("offers gpu=1:"));
        assert!(explain(&required, &[]).contains("no worker is registered"));
    }
}
