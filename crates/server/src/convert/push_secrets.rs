//! Encrypts the secrets of push targets, which are their header values and the secret that signs, with a key of the data
//! directory. Copies of the ledger, its backups and dumps of its records then have none of them in clear.
//!
//! A sealed text is `sealed-1:` and, in base64, the nonce and the ciphertext. The nonce is derived from the text and from the
//! place where it stands, so the same configuration gives the same record, and no nonce serves two texts. A text without the
//! prefix was stored in clear by an earlier version.

use std::sync::Arc;

use authority::{PushTarget, QueueKey};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::error::Unspecified;
use ring::hkdf::{HKDF_SHA256, Salt};

const PREFIX: &str = "sealed-1:";
const SALT: &[u8] = b"lessor 2026 push secrets";

/// None if the keys could not be derived, which the lengths rule out.
pub(crate) struct PushSecrets(Option<Keys>);

struct Keys {
    encryption: LessSafeKey,
    nonce: [u8; 32],
}

/// A text that was sealed with another key, or for another place, or that was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("its secrets cannot be decrypted with the key of this data directory; configure the target anew")]
pub(crate) struct CannotOpen;

impl PushSecrets {
    pub(crate) fn new(lease_key: &[u8; 32]) -> PushSecrets {
        PushSecrets(Keys::derive(lease_key).ok())
    }

    /// The target as the ledger keeps it.
    pub(crate) fn seal_target(
        &self,
        queue: &QueueKey,
        target: &PushTarget,
    ) -> Result<PushTarget, Unspecified> {
        let keys = self.0.as_ref().ok_or(Unspecified)?;
        convert(queue, target, |place, text| keys.seal(place, text))
    }

    /// The target as it is called.
    pub(crate) fn open_target(
        &self,
        queue: &QueueKey,
        target: &PushTarget,
    ) -> Result<PushTarget, CannotOpen> {
        let keys = self.0.as_ref().ok_or(CannotOpen)?;
        convert(queue, target, |place, text| keys.open(place, text))
    }
}

/// Converts every secret of a target, with the place that it is for.
fn convert<E>(
    queue: &QueueKey,
    target: &PushTarget,
    each: impl Fn(&str, &str) -> Result<String, E>,
) -> Result<PushTarget, E> {
    let place = |field: &str| {
        let scope = &queue.scope;
        // No name has a control character.
        [&*scope.tenant, &*scope.workspace, &*queue.name, field].join("\n")
    };
    let mut headers = Vec::with_capacity(target.headers.len());
    for (name, value) in &target.headers {
        headers.push((name.clone(), each(&place(&format!("header {name}")), value)?.into()));
    }
    let secret = target.secret.as_ref().map(|secret| each(&place("secret"), secret)).transpose()?;
    let (url, concurrency) = (target.url.clone(), target.concurrency);
    Ok(PushTarget { url, concurrency, headers, secret: secret.map(Arc::from) })
}

impl Keys {
    fn derive(lease_key: &[u8; 32]) -> Result<Keys, Unspecified> {
        let derived = Salt::new(HKDF_SHA256, SALT).extract(lease_key);
        let encryption = UnboundKey::from(derived.expand(&[&b"encryption"[..]], &CHACHA20_POLY1305)?);
        let mut nonce = [0; 32];
        derived.expand(&[&b"nonce"[..]], HKDF_SHA256)?.fill(&mut nonce)?;
        Ok(Keys { encryption: LessSafeKey::new(encryption), nonce })
    }

