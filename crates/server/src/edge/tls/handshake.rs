//! One TLS handshake, and the answer for clients that send plain HTTP to a TLS port.

use std::io;
use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::{PeerChain, Tls};

/// The first byte of every TLS connection: a record with a handshake.
const HANDSHAKE_RECORD: u8 = 0x16;
/// How much is read from a client that is refused, so that it gets the answer instead of a reset.
const MAX_UNREAD_BYTES: u64 = 64 * 1_024;
const PLAIN_ANSWER: &str =
    "This port speaks TLS: use https:// instead of http://, and grpcs:// instead of grpc://.\n";

/// Accepts a TLS connection. The caller limits the time.
pub(in crate::edge) async fn accept(
    tls: &Tls,
    mut stream: TcpStream,
) -> io::Result<(TlsStream<TcpStream>, Option<Arc<PeerChain>>)> {
    // A silent client costs no TLS state.
    let mut first = [0];
    if stream.peek(&mut first).await? == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    if first != [HANDSHAKE_RECORD] {
        refuse_plain(&mut stream).await?;
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the client does not speak TLS"));
    }
    // Before the files are taken: of a replacement in between the chain is verified again.
    let generation = tls.generation();
    let stream = match TlsAcceptor::from(tls.config()).accept(stream).into_fallible().await {
        Ok(stream) => stream,
        Err((error, mut stream)) => {
            // The client has been sent an alert that says why.
            close(&mut stream).await?;
            return Err(error);
        }
    };
    let chain = stream.get_ref().1.peer_certificates();
    let chain = chain.map(|chain| Arc::new(PeerChain::new(chain, tls, generation)));
    Ok((stream, chain))
}

async fn refuse_plain(stream: &mut TcpStream) -> io::Result<()> {
    let answer = format!(
        "HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain; charset=utf-8\r\nconnection: close\r\n\
         content-length: {}\r\n\r\n{PLAIN_ANSWER}",
        PLAIN_ANSWER.len()
    );
    stream.write_all(answer.as_bytes()).await?;
    close(stream).await
}

/// Ends our side and waits until the client has ended its own.
async fn close(stream: &mut TcpStream) -> io::Result<()> {
    stream.shutdown().await?;
    tokio::io::copy(&mut stream.take(MAX_UNREAD_BYTES), &mut tokio::io::sink()).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
    use rustls::pki_types::{PrivateKeyDer, ServerName};
    use rustls::{ClientConfig, RootCertStore};
    use tokio::net::TcpListener;
    use tokio_rustls::TlsConnector;

    use super::*;
    use crate::edge::tls::TlsFiles;

    #[tokio::test]
    async fn the_verified_certificate_of_a_client_is_known_and_none_if_it_has_none() {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let ca = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let key = KeyPair::generate().unwrap();
        let leaf = CertificateParams::new(["localhost".to_owned()]).unwrap().signed_by(&key, &ca).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: String| {
            let file = dir.path().join(name);
            std::fs::write(&file, text).unwrap();
            file
        };
        let tls = Tls::load(TlsFiles {
            certificate: write("server.pem", leaf.pem()),
            key: write("server.key", key.serialize_pem()),
            client_ca: Some(write("ca.pem", ca.pem())),
            require_client_certificate: false,
        })
        .unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(ca.der().clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let client = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let identity = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let known = client.clone().with_client_auth_cert(vec![leaf.der().clone()], identity).unwrap();
        for (config, expected) in [(known, Some(leaf.der())), (client.with_no_client_auth(), None)] {
            let address = listener.local_addr().unwrap();
            let connected = tokio::spawn(async move {
                let stream = TcpStream::connect(address).await.unwrap();
                let name = ServerName::try_from("localhost").unwrap();
                TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap()
            });
            let (stream, _) = listener.accept().await.unwrap();
            let (_, chain) = accept(&tls, stream).await.unwrap();
            assert_eq!(chain.as_ref().and_then(|chain| chain.leaf()), expected.map(|leaf| leaf.as_ref()));
            assert!(chain.is_none_or(|chain| chain.is_trusted()));
            connected.await.unwrap();
        }
    }
}
