//! Text from strangers, made safe to show. Workers write error messages, and a terminal obeys escape sequences.

use std::fmt::Write;

/// The text with every control character spelt out.
pub(crate) fn clean(text: &str) -> String {
    text.chars().fold(String::with_capacity(text.len()), |mut clean, c| {
        if c.is_control() {
            let _ = write!(clean, "{}", c.escape_default());
        } else {
            clean.push(c);
        }
        clean
    })
}

/// The number with its noun, in the plural unless it is 1.
pub(crate) fn counted(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// The text in one line of at most so many characters.
pub(crate) fn short(text: &str, max_chars: usize) -> String {
    let clean = clean(text);
    match clean.char_indices().nth(max_chars) {
        None => clean,
        Some(_) => {
            let end = clean.char_indices().nth(max_chars.saturating_sub(1)).map_or(0, |(at, _)| at);
            format!("{}…", &clean[..end])
        }
    }
}

/// JSON with line breaks, where it is JSON.
pub(crate) fn pretty(json: &wire::Json) -> String {
    let value = json.read::<serde_json::Value>().and_then(|value| serde_json::to_string_pretty(&value));
    lines(&value.unwrap_or_else(|_| json.to_string()))
}

/// A text that keeps its lines.
pub(crate) fn lines(text: &str) -> String {
    text.lines().map(clean).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_spelt_out() {
        assert_eq!(clean("a\u{1b}[31mb\r\n\u{9b}c ü"), "a\\u{1b}[31mb\\r\\n\\u{9b}c ü");
    }

    #[test]
    fn a_long_text_is_cut_between_characters() {
        assert_eq!(short("äöüß", 4), "äöüß");
        assert_eq!(short("äöüßx", 4), "äöü…");
    }

    #[test]
    fn json_is_broken_into_lines() {
        let json = wire::Json::from_text(r#"{"a":[1],"b":"x\ny"}"#).unwrap();
        assert_eq!(pretty(&json), "{\n  \"a\": [\n    1\n  ],\n  \"b\": \"x\\ny\"\n}");
    }
}
