//! The table `storage` of the file: where blobs and results are.

use std::path::PathBuf;

use anyhow::{Context, Result};
use credentials::{ApiKey, Connector, Credentials, parse_url};
use serde::{Deserialize, Serialize};

use super::file::within;

/// Free disk space that content never uses; at most 1 TiB, because more is a mistake in the unit.
pub(crate) const MIN_FREE_MIB: std::ops::RangeInclusive<u64> = 0..=1 << 20;
/// The variable with the API key for the content server, if it is in no file.
const API_KEY: &str = "LESSOR_STORAGE_API_KEY";

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Storage {
    /// The server with the blobs and results of all nodes. Without it they are in a directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// A file with the API key for the server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_key_file: Option<PathBuf>,
    /// The CAs of the server; by default those that this machine trusts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca_file: Option<PathBuf>,
    /// The certificate by which the server knows this node, with its key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_certificate: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_key: Option<PathBuf>,
    /// Disk space for content; the least recently used content is evicted.
    pub max_mib: u64,
    /// Free space of the file system that content never uses: below it, the least recently used content is evicted, and
    /// uploads are refused when there is none.
    pub min_free_mib: u64,
    /// Tenants that see the blobs and results of each other.
    pub shared_cache_tenants: Vec<String>,
    pub cas: Store,
    pub action_cache: Store,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Store {
    pub backend: StoreBackend,
    /// By default a directory in the data directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub root_dir: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum StoreBackend {
    #[default]
    Filesystem,
}

impl Default for Storage {
    fn default() -> Storage {
        Storage {
            url: None,
            api_key_file: None,
            ca_file: None,
            client_certificate: None,
            client_key: None,
            max_mib: 50 * 1_024,
            min_free_mib: 1_024,
            shared_cache_tenants: Vec::new(),
            cas: Store::default(),
            action_cache: Store::default(),
        }
    }
}

impl Storage {
    pub(super) fn with_every_key() -> Storage {
        let file = || Some(PathBuf::new());
        let store = || Store { root_dir: file(), ..Store::default() };
        Storage {
            url: Some(String::new()),
            api_key_file: file(),
            ca_file: file(),
            client_certificate: file(),
            client_key: file(),
            cas: store(),
            action_cache: store(),
            ..Storage::default()
        }
    }

    pub(super) fn faults(&self) -> Vec<String> {
        let mut faults: Vec<String> = [
            within("storage.max_mib", self.max_mib, 1..=u64::MAX),
            within("storage.min_free_mib", self.min_free_mib, MIN_FREE_MIB),
        ]
        .into_iter()
        .flatten()
        .collect();
        let directories = [
            ("storage.cas.root_dir", &self.cas.root_dir),
            ("storage.action_cache.root_dir", &self.action_cache.root_dir),
        ];
        let is_empty = |path: &Option<PathBuf>| path.as_ref().is_some_and(|path| path.as_os_str().is_empty());
        let unnamed = directories.into_iter().filter(|(_, path)| is_empty(path));
        faults.extend(unnamed.map(|(key, _)| format!("{key} is empty; name a directory")));
        faults.extend(self.shared_cache_tenants.iter().filter_map(|name| {
            let fault = server::fault_of_scope_name(name)?;
            Some(format!("storage.shared_cache_tenants: {name:?} {fault}"))
        }));
        faults.extend(self.faults_of_url());
        faults
    }

    fn faults_of_url(&self) -> Vec<String> {
        let Some(url) = &self.url else {
            let keys = [
                ("api_key_file", &self.api_key_file),
                ("ca_file", &self.ca_file),
                ("client_certificate", &self.client_certificate),
                ("client_key", &self.client_key),
            ];
            let named = keys.into_iter().filter(|(_, file)| file.is_some());
            return named.map(|(key, _)| format!("storage.{key} needs storage.url")).collect();
        };
        let mut faults = Vec::new();
        faults.extend(parse_url(url).err().map(|what| format!("storage.url: {what}")));
        if self.client_certificate.is_some() != self.client_key.is_some() {
            faults.push("storage.client_certificate and storage.client_key belong together".to_owned());
        }
        if !self.shared_cache_tenants.is_empty() {
            faults.push(
                "storage.shared_cache_tenants belongs in the configuration of the content server at storage.url"
                    .to_owned(),
            );
        }
        if self.action_cache.root_dir.is_some() {
            faults.push("storage.action_cache.root_dir is not used with storage.url; remove it".to_owned());
        }
        faults
    }

    /// The content server that all nodes use, and how to connect to it.
    pub(crate) fn content_server(&self) -> Result<Option<(String, Connector)>> {
        let Some(url) = &self.url else { return Ok(None) };
        let api_key = match std::env::var(API_KEY).ok().filter(|key| !key.trim().is_empty()) {
            Some(key) if self.api_key_file.is_none() => {
                let key = ApiKey::new(&key);
                Some(key.with_context(|| format!("{API_KEY} is not a key: it must be printable ASCII"))?)
            }
            _ => None,
        };
        let credentials = Credentials {
            ca_file: self.ca_file.clone(),
            client_certificate: self.client_certificate.clone(),
            client_key: self.client_key.clone(),
            api_key_file: self.api_key_file.clone(),
            api_key,
        };
        let url = parse_url(url).map_err(|what| anyhow::anyhow!("storage.url: {what}"))?;
        let connector = credentials.connector(&url).context("storage.url cannot be used")?;
        Ok(Some((url.to_string(), connector)))
    }
}

#[cfg(test)]
mod tests {
    use crate::config::Config;
    use crate::config::file::parse;

    #[test]
    fn keys_of_a_content_server_that_do_not_fit_are_refused() {
        for (keys, fault) in [
            ("api_key_file = \"k\"", "storage.api_key_file needs storage.url"),
            ("url = \"ftp://host\"", "storage.url: ftp is not supported"),
            ("url = \"h\"\nclient_key = \"k\"", "storage.client_certificate and storage.client_key"),
            ("url = \"h\"\nshared_cache_tenants = [\"a\"]", "storage.shared_cache_tenants belongs"),
        ] {
            let faults = parse::<Config>(&format!("[storage]\n{keys}")).unwrap_err();
            assert!(faults[0].starts_with(fault), "{faults:?}");
        }
        let config = parse::<Config>("[storage]\nurl = \"grpc://127.0.0.1:8980\"").unwrap();
        let (url, _) = config.storage.content_server().unwrap().unwrap();
        assert_eq!(url, "http://127.0.0.1:8980/");
        assert!(parse::<Config>("").unwrap().storage.content_server().unwrap().is_none());
    }

    #[test]
    fn a_key_is_not_sent_to_another_machine_in_plain_text() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("key");
        std::fs::write(&file, "lsk_secret").unwrap();
        let keys = |url: &str| format!("[storage]\nurl = {url:?}\napi_key_file = {file:?}");
        let server = |url: &str| parse::<Config>(&keys(url)).unwrap().storage.content_server();
        assert!(server("grpc://127.0.0.1:1").is_ok());
        let refused = format!("{:#}", server("grpc://10.0.0.1:1").unwrap_err());
        assert!(refused.contains("plain") && !refused.contains("secret"), "{refused}");
    }
}
