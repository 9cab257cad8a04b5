//! Ledgers in a PostgreSQL server that the user names, each in a database of its own that is dropped afterwards.

mod append;
mod append_content;
mod skip_locked;

use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result, anyhow};
use coordinator::Running;
use ledger::postgres::{self, Cluster, Server, Tables};
use ledger::{ClusterId, Storage};
use tokio_postgres::{Client, NoTls};
use url::Url;

pub(crate) use append::{Options as AppendOptions, run as run_append};
pub(crate) use skip_locked::SkipLocked;

/// The fingerprint of the key of benchmarks, which issue no tokens.
const KEY_PRINT: [u8; 16] = [0xbe; 16];

/// A server in which databases are created and dropped.
pub(crate) struct PostgresServer {
    url: Url,
    client: Client,
    next_name: AtomicU32,
}

/// An empty database.
pub(crate) struct BenchDatabase {
    url: Url,
    name: String,
}

impl PostgresServer {
    pub(crate) async fn connect(url: &Url) -> Result<PostgresServer> {
        Ok(PostgresServer { url: url.clone(), client: connect(url).await?, next_name: AtomicU32::new(0) })
    }

    pub(crate) async fn create_database(&self) -> Result<BenchDatabase> {
        let number = self.next_name.fetch_add(1, Ordering::Relaxed);
        let name = format!("lessor_bench_{}_{number}", std::process::id());
        let created = self.client.batch_execute(&format!("CREATE DATABASE {name}")).await;
        created.context("cannot create a database; the user of the URL needs the right to do so")?;
        let mut url = self.url.clone();
        url.set_path(&name);
        Ok(BenchDatabase { url, name })
    }

    pub(crate) async fn drop_database(&self, database: BenchDatabase) -> Result<()> {
        let drop = format!("DROP DATABASE {} WITH (FORCE)", database.name);
        self.client.batch_execute(&drop).await.context("cannot drop the database of the benchmark")
    }
}

impl BenchDatabase {
    pub(crate) fn url(&self) -> &Url {
        &self.url
    }

    pub(crate) async fn client(&self) -> Result<Client> {
        connect(&self.url).await
    }

    /// Creates the tables of a cluster, and opens its ledger.
    pub(crate) async fn open_ledger(&self, tables: Tables) -> Result<Storage> {
        let server = server(&self.url)?;
        let opened = tokio::task::spawn_blocking(move || {
            let cluster = Cluster { id: ClusterId([0xbe; 16]), shards: 1, key_print: KEY_PRINT };
            postgres::initialize(&server, cluster)?;
            let options = postgres::Options { tables, ..postgres::Options::new("bench", KEY_PRINT) };
            postgres::open(server, options)
        });
        Ok(opened.await??)
    }

    /// Starts a coordinator in this process.
    pub(crate) async fn start(&self, tables: Tables) -> Result<Running> {
        let storage = self.open_ledger(tables).await?;
        let options = coordinator::Options::default();
        Ok(tokio::task::spawn_blocking(move || coordinator::start(storage, options)).await??)
    }
}

/// The configuration of a node whose database is named by the environment.
pub(crate) fn node_configuration(key_file: &Path, tables: &str) -> Result<String> {
    let key_file = key_file.to_str().context("the directory has no name in UTF-8")?;
    let key_file = serde_json::to_string(key_file)?;
    Ok(format!(
        "[ledger]\nbackend = \"postgres\"\n[postgres]\ntables = \"{tables}\"\n\
         [cluster]\nnode = \"bench\"\nlisten = \"127.0.0.1:0\"\nkey_file = {key_file}\n"
    ))
}

/// Parses `postgres:URL`, or the URL alone, on a command line. The text is part of no message: it may hold a password.
pub(crate) fn parse_url(text: &str) -> Result<Url, String> {
    let url = text.strip_prefix("postgres:").filter(|rest| rest.starts_with("postgres")).unwrap_or(text);
    let url = Url::parse(url).ok().filter(|url| ["postgres", "postgresql"].contains(&url.scheme()));
    url.ok_or_else(|| {
        "name a server in which databases may be created, such as \
                       postgres:postgres://postgres@127.0.0.1/postgres"
            .to_owned()
    })
}

fn server(url: &Url) -> Result<Server> {
    Server::parse(url.as_str()).map_err(|error| anyhow!("the address of PostgreSQL {error}"))
}

async fn connect(url: &Url) -> Result<Client> {
    let server = server(url)?;
    let connected = server.config.connect(NoTls).await;
    let (client, connection) =
        connected.with_context(|| format!("cannot connect to {}", server.address()))?;
    tokio::spawn(connection);
    Ok(client)
}
