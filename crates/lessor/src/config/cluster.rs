//! The tables `[ledger]`, `[postgres]` and `[cluster]` of the file: where the ledger is stored, and who this node is.

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use ledger::postgres::{FeedOptions, Server};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The variable with the address of the database, if it is in no file.
pub(crate) const POSTGRES_URL: &str = "LESSOR_POSTGRES_URL";
/// The variable with the CAs of the database server, for commands without a configuration.
const POSTGRES_CA_FILE: &str = "LESSOR_POSTGRES_CA_FILE";
/// The port for other nodes, unless another is configured.
const PEER_PORT: u16 = 8981;
/// The shortest time after which a silent owner is replaced: an owner says that it lives twice a second.
const MIN_TAKEOVER_AFTER_MS: u64 = 1_000;
/// Each standby costs the owner the bytes of every batch.
const MAX_HOT_STANDBYS: usize = 16;
/// How long a node serves on when it leaves, unless configured otherwise. Kubernetes grants 30 s by default.
const DRAIN_S: u64 = 25;
/// The longest time that may be configured; more is a mistake in the unit.
const MAX_DRAIN_S: u64 = 24 * 60 * 60;
/// The longest name of a node; host names are shorter.
const MAX_NODE_BYTES: usize = 255;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Ledger {
    pub backend: LedgerBackend,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum LedgerBackend {
    /// In the data directory, for one server.
    #[default]
    File,
    /// In a database, for the nodes of a cluster.
    Postgres,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Postgres {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<SecretUrl>,
    /// A file with the URL, so that the password is in no configuration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url_file: Option<PathBuf>,
    /// The CAs of the server, in PEM. With it, or with sslmode=require in the URL, every connection is encrypted and the
    /// server's certificate is verified.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca_file: Option<PathBuf>,
    /// When the tables of tasks are written.
    pub tables: Tables,
    /// Payloads and results up to this size are in the tables.
    pub tables_payload_kib: u32,
    /// Use a server with fsync off, which loses acknowledged work with the machine. For tests.
    pub unsafe_no_sync: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Tables {
    #[default]
    Transaction,
    Following,
    Off,
}

impl From<Tables> for ledger::postgres::Tables {
    fn from(tables: Tables) -> ledger::postgres::Tables {
        match tables {
            Tables::Transaction => ledger::postgres::Tables::Transaction,
            Tables::Following => ledger::postgres::Tables::Following,
            Tables::Off => ledger::postgres::Tables::Off,
        }
    }
}

impl Default for Postgres {
    fn default() -> Postgres {
        Postgres {
            url: None,
            url_file: None,
            ca_file: None,
            tables: Tables::default(),
            tables_payload_kib: ledger::postgres::DEFAULT_TABLES_PAYLOAD_KIB,
            unsafe_no_sync: false,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Cluster {
    /// The name of this node, different from all others; by default the host name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Where the other nodes reach this one; by default the address that it listens on for them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// Where it listens for the other nodes; by default the address for clients, with the port 8981.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub listen: Option<SocketAddr>,
    /// The key that all nodes share.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_file: Option<PathBuf>,
    /// An owner that is silent for this long is replaced.
    pub takeover_after_ms: u64,
    /// How many standbys the owner sends its batches to. The others read them from the database.
    pub hot_standbys: usize,
    /// Whether an answer leaves only when a standby has received what it rests on.
    pub answers_wait_for_standby: bool,
    /// How long a node that leaves serves on, for calls and streams that are open.
    pub drain_s: u64,
}

impl Default for Cluster {
    fn default() -> Cluster {
        let takeover_after_ms = cluster::TAKEOVER_AFTER.as_millis() as u64;
        let FeedOptions { hot_standbys, answers_wait_for_standby } = FeedOptions::default();
        Cluster {
            node: None,
            address: None,
            listen: None,
            key_file: None,
            takeover_after_ms,
            hot_standbys,
            answers_wait_for_standby,
            drain_s: DRAIN_S,
        }
    }
}

/// A URL that may hold a password. It is printed and compared without.
#[derive(Clone)]
pub(crate) struct SecretUrl(String);

impl SecretUrl {
    /// A URL without the password and all else that not every URL has.
    fn without_password(&self) -> String {
        let address = |url: &str| Server::parse(url).map(|server| server.address()).ok();
        // Names with special characters would need the encoding of a URL.
        let is_whole = |shown: &String| address(shown).as_ref() == Some(shown);
        address(&self.0).filter(is_whole).unwrap_or_else(|| "postgres://host:5432/database".to_owned())
    }
}

impl PartialEq for SecretUrl {
    fn eq(&self, other: &SecretUrl) -> bool {
        self.without_password() == other.without_password()
    }
}

impl fmt::Debug for SecretUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.without_password())
    }
}

impl Serialize for SecretUrl {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.without_password())
    }
}

impl<'de> Deserialize<'de> for SecretUrl {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<SecretUrl, D::Error> {
        String::deserialize(deserializer).map(SecretUrl)
    }
}

impl Postgres {
    pub(super) fn with_every_key() -> Postgres {
        Postgres {
            url: Some(SecretUrl(String::new())),
            url_file: Some(PathBuf::new()),
            ca_file: Some(PathBuf::new()),
            ..Postgres::default()
        }
    }

    /// The database, by the URL of the file, of `url_file` or of the environment.
    pub(crate) fn server(&self) -> Result<Server> {
        let (url, key) = match (&self.url, &self.url_file) {
            (Some(SecretUrl(url)), _) => (url.clone(), "postgres.url"),
            (None, Some(file)) => {
                let text = std::fs::read_to_string(file)
                    .with_context(|| format!("postgres.url_file: cannot read {}", file.display()))?;
                (text.trim().to_owned(), "the URL in postgres.url_file")
            }
            (None, None) => (url_from_environment()?, POSTGRES_URL),
        };
        let mut server = parse_url(&url, key, self.ca_file.as_deref())?;
        server.unsafe_no_sync = self.unsafe_no_sync;
        Ok(server)
    }
}

/// The database of a command without a configuration. An empty URL is taken from the environment.
pub(crate) fn postgres_server(url: &str) -> Result<Server> {
    let ca_file = std::env::var_os(POSTGRES_CA_FILE).map(PathBuf::from);
    if url.is_empty() {
        return parse_url(&url_from_environment()?, POSTGRES_URL, ca_file.as_deref());
    }
    parse_url(url, "the URL", ca_file.as_deref())
}

fn url_from_environment() -> Result<String> {
    let url = std::env::var(POSTGRES_URL).ok().filter(|url| !url.is_empty());
    url.with_context(|| {
        format!("there is no URL of PostgreSQL; set postgres.url or postgres.url_file in the file, or {POSTGRES_URL}")
    })
}

/// Parses a URL. With a CA, or where the URL asks for TLS, the server's certificate is verified.
fn parse_url(url: &str, key: &str, ca_file: Option<&Path>) -> Result<Server> {
    let server = Server::parse(url).map_err(|error| anyhow::anyhow!("{key} {error}"))?;
    if ca_file.is_none() && !server.requires_tls() {
        return Ok(server);
    }
    let trusted = credentials::Credentials { ca_file: ca_file.map(Path::to_owned), ..Default::default() };
    let tls = credentials::tls_config(&trusted).context("TLS of PostgreSQL cannot be used")?;
    Ok(server.with_tls(tls))
}

impl Cluster {
    pub(super) fn with_every_key() -> Cluster {
        let text = || Some(String::new());
        Cluster {
            node: text(),
            address: text(),
            listen: Some(SocketAddr::from(([127, 0, 0, 1], PEER_PORT))),
            key_file: Some(PathBuf::new()),
            ..Cluster::default()
        }
    }

    pub(crate) fn node(&self) -> Result<String> {
        let host = || rustix::system::uname().nodename().to_string_lossy().into_owned();
        let node = self.node.clone().unwrap_or_else(host);
        ensure!(fault_of_node(&node).is_none(), "this machine has no host name; set cluster.node");
        Ok(node)
    }

    /// Where the node listens for others, when it listens for clients on `clients`.
    pub(crate) fn listen(&self, clients: SocketAddr) -> SocketAddr {
        let port = if clients.port() == 0 { 0 } else { PEER_PORT };
        self.listen.unwrap_or(SocketAddr::new(clients.ip(), port))
    }

    pub(crate) fn feed_options(&self) -> FeedOptions {
        FeedOptions {
            hot_standbys: self.hot_standbys,
            answers_wait_for_standby: self.answers_wait_for_standby,
        }
    }

    pub(crate) fn key_file(&self) -> Result<&Path> {
        self.key_file.as_deref().context("cluster.key_file is missing; name the file of the cluster key")
    }
}

fn fault_of_node(node: &str) -> Option<&'static str> {
    let is_valid =
        !node.is_empty() && node.len() <= MAX_NODE_BYTES && node.bytes().all(|byte| byte.is_ascii_graphic());
    (!is_valid).then_some("must be 1 to 255 printable characters without spaces")
}