    fn seal(&self, place: &str, text: &str) -> Result<String, Unspecified> {
        let mut bytes = text.as_bytes().to_vec();
        let nonce = self.nonce_of(place, text);
        let aad = Aad::from(place.as_bytes());
        self.encryption.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), aad, &mut bytes)?;
        Ok(format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode([&nonce[..], &bytes].concat())))
    }

    fn open(&self, place: &str, stored: &str) -> Result<String, CannotOpen> {
        let Some(encoded) = stored.strip_prefix(PREFIX) else { return Ok(stored.to_owned()) };
        let bytes = URL_SAFE_NO_PAD.decode(encoded).map_err(|_| CannotOpen)?;
        let (nonce, sealed) = bytes.split_first_chunk::<NONCE_LEN>().ok_or(CannotOpen)?;
        let (nonce, mut sealed) = (Nonce::assume_unique_for_key(*nonce), sealed.to_vec());
        let aad = Aad::from(place.as_bytes());
        let text = self.encryption.open_in_place(nonce, aad, &mut sealed).map_err(|_| CannotOpen)?;
        String::from_utf8(text.to_vec()).map_err(|_| CannotOpen)
    }

    fn nonce_of(&self, place: &str, text: &str) -> [u8; NONCE_LEN] {
        let mut hasher = blake3::Hasher::new_keyed(&self.nonce);
        hasher.update(&(place.len() as u64).to_le_bytes()).update(place.as_bytes()).update(text.as_bytes());
        let mut nonce = [0; NONCE_LEN];
        hasher.finalize_xof().fill(&mut nonce);
        nonce
    }
}

#[cfg(test)]
mod tests {
    use authority::Scope;

    use super::*;

    const SECRET: &str = "0123456789abcdef";

    fn queue(name: &str) -> QueueKey {
        QueueKey { scope: Scope { tenant: "t".into(), workspace: "w".into() }, name: name.into() }
    }

    fn target() -> PushTarget {
        PushTarget {
            url: "https://example.com/hook".into(),
            concurrency: 10,
            headers: vec![("authorization".into(), "Bearer hush".into()), ("x".into(), "".into())],
            secret: Some(SECRET.into()),
        }
    }

    fn secrets(byte: u8) -> PushSecrets {
        PushSecrets::new(&[byte; 32])
    }

    #[test]
    fn a_sealed_target_has_no_secret_in_clear_and_opens_with_its_key() {
        let sealed = secrets(1).seal_target(&queue("q"), &target()).unwrap();
        let texts: Vec<_> = sealed.headers.iter().map(|(_, value)| value).chain(&sealed.secret).collect();
        assert!(texts.iter().all(|text| text.starts_with(PREFIX) && !text.contains("hush")), "{texts:?}");
        assert_eq!(secrets(1).open_target(&queue("q"), &sealed), Ok(target()));
        assert_eq!(secrets(1).seal_target(&queue("q"), &target()).unwrap(), sealed, "the same record");
    }

    #[test]
    fn another_key_another_queue_and_a_changed_text_are_refused() {
        let sealed = secrets(1).seal_target(&queue("q"), &target()).unwrap();
        assert_eq!(secrets(2).open_target(&queue("q"), &sealed), Err(CannotOpen));
        assert_eq!(secrets(1).open_target(&queue("other"), &sealed), Err(CannotOpen));
        for changed in
            ["sealed-1:", "sealed-1:AAAA", "sealed-1:~", &format!("{}A", sealed.secret.clone().unwrap())]
        {
            let changed = PushTarget { secret: Some(changed.into()), ..sealed.clone() };
            assert_eq!(secrets(1).open_target(&queue("q"), &changed), Err(CannotOpen), "{changed:?}");
        }
    }

    #[test]
    fn a_target_of_an_earlier_version_is_read_as_it_is() {
        assert_eq!(secrets(1).open_target(&queue("q"), &target()), Ok(target()));
    }

    #[test]
    fn the_largest_target_fits_when_it_is_sealed() {
        let headers = (0..32).map(|n| (Arc::from(format!("h{n:02}")), Arc::from("v".repeat(253))));
        let target =
            PushTarget { headers: headers.collect(), secret: Some("s".repeat(256).into()), ..target() };
        assert_eq!(target.check(), Ok(()));
        let sealed = secrets(1).seal_target(&queue("q"), &target).unwrap();
        assert_eq!(sealed.check_sealed(), Ok(()));
    }
}
