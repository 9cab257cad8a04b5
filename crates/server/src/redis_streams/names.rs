//! The names of keys in Redis. All keys of one queue have the same hash tag, so that Redis Cluster keeps them together.

use std::fmt::Write;
use std::sync::Arc;

use authority::QueueKey;

/// A set of the names of all streams, by which a start finds streams whose tasks ended while no server ran.
pub(super) const STREAMS: &str = "lessor:streams";
/// The id of the ledger that the streams belong to.
pub(super) const LEDGER: &str = "lessor:ledger";
const PREFIX: &str = "lessor:{";

/// `lessor:{tenant/workspace/queue}`. The characters `%`, `/`, `{` and `}` of a name are percent-encoded, so that no two queues
/// have the same stream.
pub(super) fn stream(queue: &QueueKey) -> Arc<str> {
    let mut key = String::from(PREFIX);
    for (n, name) in [&queue.scope.tenant, &queue.scope.workspace, &queue.name].into_iter().enumerate() {
        if n > 0 {
            key.push('/');
        }
        for character in name.chars() {
            match character {
                '%' | '/' | '{' | '}' => {
                    let _ = write!(key, "%{:02X}", u32::from(character));
                }
                _ => key.push(character),
            }
        }
    }
    key.push('}');
    key.into()
}

/// Whether a name in the set of streams can be a stream of ours.
pub(super) fn is_stream(name: &str) -> bool {
    name.starts_with(PREFIX) && name.ends_with('}')
}

/// Names the last change of a stream that was applied.
pub(super) fn marker(stream: &str) -> String {
    format!("{stream}:applied")
}

/// Where a stream is built before it replaces the old one.
pub(super) fn rebuilt(stream: &str) -> String {
    format!("{stream}:rebuilt")
}

#[cfg(test)]
mod tests {
    use authority::Scope;

    use super::*;

    fn name(tenant: &str, workspace: &str, queue: &str) -> String {
        let scope = Scope { tenant: tenant.into(), workspace: workspace.into() };
        stream(&QueueKey { scope, name: queue.into() }).to_string()
    }

    #[test]
    fn a_stream_is_named_by_tenant_workspace_and_queue() {
        assert_eq!(name("default", "default", "mail"), "lessor:{default/default/mail}");
        assert!(is_stream(&name("a", "b", "c")));
        assert!(!is_stream(&marker(&name("a", "b", "c"))));
    }

    #[test]
    fn no_two_queues_share_a_stream() {
        assert_eq!(name("a/b", "c", "d}{e%"), "lessor:{a%2Fb/c/d%7D%7Be%25}");
        assert_ne!(name("a/b", "c", "d"), name("a", "b/c", "d"));
        assert_ne!(name("a%2Fb", "c", "d"), name("a/b", "c", "d"));
    }
}
