//! The storage backend of the ledger. No other file of the program names a backend, except those of its administration.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use ledger::postgres::{self, Server};
use ledger::{ClusterId, Error, ErrorKind, Reader, Storage, file};

use crate::cluster_key::ClusterKey;
use crate::config::{Config, Data, LedgerBackend, postgres_server};
use crate::data_dir::{DataDir, LEDGER};
use crate::serving::Start;

/// What the backend writes into a data directory beside the ledger, once the ledger is initialized.
pub(crate) const BESIDE_LEDGER: &str = file::OFFSETS;

/// Whether a directory holds an initialized ledger.
pub(crate) fn is_initialized(ledger: &Path) -> bool {
    file::is_initialised(ledger)
}

/// The ledger of a server, before it is opened.
pub(crate) enum Backend {
    File(Box<file::Options>),
    Postgres(Box<DatabaseNode>),
}

/// A node of a cluster whose ledger is in a database.
pub(crate) struct DatabaseNode {
    pub server: Server,
    pub options: postgres::Options,
    pub key: ClusterKey,
    pub cluster: ClusterId,
}

impl Backend {
    /// The backend that the configuration names. A database is asked which cluster it holds, so this blocks.
    pub(crate) fn prepare(config: &Config, start: &Start) -> Result<Backend> {
        match config.ledger.backend {
            LedgerBackend::File => Ok(Backend::File(Box::new(file_options(&config.data, start)?))),
            LedgerBackend::Postgres => Ok(Backend::Postgres(Box::new(DatabaseNode::prepare(config)?))),
        }
    }

    /// Opens the directory for everything but the ledger; the ledger of the file backend is in it too.
    pub(crate) fn open_data_dir(&self, path: &Path, start: &Start) -> Result<DataDir> {
        match self {
            Backend::File(_) => DataDir::open(path, start.may_create),
            Backend::Postgres(node) if start.replaces => DataDir::open_to_replace(path, node.cluster),
            Backend::Postgres(node) => DataDir::open_for_node(path, node.cluster),
        }
    }

    /// The key that all nodes of the cluster share; without a cluster the data directory has a key.
    pub(crate) fn cluster_key(&self) -> Option<[u8; 32]> {
        match self {
            Backend::File(_) => None,
            Backend::Postgres(node) => Some(node.key.lease_key()),
        }
    }
}

/// The options of a ledger in a data directory, with an id in case that it is created.
pub(crate) fn file_options(data: &Data, start: &Start) -> Result<file::Options> {
    Ok(file::Options {
        create: start.may_create.then_some(new_cluster_id()?),
        segment_bytes: data.segment_mib << 20,
        preallocate_bytes: data.preallocate_mib.map_or(u64::MAX, |mib| mib.saturating_mul(1 << 20)),
        history_max_age_ms: history_max_age_ms(data),
        history_max_bytes: history_max_bytes(data),
        drop_unverified_tail: start.drop_unverified_tail,
        ..file::Options::default()
    })
}

/// Opens the ledger in a data directory. Returns its id as well, and notices for the operator about what was found.
pub(crate) fn open(data: &Path, options: file::Options) -> Result<(Storage, ClusterId, Vec<String>), Error> {
    let (storage, report) = file::open_data_dir(data, options)?;
    Ok((storage, report.cluster, report.notices()))
}

impl DatabaseNode {
    pub(crate) fn prepare(config: &Config) -> Result<DatabaseNode> {
        let (server, key) = (config.postgres.server()?, ClusterKey::read(config.cluster.key_file()?)?);
        let options = postgres::Options {
            history_max_age_ms: history_max_age_ms(&config.data),
            history_max_bytes: history_max_bytes(&config.data),
            tables: config.postgres.tables.into(),
            tables_payload_kib: config.postgres.tables_payload_kib,
            ..postgres::Options::new(&config.cluster.node()?, key.print())
        };
        let found = describe(&server)?.cluster;
        if found.key_print != key.print() {
            let what =
                "is not the key of this cluster; copy the key file of another node, or check postgres.url";
            let file = config.cluster.key_file()?.display();
            return Err(Error::new(ErrorKind::Refused, format!("{file} {what}")))
                .with_context(|| format!("cannot use {}", server.address()));
        }
        Ok(DatabaseNode { server, options, key, cluster: found.id })
    }
}

/// Asks a database what it holds, with all checks of its settings.
pub(crate) fn describe(server: &Server) -> Result<postgres::Description> {
    postgres::describe(server).with_context(|| format!("cannot use {}", server.address()))
}

pub(crate) fn new_cluster_id() -> Result<ClusterId> {
    let mut cluster = [0; 16];
    getrandom::fill(&mut cluster)
        .map_err(|error| anyhow::anyhow!("the system has no random numbers: {error}"))?;
    Ok(ClusterId(cluster))
}

fn history_max_age_ms(data: &Data) -> u64 {
    data.history_days.saturating_mul(24 * 60 * 60 * 1_000)
}

fn history_max_bytes(data: &Data) -> u64 {
    data.history_mib.saturating_mul(1 << 20)
}

/// A ledger on the command line: `file:DIR`, `postgres:URL`, or `postgres:` with the URL in the environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    File(PathBuf),
    /// The URL may hold a password.
    Postgres(String),
}

impl Place {
    pub(crate) fn parse(text: &str) -> Result<Place, String> {
        let is_url = text.starts_with("postgres://") || text.starts_with("postgresql://");
        match text.split_once(':') {
            Some(("file", directory)) if !directory.is_empty() => Ok(Place::File(directory.into())),
            _ if is_url => Ok(Place::Postgres(text.to_owned())),
            Some(("postgres", url)) => Ok(Place::Postgres(url.to_owned())),
            // The text is not repeated: it may be a URL with a password.
            _ => Err("a ledger is file:DIR or postgres:URL, such as postgres:postgres://lessor@db.example.com/lessor; \
                      postgres: alone takes the URL from LESSOR_POSTGRES_URL"
                .to_owned()),
        }
    }

    /// Opens the ledger for reading, beside a server that may run.
    pub(crate) fn inspect(&self) -> Result<Box<dyn Reader>> {
        match self {
            Place::File(data) => inspect(data),
            Place::Postgres(url) => inspect_database(postgres_server(url)?),
        }
    }
}

/// Opens the ledger in a database for reading, beside the nodes of the cluster.
pub(crate) fn inspect_database(server: Server) -> Result<Box<dyn Reader>> {
    let address = server.address();
    let (reader, ..) =
        postgres::inspect(server, 0).with_context(|| format!("cannot read the ledger in {address}"))?;
    Ok(Box::new(reader))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ledger_is_a_directory_or_a_database() {
        assert_eq!(Place::parse("file:a/b"), Ok(Place::File("a/b".into())));
        let url = "postgres://lessor@db/jobs";
        for text in [url, &format!("postgres:{url}")] {
            assert_eq!(Place::parse(text), Ok(Place::Postgres(url.to_owned())));
        }
        assert_eq!(Place::parse("postgres:"), Ok(Place::Postgres(String::new())));
        for wrong in ["", "file:", "a/b", "mysql://lessor:secret@db"] {
            let fault = Place::parse(wrong).unwrap_err();
            assert!(fault.contains("file:DIR") && !fault.contains("secret"), "{fault}");
        }
    }
}
