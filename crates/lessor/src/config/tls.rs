//! The table `[server.tls]`, which is also flags of `lessor up`.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use server::TlsFiles;

// A doc comment would replace the help text of `lessor up`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, clap::Args)]
#[serde(default)]
pub(crate) struct Tls {
    /// Serve TLS with this certificate, followed by its intermediate ones, in PEM; a changed file is used without a restart
    #[arg(long = "tls-certificate", id = "tls_certificate", value_name = "FILE", requires = "tls_key")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate: Option<PathBuf>,

    /// The private key of --tls-certificate, in PEM
    #[arg(long = "tls-key", id = "tls_key", value_name = "FILE", requires = "tls_certificate")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<PathBuf>,

    /// Accept client certificates of these CAs, in PEM
    #[arg(long = "tls-client-ca", id = "tls_client_ca", value_name = "FILE", requires = "tls_certificate")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_ca: Option<PathBuf>,

    /// Whether clients need a certificate: optional or required [default: optional]
    #[arg(long = "tls-client-certificates", id = "tls_client_certificates", value_name = "NEED")]
    #[arg(requires = "tls_client_ca")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_certificates: Option<ClientCertificates>,
}

/// Whether clients need a certificate of the client CA.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ClientCertificates {
    Optional,
    Required,
}

impl Tls {
    pub(super) fn with_every_key() -> Tls {
        let path = || Some(PathBuf::new());
        let client_certificates = Some(ClientCertificates::Optional);
        Tls { certificate: path(), key: path(), client_ca: path(), client_certificates }
    }

    /// The files, if TLS is configured.
    pub(crate) fn files(&self) -> Option<TlsFiles> {
        Some(TlsFiles {
            certificate: self.certificate.clone()?,
            key: self.key.clone()?,
            client_ca: self.client_ca.clone(),
            require_client_certificate: self.requires_client_certificates(),
        })
    }

    fn requires_client_certificates(&self) -> bool {
        self.client_certificates == Some(ClientCertificates::Required)
    }

    pub(super) fn faults(&self) -> Vec<String> {
        let missing = |key: &str, because: &str| {
            format!("server.tls.{key} is missing, but server.tls.{because} is set; name a file in PEM")
        };
        let mut faults = Vec::new();
        let others = [
            ("key", self.key.is_some()),
            ("client_ca", self.client_ca.is_some()),
            ("client_certificates", self.client_certificates.is_some()),
        ];
        if let (None, Some((because, _))) = (&self.certificate, others.iter().find(|(_, is_set)| *is_set)) {
            faults.push(missing("certificate", because));
        }
        if self.certificate.is_some() && self.key.is_none() {
            faults.push(missing("key", "certificate"));
        }
        if self.client_certificates.is_some() && self.client_ca.is_none() {
            faults.push(missing("client_ca", "client_certificates"));
        }
        faults
    }
}

#[cfg(test)]
mod tests {
    use crate::config::Config;
    use crate::config::file::parse;

    #[test]
    fn a_half_configured_tls_is_refused_with_the_missing_key() {
        for (keys, missing) in [
            ("certificate = \"c\"", "server.tls.key"),
            ("key = \"k\"", "server.tls.certificate"),
            ("client_ca = \"a\"", "server.tls.certificate"),
            ("certificate = \"c\"\nkey = \"k\"\nclient_certificates = \"required\"", "server.tls.client_ca"),
        ] {
            let faults = parse::<Config>(&format!("[server.tls]\n{keys}")).unwrap_err();
            assert!(faults[0].starts_with(&format!("{missing} is missing")), "{faults:?}");
        }
        let whole = "[server.tls]\ncertificate = \"c\"\nkey = \"k\"\nclient_ca = \"a\"\nclient_certificates = \"required\"";
        let files = parse::<Config>(whole).unwrap().server.tls.files().unwrap();
        assert!(files.require_client_certificate && files.client_ca.is_some());
        assert_eq!(parse::<Config>("").unwrap().server.tls.files(), None);
    }
}
