//! The authentication of callers: the table `auth` of the file, which is also the flags of `lessor up`.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::Result;
use serde::{Deserialize, Serialize};
use server::Issuers;

use super::issuers::{self, Issuer};
use super::open_access;

// A doc comment would replace the help text of `lessor up`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, clap::Args)]
#[serde(default)]
pub(crate) struct Auth {
    /// Who may call: `none` is everyone, for loopback only; `keys` is who has an API key (`lessor init`, `lessor key`)
    #[arg(long = "auth", value_name = "MODE", default_value = "none", value_enum)]
    pub mode: Mode,

    /// A file with an admin key, which is created if it does not exist; another way than `lessor init` to the first key
    #[arg(long = "admin-key-file", value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub admin_key_file: Option<PathBuf>,

    /// Issuers whose JSON Web Tokens are accepted beside API keys.
    #[arg(skip)]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub issuers: Vec<Issuer>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Mode {
    #[default]
    None,
    Keys,
}

impl From<Mode> for server::AuthMode {
    fn from(mode: Mode) -> server::AuthMode {
        match mode {
            Mode::None => server::AuthMode::None,
            Mode::Keys => server::AuthMode::Keys,
        }
    }
}

/// A server that others could reach without authentication. It does not start.
#[derive(Debug, thiserror::Error)]
#[error(
    "refusing to listen on {address} without authentication: everyone who can reach it could run commands. Choose one:\n  \
     API keys:    `lessor init --data {data}` prints an admin key; then start with --auth keys (or mode = \"keys\" in [auth])\n  \
     this machine only: listen on 127.0.0.1:{port}\n  \
     no protection: --insecure, in a network where everyone is trusted"
)]
pub(crate) struct Unprotected {
    address: SocketAddr,
    port: u16,
    data: String,
}

impl Auth {
    pub(super) fn faults(&self) -> Vec<String> {
        let mut faults = issuers::options(&self.issuers).err().unwrap_or_default();
        if !self.issuers.is_empty() && self.mode == Mode::None {
            faults.push("auth.issuers needs auth.mode = \"keys\": without it everyone may call".to_owned());
        }
        faults
    }

    /// The trusted issuers, with the keys that are files.
    pub(crate) fn issuers(&self) -> Result<Issuers> {
        let options = issuers::options(&self.issuers).map_err(|faults| anyhow::anyhow!(faults.join("\n")))?;
        Issuers::start(options).map_err(|error| anyhow::anyhow!("auth.issuers: {error}"))
    }
}

impl super::Config {
    /// Refuses an address that others can reach if nobody is authenticated, or warns if that is wanted.
    pub(crate) fn check_access(&self, is_insecure: bool, worker: bool) -> Result<Option<String>> {
        let address = self.server.address;
        let warning = open_access(address, &self.server.tls, worker).filter(|_| self.auth.mode == Mode::None);
        if warning.is_some() && !is_insecure {
            let data = self.data.dir.display().to_string();
            return Err(Unprotected { address, port: address.port(), data }.into());
        }
        Ok(warning)
    }
}
