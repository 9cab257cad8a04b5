//! The authentication of callers: the table `auth` of the file, which is also the flags of `lessor up`.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::Result;
use serde::{Deserialize, Serialize};
use server::{CertificateRule, Issuers};

use super::issuers::{self, Issuer};
use super::{Tls, certificates};

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

    /// What the holders of client certificates may do.
    #[arg(skip)]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub certificates: Vec<certificates::Rule>,
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
    r#"refusing to listen on {address} without authentication: everyone who can reach it could run commands. Choose one:

API keys, best with TLS:
  lessor init --data {data} > admin.key
  lessor up --data {data} --listen {address} --auth keys --tls-certificate server.pem --tls-key server.key
and from another terminal:
  export LESSOR_URL=https://localhost:{port} LESSOR_CA_FILE=ca.pem LESSOR_API_KEY=$(cat admin.key)
  lessor key create --name ci --tenant default --role submitter --role reader

TLS client certificates, in the file of `lessor serve --config FILE`:
  [server]
  address = "{address}"
  [server.tls]
  certificate = "server.pem"
  key = "server.key"
  client_ca = "ca.pem"
  [auth]
  mode = "keys"
  [[auth.certificates]]
  common_name = "admin"
  roles = ["admin"]

tokens of an issuer, such as GitHub Actions, GitLab CI or Kubernetes, in the same file:
  [auth]
  mode = "keys"
  [[auth.issuers]]
  issuer = "https://token.actions.githubusercontent.com"
  audiences = ["lessor"]
  jwks_url = "https://token.actions.githubusercontent.com/.well-known/jwks"
  [[auth.issuers.rules]]
  claims = {{ repository = "acme/app" }}
  tenants = ["default"]
  roles = ["builder"]

this machine only: listen on 127.0.0.1:{port}
no protection, in a network where everyone is trusted: --insecure

docs/security.md says how to make certificates, and has the lines for every client."#
)]
pub(crate) struct Unprotected {
    address: SocketAddr,
    port: u16,
    data: String,
}

impl Auth {
    pub(super) fn faults(&self, tls: &Tls) -> Vec<String> {
        let mut faults = issuers::options(&self.issuers).err().unwrap_or_default();
        faults.extend(certificates::options(&self.certificates).err().unwrap_or_default());
        for (table, is_used) in
            [("issuers", !self.issuers.is_empty()), ("certificates", !self.certificates.is_empty())]
        {
            if is_used && self.mode == Mode::None {
                faults.push(format!("auth.{table} needs auth.mode = \"keys\": without it everyone may call"));
            }
        }
        if !self.certificates.is_empty() && tls.client_ca.is_none() {
            let what = "needs server.tls.client_ca: without it no client is asked for a certificate";
            faults.push(format!("auth.certificates {what}"));
        }
        faults
    }

    /// The trusted issuers, with the keys that are files.
    pub(crate) fn issuers(&self) -> Result<Issuers> {
        let options = issuers::options(&self.issuers).map_err(|faults| anyhow::anyhow!(faults.join("\n")))?;
        Issuers::start(options).map_err(|error| anyhow::anyhow!("auth.issuers: {error}"))
    }

    /// The rules for client certificates.
    pub(crate) fn certificates(&self) -> Result<Vec<CertificateRule>> {
        certificates::options(&self.certificates).map_err(|faults| anyhow::anyhow!(faults.join("\n")))
    }
}

impl super::Config {
    /// Refuses an address that others can reach if nobody is authenticated, or warns if that is wanted. Also warns of keys that
    /// others can read on their way.
    pub(crate) fn check_access(&self, is_insecure: bool, worker: bool) -> Result<Option<String>> {
        let address = self.server.address;
        if address.ip().is_loopback() {
            return Ok(None);
        }
        match self.auth.mode {
            Mode::None if is_insecure => Ok(Some(open_access(address, worker))),
            Mode::None => {
                let data = self.data.dir.display().to_string();
                Err(Unprotected { address, port: address.port(), data }.into())
            }
            Mode::Keys => Ok(self.server.tls.certificate.is_none().then(|| readable(address))),
        }
    }

    /// What a start on loopback says, where nobody is refused.
    pub(crate) fn notice(&self) -> Option<String> {
        let is_open = self.auth.mode == Mode::None && self.server.address.ip().is_loopback();
        let notice = "No authentication: everyone on this machine may use it (--auth keys asks for API keys)";
        is_open.then(|| notice.to_owned())
    }
}

fn readable(address: SocketAddr) -> String {
    format!(
        "API keys and data travel to {address} unencrypted, and everyone on the way can read and use them: serve TLS \
         (--tls-certificate, --tls-key, or [server.tls] in the file), or let only a proxy with TLS reach this address"
    )
}

/// The warning about an address that others can reach; `worker` says whether this process runs commands. A client certificate
/// that everyone needs keeps strangers out, but says of nobody what they may do.
fn open_access(address: SocketAddr, worker: bool) -> String {
    let (machines, way_out) =
        if worker { ("this machine", " (--no-worker runs no commands)") } else { ("its workers", "") };
    format!(
        "everyone who can reach {address} can submit, lease and cancel tasks, and run commands on {machines}: there is no \
         authentication (--insecure){way_out}"
    )
}
