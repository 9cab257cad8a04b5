//! The TLS configuration of a client.

use std::path::Path;
use std::sync::Arc;

use hyper_rustls::ConfigBuilderExt;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

use crate::{Credentials, Error, invalid, read};

/// Trusts the CAs of the credentials, or those of the machine, and shows the client certificate where one is asked for.
pub fn config(credentials: &Credentials) -> Result<ClientConfig, Error> {
    let identity = match (&credentials.client_certificate, &credentials.client_key) {
        (Some(certificate), Some(key)) => Some((certificate, key)),
        (None, None) => None,
        _ => return Err(Error::HalfAnIdentity),
    };
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?;
    let builder = match &credentials.ca_file {
        Some(file) => builder.with_root_certificates(roots(file)?),
        None => builder.with_native_roots().map_err(Error::NoRoots)?,
    };
    let Some((certificate, key_file)) = identity else { return Ok(builder.with_no_client_auth()) };
    let chain = certificates(certificate)?;
    let key = PrivateKeyDer::from_pem_slice(&read(key_file)?)
        .map_err(|error| invalid(key_file, format!("has no private key in PEM: {error}")))?;
    builder
        .with_client_auth_cert(chain, key)
        .map_err(|error| invalid(key_file, format!("cannot be used with {}: {error}", certificate.display())))
}

/// Trusts no server, for clients that connect in plain text.
pub(crate) fn untrusting() -> Result<ClientConfig, Error> {
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?;
    Ok(builder.with_root_certificates(RootCertStore::empty()).with_no_client_auth())
}

fn roots(file: &Path) -> Result<RootCertStore, Error> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(file)? {
        roots
            .add(certificate)
            .map_err(|error| invalid(file, format!("has a certificate that cannot be used: {error}")))?;
    }
    Ok(roots)
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
    let pem = read(file)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    let found = found.map_err(|error| invalid(file, format!("is not valid PEM: {error}")))?;
    if found.is_empty() {
        return Err(invalid(file, "has no certificate in PEM"));
    }
    Ok(found)
}