impl super::Config {
    pub(super) fn ledger_faults(&self) -> Vec<String> {
        let Postgres { url, url_file, .. } = &self.postgres;
        let mut faults = Vec::new();
        let url_fault = url.as_ref().and_then(|SecretUrl(url)| Server::parse(url).err());
        faults.extend(url_fault.map(|fault| format!("postgres.url {fault}")));
        if url.is_some() && url_file.is_some() {
            faults.push("postgres.url and postgres.url_file are both set; remove one of them".to_owned());
        }
        match self.ledger.backend {
            LedgerBackend::Postgres if self.cluster.key_file.is_none() => faults.push(
                "cluster.key_file is missing, but ledger.backend is \"postgres\"; name a file, which `lessor cluster init` \
                 creates"
                    .to_owned(),
            ),
            LedgerBackend::File if url.is_some() || url_file.is_some() => faults.push(
                "postgres has a URL, but ledger.backend is \"file\"; set ledger.backend = \"postgres\", or remove the URL"
                    .to_owned(),
            ),
            LedgerBackend::File | LedgerBackend::Postgres => {}
        }
        let node_fault = self.cluster.node.as_deref().and_then(fault_of_node);
        faults.extend(node_fault.map(|what| format!("cluster.node {what}")));
        if self.cluster.takeover_after_ms < MIN_TAKEOVER_AFTER_MS {
            faults.push(format!("cluster.takeover_after_ms must be at least {MIN_TAKEOVER_AFTER_MS}"));
        }
        if self.cluster.hot_standbys > MAX_HOT_STANDBYS {
            faults.push(format!("cluster.hot_standbys must be at most {MAX_HOT_STANDBYS}"));
        }
        if self.cluster.answers_wait_for_standby && self.cluster.hot_standbys == 0 {
            faults.push(
                "cluster.answers_wait_for_standby needs a standby; set cluster.hot_standbys to 1 or more"
                    .to_owned(),
            );
        }
        if self.cluster.drain_s > MAX_DRAIN_S {
            faults.push(format!("cluster.drain_s must be at most {MAX_DRAIN_S}"));
        }
        let is_reachable = |address: &str| {
            address
                .rsplit_once(':')
                .is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok())
        };
        if self.cluster.address.as_deref().is_some_and(|address| !is_reachable(address)) {
            faults
                .push("cluster.address must be a host and a port, such as node1.example.com:8980".to_owned());
        }
        faults
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::config::file::parse;

