//! The name of one dispatch: the same each time that an attempt is sent, another for each attempt.

use data_encoding::BASE32_NOPAD;
use sha2::{Digest, Sha256};

/// 130 bits of the hash.
const CHARS: usize = 26;

pub(super) fn dispatch_id(run_id: &str, task_id: &str, task_key: &str, attempt: u32) -> String {
    let hash = Sha256::digest(format!("dispatch:{run_id}:{task_id}:{task_key}:{attempt}"));
    let text = BASE32_NOPAD.encode(&hash).to_ascii_lowercase();
    format!("d_{}", &text[..CHARS])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Computed with Python's hashlib and base64.
    #[test]
    fn a_dispatch_is_named_as_documented() {
        assert_eq!(dispatch_id("run_1", "task_1", "mail", 1), "d_fh7ni5wipyqluwrteifsrqeoma");
    }

    #[test]
    fn every_part_counts() {
        let ids = [
            dispatch_id("r", "t", "k", 1),
            dispatch_id("s", "t", "k", 1),
            dispatch_id("r", "u", "k", 1),
            dispatch_id("r", "t", "l", 1),
            dispatch_id("r", "t", "k", 2),
        ];
        for (n, id) in ids.iter().enumerate() {
            assert!(id.len() == 28 && !ids[n + 1..].contains(id));
        }
    }
}
