//! The ledger that a migration copies.

use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use ledger::file::{self, FileLedger, Inspection, OffsetFiles};
use ledger::{ClusterId, Error, Position, Reader, postgres};

use crate::cluster_key::ClusterKey;
use crate::config::postgres_server;
use crate::data_dir::{self, LEDGER};
use crate::ledger_backend::Place;

/// A ledger that nobody writes to.
pub(super) struct Source {
    pub reader: Box<dyn Reader>,
    pub cluster: ClusterId,
    /// How far each projection has applied the ledger.
    pub offsets: Vec<(String, Position)>,
    kind: Kind,
}

enum Kind {
    /// The lease key of the directory, and the lock that keeps servers away.
    Files {
        key: ClusterKey,
        _lock: Box<FileLedger>,
    },
    Postgres {
        key_print: [u8; 16],
    },
}

impl Source {
    pub(super) fn open(place: &Place, unsafe_no_sync: bool) -> Result<Source> {
        match place {
            Place::File(data) => Source::open_files(data)
                .with_context(|| format!("cannot copy the ledger in {}", data.display())),
            Place::Postgres(url) => {
                let mut server = postgres_server(url)?;
                server.unsafe_no_sync = unsafe_no_sync;
                let address = server.address();
                Source::open_postgres(server).with_context(|| format!("cannot copy the ledger in {address}"))
            }
        }
    }

    fn open_files(data: &Path) -> Result<Source> {
        let ledger = data.join(LEDGER);
        ensure!(ledger.is_dir(), "{} holds no ledger; name the data directory of a server", data.display());
        // Opened as by a server: with the lock, and with every check of a start.
        let (lock, report) = FileLedger::open_dir(&ledger, file::Options::default()).map_err(Error::from)?;
        let key = ClusterKey::from_bytes(data_dir::read_lease_key(data)?);
        let offsets = OffsetFiles::open_dir(&data.join(file::OFFSETS)).map_err(Error::from)?.list()?;
        let reader = Inspection::open_dir(&ledger).map_err(Error::from)?;
        let kind = Kind::Files { key, _lock: Box::new(lock) };
        Ok(Source { reader: Box::new(reader), cluster: report.cluster, offsets, kind })
    }

    fn open_postgres(server: postgres::Server) -> Result<Source> {
        let nodes = postgres::connected_nodes(&server)?;
        ensure!(nodes == 0, "{nodes} sessions of nodes are open; stop all nodes first");
        let (reader, offsets, cluster) = postgres::inspect(server, 0)?;
        ensure!(
            cluster.shards == 1,
            "a cluster of {} shards does not fit into one directory",
            cluster.shards
        );
        let kind = Kind::Postgres { key_print: cluster.key_print };
        Ok(Source { reader: Box::new(reader), cluster: cluster.id, offsets: offsets.list()?, kind })
    }

    /// The key for the target: that of the source, so that leases and tokens stay valid.
    pub(super) fn key(&self, found: Option<&ClusterKey>, file: &Path) -> Result<ClusterKey> {
        match (&self.kind, found) {
            (Kind::Files { key, .. }, None) => Ok(key.clone()),
            (Kind::Files { key, .. }, Some(found)) if found == key => Ok(key.clone()),
            (Kind::Files { .. }, Some(_)) => bail!(
                "{} holds another key than the directory, so all leases and tokens would be refused; name a file that does \
                 not exist",
                file.display()
            ),
            (Kind::Postgres { key_print }, Some(found)) if found.print() == *key_print => Ok(found.clone()),
            (Kind::Postgres { .. }, Some(_)) => {
                bail!("{} is not the key of the cluster; name the key file of its nodes", file.display())
            }
            (Kind::Postgres { .. }, None) => {
                bail!("there is no key {}; name the key file of the cluster's nodes", file.display())
            }
        }
    }
}
