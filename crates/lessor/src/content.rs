//! Opens the content store and the action cache beside the ledger, or those of a content server.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use authority::Scope;
use blobs::{ActionCache, Blobs, Local, OpenError, Options, ReadLimiter, Store, Tenant};
use reapi_client::{ContentServer, MAX_READS};
use server::Metrics;
use server::reapi::{ActionCacheWriter, Content, Instances, Results};
use tokio::sync::mpsc;

use crate::config::Config;
use crate::data_dir::{DataDir, Refused};

/// The default directory of the content store, in the data directory.
const DIRECTORY: &str = "content";

/// How long a reader of a large blob waits while too many are read from the content server.
const MAX_WAIT_FOR_A_READ: Duration = Duration::from_secs(10);

/// The stores in their directories, for the end of the process.
pub(crate) struct Stores(Vec<Arc<Local>>);

impl Stores {
    /// Makes what was stored safe from a power loss, and the next start fast. The last act of a clean shutdown.
    pub(crate) async fn close(self) {
        let checkpoints = tokio::task::spawn_blocking(move || {
            for store in self.0 {
                if let Err(error) = store.store().checkpoint() {
                    tracing::warn!(%error, "the content store could not be checkpointed");
                }
            }
        });
        if let Err(error) = checkpoints.await {
            tracing::error!(%error, "the thread that checkpoints the content store failed");
        }
    }
}

/// Opens the stores, and the projection that writes results to the action cache. `instances` receives each instance that
/// has executions.
pub(crate) fn open(
    data: &DataDir,
    config: &Config,
    metrics: &Metrics,
    instances: Option<mpsc::Sender<Scope>>,
) -> Result<(Content, ActionCacheWriter, Stores)> {
    let own = data.path().join(DIRECTORY);
    let storage = &config.storage;
    let cas = storage.cas.root_dir.as_ref().unwrap_or(&own);
    let local = open_at(cas, config).map_err(|error| match error.downcast_ref() {
        // The process that holds the content of a data directory holds the whole directory.
        Some(OpenError::InUse(path)) if *path == own => {
            Refused::InUse(data.path().display().to_string()).into()
        }
        _ => error,
    })?;
    let mut stores = Stores(vec![local.clone()]);
    let (settings, instances) = (config.reapi(), Instances::new(instances));
    if let Some((url, connector)) = storage.content_server()? {
        let server = ContentServer::new(&url, connector, local).context("storage.url cannot be used")?;
        let server = Arc::new(server);
        let limited = ReadLimiter::with_limit(server.clone(), MAX_READS, MAX_WAIT_FOR_A_READ);
        let results = Results::counted(server.clone() as Arc<dyn ActionCache>, metrics.clone());
        let cache_writer = ActionCacheWriter::new(results.clone(), tokio::runtime::Handle::current());
        let blobs = metrics.blobs(Arc::new(limited) as Arc<dyn Blobs>);
        return Ok((
            Content { blobs, action_cache: server, results, settings, instances },
            cache_writer,
            stores,
        ));
    }
    let results = match storage.action_cache.root_dir.as_ref().filter(|other| *other != cas) {
        None => local.clone(),
        Some(other) => {
            let results = open_at(other, config)?;
            stores.0.push(results.clone());
            results
        }
    };
    let results = Results::counted(results as Arc<dyn ActionCache>, metrics.clone());
    let cache_writer = ActionCacheWriter::new(results.clone(), tokio::runtime::Handle::current());
    let blobs = metrics.blobs(Arc::new(ReadLimiter::new(local.clone())) as Arc<dyn Blobs>);
    let action_cache = local as Arc<dyn ActionCache>;
    Ok((Content { blobs, action_cache, results, settings, instances }, cache_writer, stores))
}

/// Whether the directory was refused and nothing was changed.
pub(crate) fn is_refusal(error: &anyhow::Error) -> bool {
    use OpenError::{Damaged, Foreign, InUse, Io, NewerVersion};
    match error.downcast_ref() {
        Some(Foreign { .. } | Damaged(_) | NewerVersion { .. } | InUse(_)) => true,
        // A full disk says nothing about who owns the directory.
        Some(Io { source, .. }) => source.kind() != ErrorKind::StorageFull,
        _ => false,
    }
}

fn open_at(directory: &Path, config: &Config) -> Result<Arc<Local>> {
    let storage = &config.storage;
    let options = Options {
        cap_bytes: storage.max_mib.saturating_mul(1 << 20),
        tenant_quotas: config.limits.of_blobs(),
        keep_free_bytes: storage.min_free_mib.saturating_mul(1 << 20),
        ..Options::default()
    };
    let store = Store::open(directory, options)
        .with_context(|| format!("cannot open the content store in {}", directory.display()))?;
    let tenants = storage.shared_cache_tenants.iter().map(|name| Tenant::new(name));
    Ok(Arc::new(Local::new(store).with_shared_cache(tenants.collect::<Result<Vec<_>, _>>()?)))
}
