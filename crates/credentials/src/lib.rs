//! The connections of clients to a server, and the credentials by which they prove who they are: for the command line, the worker
//! and the Rust SDK.
//!
//! [`Credentials`] names files and keys, and [`Connector`] is what was read from them for one server. An API key is never
//! printed, and never sent in plain text over a network.

mod api_key;
mod connector;
pub mod in_process;
mod server_url;
mod tls;

use std::path::{Path, PathBuf};

use url::Url;

pub use api_key::ApiKey;
pub use connector::Connector;
pub use server_url::parse_url;
pub use tls::config as tls_config;

/// What a client proves its identity with, and the CA that it trusts. All of it is optional.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Credentials {
    /// The CAs of servers, in PEM; by default those that this machine trusts.
    pub ca_file: Option<PathBuf>,
    /// The client's certificate, followed by the intermediate ones, in PEM; with the key in `client_key`.
    pub client_certificate: Option<PathBuf>,
    pub client_key: Option<PathBuf>,
    /// The file with an API key; it is used instead of `api_key`.
    pub api_key_file: Option<PathBuf>,
    pub api_key: Option<ApiKey>,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot read {}: {error}", .file.display())]
    Unreadable { file: PathBuf, error: std::io::Error },

    #[error("{} {what}", .file.display())]
    Invalid { file: PathBuf, what: String },

    #[error("a client certificate needs its private key, and a private key its certificate: name both files")]
    HalfAnIdentity,

    #[error("LESSOR_API_KEY is not a key: it must be printable ASCII without spaces")]
    NotAKey,

    #[error(
        "the API key is not sent to {0} over plain http, where others could read it; use an https:// URL, or call a server \
         on this machine by a loopback address"
    )]
    PlainKey(String),

    #[error("this machine trusts no certificates ({0}); name the server's CA in a file")]
    NoRoots(std::io::Error),

    #[error("TLS cannot be used: {0}")]
    Tls(#[from] rustls::Error),
}

impl Credentials {
    /// Fills what is not given from LESSOR_CA_FILE, LESSOR_CLIENT_CERTIFICATE, LESSOR_CLIENT_KEY, LESSOR_API_KEY_FILE and
    /// LESSOR_API_KEY. A file with a key is preferred.
    pub fn or_env(self) -> Result<Credentials, Error> {
        let file = |given: Option<PathBuf>, variable: &str| {
            given.or_else(|| std::env::var_os(variable).filter(|name| !name.is_empty()).map(PathBuf::from))
        };
        let mut filled = Credentials {
            ca_file: file(self.ca_file, "LESSOR_CA_FILE"),
            client_certificate: file(self.client_certificate, "LESSOR_CLIENT_CERTIFICATE"),
            client_key: file(self.client_key, "LESSOR_CLIENT_KEY"),
            ..self
        };
        if filled.api_key.is_none() {
            filled.api_key_file = file(filled.api_key_file, "LESSOR_API_KEY_FILE");
            let key = std::env::var("LESSOR_API_KEY").ok().filter(|key| !key.trim().is_empty());
            filled.api_key = key.map(|key| ApiKey::new(&key).ok_or(Error::NotAKey)).transpose()?;
        }
        Ok(filled)
    }

    /// Reads the files that a connection to this server needs.
    pub fn connector(&self, url: &Url) -> Result<Connector, Error> {
        let api_key = match &self.api_key_file {
            Some(file) => Some(ApiKey::read(file)?),
            None => self.api_key.clone(),
        };
        let is_tls = url.scheme() == "https";
        if api_key.is_some() && !is_tls && !server_url::is_loopback(url) {
            return Err(Error::PlainKey(url.host_str().unwrap_or_default().to_owned()));
        }
        let tls = is_tls.then(|| tls::config(self)).transpose()?;
        Ok(Connector::new(tls, api_key))
    }
}

impl Credentials {
    /// A connector for any server that names itself, by http or https. It sends no API key.
    pub fn for_callbacks(&self) -> Result<Connector, Error> {
        let tls = match tls::config(self) {
            // Servers with http can be called all the same.
            Err(Error::NoRoots(_)) => tls::untrusting()?,
            tls => tls?,
        };
        Ok(Connector::for_any_server(tls))
    }
}

fn read(file: &Path) -> Result<Vec<u8>, Error> {
    std::fs::read(file).map_err(|error| Error::Unreadable { file: file.to_owned(), error })
}

fn invalid(file: &Path, what: impl Into<String>) -> Error {
    Error::Invalid { file: file.to_owned(), what: what.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_key() -> Credentials {
        Credentials { api_key: ApiKey::new("lsk_secret"), ..Credentials::default() }
    }

    #[test]
    fn a_key_is_not_sent_in_plain_text_over_a_network() {
        for url in ["http://10.0.0.1:8980", "http://build.example.com", "http://localhost.example.com"] {
            let refused = with_key().connector(&parse_url(url).unwrap()).unwrap_err();
            assert!(matches!(refused, Error::PlainKey(_)), "{url}: {refused}");
            assert!(!refused.to_string().contains("secret"), "{refused}");
            assert!(Credentials::default().connector(&parse_url(url).unwrap()).is_ok(), "{url}");
        }
        for url in ["http://127.0.0.1:8980", "http://[::1]:8980", "localhost:8980"] {
            let connector = with_key().connector(&parse_url(url).unwrap()).unwrap();
            assert_eq!(connector.authorization().as_deref(), Some("Bearer lsk_secret"), "{url}");
        }
    }

    #[test]
    fn x19_a_key_is_in_no_debug_output_and_no_error() {
        let shown = format!("{:?} {:?}", with_key(), with_key().connector(&parse_url("localhost").unwrap()));
        assert!(!shown.contains("secret") && shown.contains("***"), "{shown}");
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("key");
        std::fs::write(&file, "lsk_secret with spaces").unwrap();
        let credentials = Credentials { api_key_file: Some(file), ..Credentials::default() };
        let error = credentials.connector(&parse_url("localhost").unwrap()).unwrap_err().to_string();
        assert!(error.contains("key") && !error.contains("secret"), "{error}");
    }

    #[test]
    fn a_key_file_may_end_with_a_line_break_and_wins() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("key");
        std::fs::write(&file, "lsk_of_file\n").unwrap();
        let credentials = Credentials { api_key_file: Some(file), ..with_key() };
        let connector = credentials.connector(&parse_url("localhost").unwrap()).unwrap();
        assert_eq!(connector.authorization().as_deref(), Some("Bearer lsk_of_file"));
    }

    #[test]
    fn an_unusable_file_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let ca_file = dir.path().join("ca.pem");
        std::fs::write(&ca_file, "no certificate").unwrap();
        let url = parse_url("https://localhost").unwrap();
        let not_pem = Credentials { ca_file: Some(ca_file), ..Credentials::default() };
        assert!(not_pem.connector(&url).unwrap_err().to_string().contains("ca.pem"));
        let missing = Credentials { ca_file: Some(dir.path().join("gone.pem")), ..Credentials::default() };
        assert!(missing.connector(&url).unwrap_err().to_string().contains("gone.pem"));
        let half = Credentials { client_key: Some(dir.path().join("key.pem")), ..Credentials::default() };
        assert!(matches!(half.connector(&url).unwrap_err(), Error::HalfAnIdentity));
    }
}
