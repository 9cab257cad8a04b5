//! Opens the content store and the action cache beside the ledger.

use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result};
use authority::Scope;
use blobs::{ActionCache, Blobs, Local, OpenError, Options, ReadLimiter, Store};
use server::Metrics;
use server::reapi::{ActionCacheWriter, Content, Results, Settings};
use tokio::sync::mpsc;

use crate::data_dir::{DataDir, Refused};

/// The default directory of the content store, in the data directory.
const DIRECTORY: &str = "content";
pub(crate) const DEFAULT_CACHE_MIB: u64 = 50 * 1_024;

/// The settings of the content store and the action cache.
pub(crate) struct ContentOptions {
    pub cas: Option<PathBuf>,
    /// By default the directory of the content store.
    pub action_cache: Option<PathBuf>,
    /// Disk space for content; the least recently used content is evicted.
    pub cache_mib: u64,
    pub settings: Settings,
    /// Counts reads and writes of the stores.
    pub metrics: Metrics,
    /// Receives each instance that has executions.
    pub instances: Option<mpsc::Sender<Scope>>,
}

impl Default for ContentOptions {
    fn default() -> ContentOptions {
        ContentOptions {
            cas: None,
            action_cache: None,
            cache_mib: DEFAULT_CACHE_MIB,
            settings: Settings::default(),
            metrics: Metrics::default(),
            instances: None,
        }
    }
}

/// Opens the stores, and makes what turns commits into entries of the action cache.
pub(crate) fn open(data: &DataDir, options: ContentOptions) -> Result<(Content, ActionCacheWriter)> {
    let own = data.path().join(DIRECTORY);
    let cas = options.cas.unwrap_or_else(|| own.clone());
    let local = open_at(&cas, options.cache_mib).map_err(|error| match error.downcast_ref() {
        // The process that holds the content of a data directory holds the whole directory.
        Some(OpenError::InUse(path)) if *path == own => {
            Refused::InUse(data.path().display().to_string()).into()
        }
        _ => error,
    })?;
    let results = match options.action_cache.filter(|other| *other != cas) {
        None => local.clone(),
        Some(other) => open_at(&other, options.cache_mib)?,
    };
    let metrics = &options.metrics;
    let results = Results::counted(results as Arc<dyn ActionCache>, metrics.clone());
    let keeper = ActionCacheWriter::new(results.clone(), tokio::runtime::Handle::current());
    let blobs = metrics.blobs(Arc::new(ReadLimiter::new(local.clone())) as Arc<dyn Blobs>);
    let action_cache = local as Arc<dyn ActionCache>;
    let (settings, instances) = (options.settings, options.instances);
    Ok((Content { blobs, action_cache, results, settings, instances }, keeper))
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

fn open_at(directory: &std::path::Path, cache_mib: u64) -> Result<Arc<Local>> {
    let options = Options { cap_bytes: cache_mib.saturating_mul(1 << 20), ..Options::default() };
    let store = Store::open(directory, options)
        .with_context(|| format!("cannot open the content store in {}", directory.display()))?;
    Ok(Arc::new(Local::new(store)))
}
