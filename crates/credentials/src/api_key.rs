//! An API key that no log, error or debug output can contain.

use std::fmt;
use std::path::Path;

use crate::{Error, invalid, read};

/// Longest key. Longer files hold something else.
const MAX_KEY_BYTES: usize = 4_096;

#[derive(Clone, PartialEq, Eq)]
pub struct ApiKey(String);

impl ApiKey {
    /// A key without the white space around it; None if it cannot be sent in a header.
    pub fn new(text: &str) -> Option<ApiKey> {
        let text = text.trim();
        let is_key =
            !text.is_empty() && text.len() <= MAX_KEY_BYTES && text.bytes().all(|c| c.is_ascii_graphic());
        is_key.then(|| ApiKey(text.to_owned()))
    }

    pub(crate) fn read(file: &Path) -> Result<ApiKey, Error> {
        let text = String::from_utf8(read(file)?).ok();
        text.and_then(|text| ApiKey::new(&text)).ok_or_else(|| {
            invalid(file, "has no API key: it must be one line of printable ASCII without spaces")
        })
    }

    /// The value of the header `authorization`.
    pub(crate) fn bearer(&self) -> String {
        format!("Bearer {}", self.0)
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}
