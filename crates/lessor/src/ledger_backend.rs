//! The storage backend of the ledger. No other file of the program names a backend.

use std::path::Path;

use anyhow::{Context, Result};
use ledger::{ClusterId, Error, Reader, Storage, file};

use crate::config::Data;
use crate::data_dir::LEDGER;
use crate::serving::Start;

/// What the backend writes into a data directory beside the ledger, once the ledger is initialized.
pub(crate) const BESIDE_LEDGER: &str = file::OFFSETS;

/// Whether a directory holds an initialized ledger.
pub(crate) fn is_initialized(ledger: &Path) -> bool {
    file::is_initialised(ledger)
}

/// Opens the ledger of a server, with notices for the operator about what was found.
pub(crate) fn open(data: &Path, options: file::Options) -> Result<(Storage, Vec<String>), Error> {
    let (storage, report) = file::open_data_dir(data, options)?;
    Ok((storage, report.notices()))
}

/// The options of the backend, with an id in case that the ledger is created.
pub(crate) fn options(data: &Data, start: &Start) -> Result<file::Options> {
    let mut cluster = [0; 16];
    getrandom::fill(&mut cluster)
        .map_err(|error| anyhow::anyhow!("the system has no random numbers: {error}"))?;
    Ok(file::Options {
        create: start.may_create.then_some(ClusterId(cluster)),
        segment_bytes: data.segment_mib << 20,
        preallocate_bytes: data.preallocate_mib.map_or(u64::MAX, |mib| mib.saturating_mul(1 << 20)),
        history_max_age_ms: data.history_days.saturating_mul(24 * 60 * 60 * 1_000),
        history_max_bytes: data.history_mib.saturating_mul(1 << 20),
        drop_unverified_tail: start.drop_unverified_tail,
        ..file::Options::default()
    })
}

/// Opens the ledger in a data directory for reading, without its lock. The ledger's own directory does as well.
pub(crate) fn inspect(data: &Path) -> Result<Box<dyn Reader>> {
    let inner = data.join(LEDGER);
    let directory = if inner.is_dir() { &inner } else { data };
    match file::Inspection::open_dir(directory) {
        Ok(inspection) => Ok(Box::new(inspection)),
        Err(error) => {
            let context = match error {
                file::Error::NotInitialised => {
                    format!(
                        "{} holds no ledger; name the server's data directory with --data",
                        data.display()
                    )
                }
                _ => format!("cannot read the ledger in {}", directory.display()),
            };
            Err(Error::from(error)).context(context)
        }
    }
}
