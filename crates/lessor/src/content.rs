//! The content store and the action cache beside the ledger.

use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result};
use authority::Scope;
use blobs::{ActionCache, Blobs, Bounded, Local, OpenError, Options, Store};
use server::Metrics;
use server::reapi::{ActionCacheWriter, Content, Results, Settings};
use tokio::sync::mpsc;

use crate::data_dir::{DataDir, Refused};

/// Where it is kept when nothing else is said, below the data directory.
const DIRECTORY: &str = "content";
pub const DEFAULT_CACHE_MIB: u64 = 50 * 1_024;

/// What a server can be told about its content.
pub struct Place {
    pub cas: Option<PathBuf>,
    /// With the content when it is left out.
    pub action_cache: Option<PathBuf>,
    /// Disk space for content; what was not used for longest makes room.
    pub cache_mib: u64,
    pub settings: Settings,
    /// Where its use is counted.
    pub metrics: Metrics,
    /// Who hears of each instance that has executions.
    pub instances: Option<mpsc::Sender<Scope>>,
}

impl Default for Place {
    fn default() -> Place {
        Place {
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
pub fn open(data: &DataDir, place: Place) -> Result<(Content, ActionCacheWriter)> {
    let own = data.path().join(DIRECTORY);
    let cas = place.cas.unwrap_or_else(|| own.clone());
    let local = open_at(&cas, place.cache_mib).map_err(|error| match error.downcast_ref() {
        // Who has the content of a data directory has all of it.
        Some(OpenError::InUse(path)) if *path == own => {
            Refused::InUse(data.path().display().to_string()).into()
        }
        _ => error,
    })?;
    let results = match place.action_cache.filter(|other| *other != cas) {
        None => local.clone(),
        Some(other) => open_at(&other, place.cache_mib)?,
    };
    let metrics = &place.metrics;
    let results = Results::counted(results as Arc<dyn ActionCache>, metrics.clone());
    let keeper = ActionCacheWriter::new(results.clone(), tokio::runtime::Handle::current());
    let blobs = metrics.blobs(Arc::new(Bounded::new(local.clone())) as Arc<dyn Blobs>);
    let action_cache = metrics.action_cache(local as Arc<dyn ActionCache>);
    let (settings, instances) = (place.settings, place.instances);
    Ok((Content { blobs, action_cache, results, settings, instances }, keeper))
}

/// Whether the directory is not ours to use, and nothing was changed.
pub fn is_refusal(error: &anyhow::Error) -> bool {
    use OpenError::{Damaged, Foreign, InUse, Io, NewerVersion};
    match error.downcast_ref() {
        Some(Foreign { .. } | Damaged(_) | NewerVersion { .. } | InUse(_)) => true,
        // A full disk is no matter of whose the directory is.
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
