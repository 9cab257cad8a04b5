//! Replaces certificate, key and client CA when their files change.
//!
//! The content is compared, not the time of the change or the file: this finds atomic renames, swapped symbolic links
//! (Kubernetes), mounted files and network file systems alike.

use std::time::Duration;

use jiff::Timestamp;
use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval};

use super::Tls;
use super::files::{Contents, Loaded, TlsError};
use crate::metrics::Metrics;

/// How often the files are read. Certificates are replaced days before they expire.
const CHECK_INTERVAL: Duration = Duration::from_secs(10);

/// Checks the files regularly, and whenever [`Tls::check_now`] asks for it. Never ends.
pub(crate) async fn watch(tls: Tls, metrics: Metrics) {
    let current = tls.current();
    metrics.tls_certificate_expires(current.expires_at.as_second());
    if current.expires_at <= Timestamp::now() {
        let (file, expired_at) = (tls.0.files.certificate.display(), current.expires_at);
        tracing::warn!(%file, %expired_at, "the TLS certificate has expired, and clients refuse it; replace the file");
    }
    let mut watch = Watch { seen: Seen::Files(current.fingerprint), tls };
    let mut ticks = interval(CHECK_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            () = watch.tls.0.check.notified() => {}
        }
        let files = watch.tls.0.files.clone();
        // A network file system may take its time.
        let Ok(contents) = spawn_blocking(move || Contents::read(&files)).await else { continue };
        match watch.check(contents) {
            Ok(None) => {}
            Ok(Some(expires_at)) => {
                metrics.tls_certificate_expires(expires_at.as_second());
                let file = watch.tls.0.files.certificate.display();
                tracing::info!(%file, %expires_at, "the new TLS certificate is in use");
            }
            Err(error) => {
                metrics.tls_reload_failed();
                tracing::error!(%error, "the new TLS files are refused; the old certificate stays in use");
            }
        }
    }
}

struct Watch {
    tls: Tls,
    seen: Seen,
}

/// What was seen last. It is not reported twice.
#[derive(PartialEq)]
enum Seen {
    Files(blake3::Hash),
    Error(String),
}

impl Watch {
    /// Uses the files if they changed; the end of the new certificate's validity.
    fn check(&mut self, contents: Result<Contents, TlsError>) -> Result<Option<Timestamp>, TlsError> {
        let contents = match contents {
            Ok(contents) => contents,
            Err(error) => {
                let is_new = self.is_new(Seen::Error(error.to_string()));
                return if is_new { Err(error) } else { Ok(None) };
            }
        };
        let fingerprint = contents.fingerprint();
        if !self.is_new(Seen::Files(fingerprint)) || fingerprint == self.tls.current().fingerprint {
            return Ok(None);
        }
        let loaded = contents.load(&self.tls.0.files)?;
        self.refuse_expired(&loaded)?;
        let expires_at = loaded.expires_at;
        self.tls.replace(loaded);
        Ok(Some(expires_at))
    }

    fn is_new(&mut self, seen: Seen) -> bool {
        let is_new = self.seen != seen;
        self.seen = seen;
        is_new
    }

    fn refuse_expired(&self, loaded: &Loaded) -> Result<(), TlsError> {
        if loaded.expires_at > Timestamp::now() {
            return Ok(());
        }
        let what = format!("has a certificate that expired at {}", loaded.expires_at);
        Err(TlsError::Invalid { file: self.tls.0.files.certificate.clone(), what })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use rcgen::CertifiedKey;

    use super::*;
    use crate::edge::tls::TlsFiles;

    #[tokio::test(start_paused = true)]
    async fn a_changed_file_is_found_without_being_asked_for() {
        let dir = tempfile::tempdir().unwrap();
        let files = TlsFiles {
            certificate: dir.path().join("server.pem"),
            key: dir.path().join("server.key"),
            client_ca: None,
            require_client_certificate: false,
        };
        let issue = || {
            let CertifiedKey { cert, signing_key } =
                rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
            std::fs::write(&files.certificate, cert.pem()).unwrap();
            std::fs::write(&files.key, signing_key.serialize_pem()).unwrap();
        };
        issue();
        let tls = Tls::load(files.clone()).unwrap();
        let watching = tokio::spawn(watch(tls.clone(), Metrics::default()));
        let until = Instant::now() + Duration::from_secs(60);
        // The first check is at the start.
        for _ in 0..2 {
            let old = tls.current().fingerprint;
            issue();
            while tls.current().fingerprint == old {
                assert!(Instant::now() < until, "the change is not found");
                tokio::time::advance(CHECK_INTERVAL).await;
            }
        }
        watching.abort();
    }
}
