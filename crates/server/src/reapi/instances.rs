//! The instances that have executions, for workers that serve all instances.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use authority::Scope;
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;
use wire::DEFAULT_SCOPE_NAME;

/// Most instances of a tenant that are listed: any client may name any instance.
const MAX_INSTANCES_PER_TENANT: usize = 64;
/// Most instances of all tenants.
const MAX_INSTANCES: usize = 4_096;

/// Soft state: an instance is known from its first execution after a start.
#[derive(Clone, Debug, Default)]
pub struct Instances {
    known: Arc<watch::Sender<BTreeSet<Scope>>>,
    /// Receives the scope of every execution; it belongs to a worker in the same process.
    embedded: Option<mpsc::Sender<Scope>>,
}

impl Instances {
    pub fn new(embedded: Option<mpsc::Sender<Scope>>) -> Instances {
        Instances { known: Arc::default(), embedded }
    }

    /// Announces that an instance has executions. If the channel is full, the next execution announces it again.
    pub(super) fn announce(&self, scope: &Scope) {
        if let Some(embedded) = &self.embedded {
            let _ = embedded.try_send(scope.clone());
        }
        // Every worker serves the unnamed instance.
        if *scope.workspace == *DEFAULT_SCOPE_NAME || self.known.borrow().contains(scope) {
            return;
        }
        self.known.send_if_modified(|known| {
            let of_tenant = known.iter().filter(|other| other.tenant == scope.tenant).count();
            let is_full = of_tenant >= MAX_INSTANCES_PER_TENANT || known.len() >= MAX_INSTANCES;
            !is_full && known.insert(scope.clone())
        });
    }

    /// The named instances of a tenant. Waits for a while as long as there are exactly `known`.
    pub(crate) async fn list(&self, tenant: &str, known: Option<usize>, wait: Duration) -> Vec<String> {
        let of_tenant = |all: &BTreeSet<Scope>| -> Vec<String> {
            let named = all
                .iter()
                .filter(|scope| *scope.tenant == *tenant && *scope.workspace != *DEFAULT_SCOPE_NAME);
            named.map(|scope| scope.workspace.to_string()).collect()
        };
        let mut changes = self.known.subscribe();
        let changed = changes.wait_for(|all| Some(of_tenant(all).len()) != known);
        // Whether it changed or the time is over, the list is as it is now.
        drop(timeout(wait, changed).await.map(|changed| changed.map(drop)));
        of_tenant(&self.known.borrow())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scope(tenant: &str, workspace: &str) -> Scope {
        Scope { tenant: Arc::from(tenant), workspace: Arc::from(workspace) }
    }

    #[tokio::test]
    async fn a_waiting_worker_learns_of_a_new_instance_and_one_tenant_does_not_fill_the_list() {
        let instances = Instances::default();
        let waiting = instances.list("t", Some(0), Duration::from_secs(60));
        let announce = async {
            for n in 0..2 * MAX_INSTANCES_PER_TENANT {
                instances.announce(&scope("other", &n.to_string()));
            }
            instances.announce(&scope("t", DEFAULT_SCOPE_NAME));
            instances.announce(&scope("t", "production"));
        };
        let (listed, ()) = tokio::join!(waiting, announce);
        assert_eq!(listed, ["production"]);
        assert_eq!(instances.list("other", None, Duration::ZERO).await.len(), MAX_INSTANCES_PER_TENANT);
        assert_eq!(instances.list("t", Some(1), Duration::ZERO).await, ["production"]);
    }
}
