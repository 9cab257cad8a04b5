//! Certificates for tests: authorities, and what they sign.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

/// A certificate authority.
pub(crate) struct Authority(CertifiedIssuer<'static, KeyPair>);

/// The files of a certificate.
#[derive(Clone, Debug)]
pub(crate) struct Files {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

impl Authority {
    pub(crate) fn new(name: &str) -> Authority {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Authority(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    /// Writes the file that makes whoever reads it trust this authority.
    pub(crate) fn write(&self, dir: &Path, name: &str) -> PathBuf {
        let file = dir.join(name);
        std::fs::write(&file, self.0.pem()).unwrap();
        file
    }

    /// Signs a certificate for this machine, of a server or a client, and writes it to `NAME.pem` and `NAME.key`.
    pub(crate) fn issue(&self, dir: &Path, name: &str) -> Files {
        self.issue_for(dir, name, &["localhost", "127.0.0.1"])
    }

    /// The same, for other host names and addresses.
    pub(crate) fn issue_for(&self, dir: &Path, name: &str, hosts: &[&str]) -> Files {
        let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
        self.sign(CertificateParams::new(hosts).unwrap(), dir, name)
    }

    /// A certificate whose time is soon over.
    pub(crate) fn issue_until(&self, dir: &Path, name: &str, end: SystemTime) -> Files {
        let mut params = CertificateParams::new(["localhost".to_owned()]).unwrap();
        params.not_after = rcgen::date_time_ymd(1970, 1, 1) + end.duration_since(UNIX_EPOCH).unwrap();
        self.sign(params, dir, name)
    }

    /// A certificate whose time is over.
    pub(crate) fn issue_expired(&self, dir: &Path, name: &str) -> Files {
        let mut params = CertificateParams::new(["localhost".to_owned()]).unwrap();
        params.not_after = rcgen::date_time_ymd(2001, 1, 1);
        params.not_before = rcgen::date_time_ymd(2000, 1, 1);
        self.sign(params, dir, name)
    }

    fn sign(&self, mut params: CertificateParams, dir: &Path, name: &str) -> Files {
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        let files =
            Files { certificate: dir.join(format!("{name}.pem")), key: dir.join(format!("{name}.key")) };
        std::fs::write(&files.certificate, certificate.pem()).unwrap();
        std::fs::write(&files.key, key.serialize_pem()).unwrap();
        files
    }

    /// A client that trusts this authority and may have a certificate.
    pub(crate) fn client(&self, identity: Option<&Files>) -> ClientConfig {
        let mut roots = RootCertStore::empty();
        roots.add(self.0.der().clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        match identity {
            None => builder.with_no_client_auth(),
            Some(files) => {
                let key = PrivateKeyDer::from_pem_file(&files.key).unwrap();
                builder.with_client_auth_cert(vec![files.leaf()], key).unwrap()
            }
        }
    }
}

impl Files {
    pub(crate) fn leaf(&self) -> CertificateDer<'static> {
        CertificateDer::from_pem_file(&self.certificate).unwrap()
    }
}
