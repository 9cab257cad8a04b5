//! Lines of the audit trail.

use crate::edge::audit_trail::AuditLine;
use crate::edge::audit_trail::chain::{ChainKey, GENESIS, parse};

use super::SECRET;

/// Parses a line. It can be sealed, and the sealed line says the same.
pub fn audit_line(text: &str) {
    let (key, parsed) = (ChainKey::new(&SECRET), parse(text));
    if key.check(text).is_some() {
        assert!(sound_audit_lines().contains(text), "nobody else can seal a line");
    }
    let Some((line, _)) = parsed else { return };
    let Ok((sealed, hash)) = key.seal(&line) else { panic!("a line cannot be sealed") };
    let sealed = sealed.trim_end_matches('\n');
    assert_eq!(key.check(sealed), Some(hash), "a sealed line is sound");
    assert_eq!(parse(sealed), Some((line, hash)), "a sealed line says what was sealed");
}

/// The lines of a sound file.
pub fn sound_audit_lines() -> String {
    let (key, mut text, mut last) = (ChainKey::new(&SECRET), String::new(), GENESIS);
    for seq in 1..=3 {
        let line = AuditLine {
            seq,
            position: 10 * seq,
            audit: "allowed".into(),
            who: Some("ci \"bot\"".into()),
            path: Some("/v1/keys".into()),
            status: Some(201),
            prev: last.to_string(),
            ..AuditLine::default()
        };
        if let Ok((sealed, hash)) = key.seal(&line) {
            text.push_str(&sealed);
            last = hash;
        }
    }
    text
}
