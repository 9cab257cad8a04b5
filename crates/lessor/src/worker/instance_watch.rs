//! Learns from the coordinator which instances have executions, for a worker in a process of its own that serves all of
//! them.

use std::time::Duration;

use anyhow::Result;
use authority::Scope;
use credentials::Credentials;
use lessor_sdk::protocol::{ANSWER_TIMEOUT, Address, Backoff, Transport};
use tokio::sync::mpsc;
use tokio::time::sleep;
use wire::{DEFAULT_SCOPE_NAME, InstanceList, WaitInstances};

/// How long the coordinator may hold a request. Afterwards all instances are sent again.
const WAIT: Duration = Duration::from_secs(30);

/// Sends every instance that the coordinator knows, until the receiver is gone. Another server than Lessor has no such
/// list, and then only the unnamed instance is served.
pub(super) async fn watch(server_url: &str, credentials: Credentials, to: mpsc::Sender<Scope>) -> Result<()> {
    let address = Address { url: Some(server_url.to_owned()), credentials, ..Address::default() };
    let transport = Transport::new(&address)?;
    let mut backoff = Backoff::unlimited();
    let (mut known, mut has_failed) = (0, false);
    loop {
        let query = WaitInstances { known: Some(known), wait_ms: Some(WAIT.as_millis() as u64) };
        let request = transport.get(&["instances"], &query)?;
        let answer = transport.try_once(&request, WAIT + ANSWER_TIMEOUT).await;
        let answer = answer.map_err(|fault| fault.why).and_then(|answer| {
            let parsed =
                if answer.is_success() { answer.parse::<InstanceList>() } else { Err(answer.refusal()) };
            parsed.map_err(|error| error.to_string())
        });
        let instances = match answer {
            Ok(InstanceList { instances }) => instances,
            Err(why) => {
                if !std::mem::replace(&mut has_failed, true) {
                    tracing::warn!(why, "no list of instances; named instances are served once there is one");
                }
                known = 0;
                sleep(backoff.next_delay(None).unwrap_or(WAIT)).await;
                continue;
            }
        };
        has_failed = false;
        backoff = Backoff::unlimited();
        known = instances.len();
        for workspace in instances {
            let scope = Scope { tenant: DEFAULT_SCOPE_NAME.into(), workspace: workspace.into() };
            if to.send(scope).await.is_err() {
                return Ok(());
            }
        }
    }
}
