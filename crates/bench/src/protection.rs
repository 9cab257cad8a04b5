//! The protection of a measured server, and how its clients connect to it: API keys, TLS, both or neither.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;
use credentials::{ApiKey, Connector, Credentials};
use tokio::process::Command;
use url::Url;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Protection {
    #[default]
    None,
    /// API keys
    Keys,
    Tls,
    /// API keys over TLS
    KeysTls,
}

/// A server's protection, ready to be used.
pub(crate) struct Prepared {
    /// The arguments of `lessor up`.
    pub server_arguments: Vec<String>,
    pub scheme: &'static str,
    credentials: Credentials,
}

impl Protection {
    fn has_keys(self) -> bool {
        matches!(self, Protection::Keys | Protection::KeysTls)
    }

    fn has_tls(self) -> bool {
        matches!(self, Protection::Tls | Protection::KeysTls)
    }

    /// Makes a key in the data directory and a certificate beside it, as far as they are needed.
    pub(crate) async fn prepare(self, program: &Path, data: &Path) -> Result<Prepared> {
        let mut prepared =
            Prepared { server_arguments: Vec::new(), scheme: "http", credentials: Credentials::default() };
        if self.has_keys() {
            prepared.credentials.api_key = Some(create_key(program, data).await?);
            prepared.server_arguments.extend(["--auth".to_owned(), "keys".to_owned()]);
        }
        if self.has_tls() {
            let (certificate, key) = (data.with_extension("pem"), data.with_extension("key"));
            let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned(), "localhost".to_owned()])?;
            std::fs::write(&certificate, made.cert.pem())?;
            std::fs::write(&key, made.signing_key.serialize_pem())?;
            for (flag, file) in [("--tls-certificate", &certificate), ("--tls-key", &key)] {
                prepared.server_arguments.extend([flag.to_owned(), file.display().to_string()]);
            }
            prepared.credentials.ca_file = Some(certificate);
            prepared.scheme = "https";
        }
        Ok(prepared)
    }
}

impl Prepared {
    pub(crate) fn connector(&self, url: &Url) -> Result<Connector> {
        Ok(self.credentials.connector(url)?)
    }
}

async fn create_key(program: &Path, data: &Path) -> Result<ApiKey> {
    let made = Command::new(program).args(["init", "--data"]).arg(data).output().await?;
    ensure!(made.status.success(), "no key was made: {}", String::from_utf8_lossy(&made.stderr));
    ApiKey::new(&String::from_utf8(made.stdout)?).context("no key was printed")
}
