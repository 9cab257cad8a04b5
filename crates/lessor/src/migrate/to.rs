//! The ledger that a migration fills.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use ledger::file::{self, FileLedger, Inspection, OffsetFiles};
use ledger::postgres::{self, Import};
use ledger::{
    Batch, ClusterId, Error, Ledger, Position, ProjectionOffsets, Reader, SnapshotError, SnapshotSink,
};

use crate::cluster_key::ClusterKey;
use crate::config::postgres_server;
use crate::data_dir::DataDir;
use crate::ledger_backend::Place;

/// A ledger that nobody can open before it is finished.
pub(super) enum Target {
    Files { data: PathBuf, temporary: PathBuf, ledger: Box<FileLedger> },
    Postgres(Box<Import>),
}

impl Target {
    pub(super) fn begin(
        place: &Place,
        cluster: ClusterId,
        first: Position,
        key: &ClusterKey,
        unsafe_no_sync: bool,
    ) -> Result<Target> {
        match place {
            Place::File(data) => {
                let temporary = DataDir::begin_migration(data, cluster)?;
                let options = file::Options { create: Some(cluster), first, ..file::Options::default() };
                let (ledger, _) = FileLedger::open_dir(&temporary, options)
                    .map_err(Error::from)
                    .with_context(|| format!("cannot create a ledger in {}", data.display()))?;
                Ok(Target::Files { data: data.clone(), temporary, ledger: Box::new(ledger) })
            }
            Place::Postgres(url) => {
                let mut server = postgres_server(url)?;
                server.unsafe_no_sync = unsafe_no_sync;
                let address = server.address();
                let cluster = postgres::Cluster { id: cluster, shards: 1, key_print: key.print() };
                let import = Import::begin(server, cluster, first)
                    .with_context(|| format!("cannot migrate to {address}"))?;
                Ok(Target::Postgres(Box::new(import)))
            }
        }
    }

    pub(super) fn append(&mut self, batch: &Batch) -> Result<()> {
        match self {
            Target::Files { ledger, .. } => Ok(ledger.append(batch)?),
            Target::Postgres(import) => Ok(import.append(batch)?),
        }
    }

    pub(super) fn flush(&mut self) -> Result<()> {
        match self {
            Target::Files { .. } => Ok(()),
            Target::Postgres(import) => Ok(import.flush()?),
        }
    }

    pub(super) fn begin_snapshot(&self, begin: Position) -> Result<Box<dyn SnapshotSink>, SnapshotError> {
        match self {
            Target::Files { ledger, .. } => ledger.begin_snapshot(begin),
            Target::Postgres(import) => import.begin_snapshot(begin),
        }
    }

    pub(super) fn save_offset(&self, projection: &str, at: Position) -> Result<()> {
        match self {
            Target::Files { data, .. } => Ok(offsets(data)?.save(projection, at, 0)?),
            Target::Postgres(import) => Ok(import.offsets().save(projection, at, import.epoch())?),
        }
    }

    /// Reads what was stored.
    pub(super) fn reader(&self) -> Result<Box<dyn Reader>> {
        match self {
            Target::Files { temporary, .. } => {
                Ok(Box::new(Inspection::open_dir(temporary).map_err(Error::from)?))
            }
            Target::Postgres(import) => Ok(Box::new(import.reader())),
        }
    }

    /// Makes it a ledger that servers open.
    pub(super) fn finish(self, key: &ClusterKey) -> Result<()> {
        match self {
            Target::Files { data, temporary, ledger } => {
                drop(ledger);
                // Opened as a server will do, once, before it is there for servers.
                drop(FileLedger::open_dir(&temporary, file::Options::default()).map_err(Error::from)?);
                // The directory of the offsets exists beside every ledger.
                offsets(&data)?;
                DataDir::finish_migration(&data, &key.lease_key())
            }
            Target::Postgres(import) => Ok(import.finish()?),
        }
    }
}

fn offsets(data: &Path) -> Result<OffsetFiles, Error> {
    Ok(OffsetFiles::open_dir(&data.join(file::OFFSETS))?)
}
