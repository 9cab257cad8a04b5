//! The instances that have executions, for workers that serve all instances.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use authority::Scope;
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;
use wire::DEFAULT_SCOPE_NAME;

/// Most instances of a tenant that are listed: any client may name any instance.
const MAX_INSTANCES_PER_TENANT: usize = 64;
/// Most instances of all tenants. For a further one, the tenant that has most loses one until its next execution there.
const MAX_INSTANCES: usize = 4_096;

/// The workspaces of each tenant.
type Known = BTreeMap<Arc<str>, BTreeSet<Arc<str>>>;

/// Soft state: an instance is known from its first execution after a start.
#[derive(Clone, Debug, Default)]
pub struct Instances {
    known: Arc<watch::Sender<Known>>,
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
        let Scope { tenant, workspace } = scope;
        let is_known = |known: &Known| known.get(tenant).is_some_and(|mine| mine.contains(workspace));
        if **workspace == *DEFAULT_SCOPE_NAME || is_known(&self.known.borrow()) {
            return;
        }
        self.known.send_if_modified(|known| {
            let of_tenant = known.get(tenant).map_or(0, BTreeSet::len);
            if of_tenant >= MAX_INSTANCES_PER_TENANT {
                return false;
            }
            if known.values().map(BTreeSet::len).sum::<usize>() >= MAX_INSTANCES {
                make_room(known);
            }
            known.entry(tenant.clone()).or_default().insert(workspace.clone())
        });
    }

    /// The named instances of a tenant. Waits for a while as long as there are exactly `known`.
    pub(crate) async fn list(&self, tenant: &str, known: Option<usize>, wait: Duration) -> Vec<String> {
        let of_tenant = |all: &Known| -> Vec<String> {
            let named = all.get(tenant).into_iter().flatten();
            named.map(|workspace| workspace.to_string()).collect()
        };
        let mut changes = self.known.subscribe();
        let changed = changes.wait_for(|all| Some(of_tenant(all).len()) != known);
        // Whether it changed or the time is over, the list is as it is now.
        drop(timeout(wait, changed).await.map(|changed| changed.map(drop)));
        of_tenant(&self.known.borrow())
    }
}

/// Drops an instance of the tenant that has most.
fn make_room(known: &mut Known) {
    let most = known.iter().max_by_key(|(_, workspaces)| workspaces.len());
    let Some(tenant) = most.map(|(tenant, _)| tenant.clone()) else { return };
    if let Some(workspaces) = known.get_mut(&tenant) {
        workspaces.pop_first();
        if workspaces.is_empty() {
            known.remove(&tenant);
        }
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

    /// Sixty-four tenants with sixty-four instances each locked out all others until a restart.
    #[tokio::test]
    async fn many_tenants_that_fill_the_list_do_not_lock_out_another() {
        let instances = Instances::default();
        for n in 0..MAX_INSTANCES {
            let tenant = format!("t{}", n / MAX_INSTANCES_PER_TENANT);
            instances.announce(&scope(&tenant, &n.to_string()));
        }
        instances.announce(&scope("another", "production"));
        assert_eq!(instances.list("another", None, Duration::ZERO).await, ["production"]);
        let all: usize = instances.known.borrow().values().map(BTreeSet::len).sum();
        assert_eq!(all, MAX_INSTANCES);
    }
}
