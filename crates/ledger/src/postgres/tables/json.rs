//! Which contents PostgreSQL can store as `jsonb`. An append must never fail for a payload that it cannot.

use std::borrow::Cow;

use data_encoding::BASE64;

/// Deeper content could exceed the stack of the server.
const MAX_DEPTH: usize = 128;
/// `numeric`, which holds the numbers of `jsonb`, has a range; longer numbers or exponents may leave it.
const MAX_NUMBER_BYTES: usize = 300;
const MAX_EXPONENT_DIGITS: usize = 3;

/// The content as text for `jsonb`; none where it is too large or `jsonb` cannot hold it. Content that is not JSON is shown
/// in base64, as the API does.
pub(super) fn to_jsonb(content: &[u8], max_bytes: usize) -> Option<Cow<'_, str>> {
    if content.len() > max_bytes {
        return None;
    }
    let parsed = std::str::from_utf8(content).ok().filter(|text| is_json(text));
    match parsed {
        Some(text) => is_storable(text).then_some(Cow::Borrowed(text)),
        None => Some(Cow::Owned(format!("\"{}\"", BASE64.encode(content)))),
    }
}

fn is_json(text: &str) -> bool {
    serde_json::from_str::<&serde_json::value::RawValue>(text).is_ok()
}

/// JSON that `jsonb` refuses: the character NUL, half a surrogate pair, deep nesting, extreme numbers.
fn is_storable(text: &str) -> bool {
    let bytes = text.as_bytes();
    let (mut at, mut depth) = (0, 0_usize);
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' => match end_of_string(bytes, at + 1) {
                Some(end) => at = end,
                None => return false,
            },
            b'[' | b'{' => {
                depth += 1;
                at += 1;
                if depth > MAX_DEPTH {
                    return false;
                }
            }
            b']' | b'}' => {
                depth = depth.saturating_sub(1);
                at += 1;
            }
            b'-' | b'0'..=b'9' => {
                let number = |byte: &u8| matches!(byte, b'-' | b'+' | b'.' | b'e' | b'E' | b'0'..=b'9');
                let length = bytes[at..].iter().take_while(|byte| number(byte)).count();
                let exponent = text[at..at + length].split(['e', 'E']).nth(1);
                let digits =
                    exponent.map_or(0, |exponent| exponent.trim_start_matches(['-', '+', '0']).len());
                if length > MAX_NUMBER_BYTES || digits > MAX_EXPONENT_DIGITS {
                    return false;
                }
                at += length;
            }
            _ => at += 1,
        }
    }
    true
}

/// The position after the closing quote; none when the string holds what `jsonb` refuses.
fn end_of_string(bytes: &[u8], begin: usize) -> Option<usize> {
    let mut at = begin;
    let mut high_surrogate = false;
    loop {
        let byte = *bytes.get(at)?;
        let escape = (byte == b'\\').then(|| bytes.get(at + 1).copied()).flatten();
        let unit = (escape == Some(b'u')).then(|| bytes.get(at + 2..at + 6)).flatten();
        let unit = unit.and_then(|hex| u16::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok());
        let is_low = unit.is_some_and(|unit| (0xdc00..0xe000).contains(&unit));
        if high_surrogate != is_low || unit == Some(0) {
            return None;
        }
        high_surrogate = unit.is_some_and(|unit| (0xd800..0xdc00).contains(&unit));
        at += match (byte, escape, unit) {
            (b'"', _, _) => return Some(at + 1),
            (_, _, Some(_)) => 6,
            (_, Some(_), None) => 2,
            _ => 1,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(content: &str) -> Option<String> {
        to_jsonb(content.as_bytes(), 1 << 20).map(Cow::into_owned)
    }

    #[test]
    fn json_is_stored_as_it_is() {
        for text in [r#"{"a": [1, -2.5e10, "x\"\\ü😀"]}"#, "null", r#""\n""#, "\"\\ud83d\\ude00\""] {
            assert_eq!(stored(text).as_deref(), Some(text));
        }
    }

    #[test]
    fn what_jsonb_refuses_is_left_out() {
        let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
        let long = "9".repeat(400);
        let refused = [r#""a\u0000""#, r#"{"\u0000":1}"#, r#""\ud83d""#, r#""\ude00 ""#, "1e99999"];
        for text in refused.into_iter().chain([&*deep, &*long]) {
            assert_eq!(stored(text), None, "{text}");
        }
        assert_eq!(stored(r#""\\u0000""#).as_deref(), Some(r#""\\u0000""#), "a backslash, and no escape");
    }

    #[test]
    fn other_content_is_shown_in_base64_and_large_content_is_left_out() {
        assert_eq!(to_jsonb(b"\xff\x00", 10).as_deref(), Some("\"/wA=\""));
        assert_eq!(to_jsonb(b"[1,2,3]", 6), None);
    }
}