    #[test]
    fn a_password_is_never_shown() {
        let text = "[ledger]\nbackend = \"postgres\"\n[postgres]\nurl = \"postgres://lessor:secret@db/jobs\"\n\
                    [cluster]\nkey_file = \"k\"\n";
        let config = parse::<Config>(text).unwrap();
        for shown in [format!("{config:?}"), toml::to_string(&config).unwrap()] {
            assert!(!shown.contains("secret") && shown.contains("postgres://lessor@db"), "{shown}");
        }
        assert_eq!(config.postgres.server().unwrap().config.get_password(), Some(&b"secret"[..]));
        let faults = parse::<Config>("[postgres]\nurl = \"nothing:secret\"\n").unwrap_err();
        assert!(faults[0].starts_with("postgres.url is not") && !faults[0].contains("secret"), "{faults:?}");
    }

    #[test]
    fn a_half_configured_cluster_is_refused_with_the_missing_key() {
        for (text, expected) in [
            ("[ledger]\nbackend = \"postgres\"", "cluster.key_file is missing"),
            ("[postgres]\nurl = \"postgres://db/jobs\"", "ledger.backend = \"postgres\""),
            ("[postgres]\nurl = \"postgres://db/jobs\"\nurl_file = \"u\"", "both set"),
            ("[cluster]\nnode = \"a b\"", "cluster.node must be"),
            ("[cluster]\naddress = \"db\"", "cluster.address must be"),
            ("[cluster]\nhot_standbys = 17", "at most 16"),
            ("[cluster]\nhot_standbys = 0\nanswers_wait_for_standby = true", "needs a standby"),
            ("[ledger]\nbackend = \"postgre\"", "unknown variant"),
        ] {
            let faults = parse::<Config>(text).unwrap_err().join("\n");
            assert!(faults.contains(expected), "{text}: {faults}");
        }
    }

    #[test]
    fn the_url_may_be_in_a_file_of_its_own() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("url");
        std::fs::write(&file, "postgres://lessor:secret@db/jobs\n").unwrap();
        let postgres = Postgres { url_file: Some(file), ..Postgres::default() };
        assert_eq!(postgres.server().unwrap().address(), "postgres://lessor@db:5432/jobs");
    }
}
