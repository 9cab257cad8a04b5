//! The payload on the command line: JSON, or where to read it from.

use std::io::Read;
use std::path::PathBuf;

use wire::Json;

use crate::client::Error;

#[derive(Clone, Debug)]
pub(crate) enum Payload {
    Inline(Json),
    StandardInput,
    File(PathBuf),
}

impl Payload {
    /// Refuses what is not JSON before anything is sent, and shows how to write it.
    pub(crate) fn parse(text: &str) -> Result<Payload, String> {
        match text.strip_prefix('@') {
            Some("") => Err("@ is followed by the name of a file".to_owned()),
            Some(path) => Ok(Payload::File(path.into())),
            None if text == "-" => Ok(Payload::StandardInput),
            None => Json::from_text(text).map(Payload::Inline).map_err(|error| hint(text, &error)),
        }
    }

    pub(super) fn read(&self) -> Result<Json, Error> {
        let (name, text) = match self {
            Payload::Inline(json) => return Ok(json.clone()),
            Payload::StandardInput => {
                let mut text = String::new();
                let read = std::io::stdin().read_to_string(&mut text);
                ("standard input".to_owned(), read.map(|_| text))
            }
            Payload::File(path) => (path.display().to_string(), std::fs::read_to_string(path)),
        };
        let text =
            text.map_err(|error| Error::Usage(format!("cannot read the payload from {name}: {error}")))?;
        Json::from_text(text.trim())
            .map_err(|error| Error::Usage(format!("the payload from {name} is not JSON: {error}")))
    }
}

fn hint(text: &str, error: &serde_json::Error) -> String {
    if text.starts_with(['{', '[', '"']) {
        return format!(
            "it is not JSON ({error}); put single quotes around it, so that the shell leaves the double ones: \
             '{{\"name\":\"world\"}}'"
        );
    }
    let quoted = serde_json::to_string(text).unwrap_or_default().replace('\'', r"'\''");
    format!("the payload must be JSON; as a string it is written '{quoted}', with both kinds of quotes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_is_json_or_says_where_it_is() {
        assert!(matches!(Payload::parse(r#"{"a":1}"#), Ok(Payload::Inline(_))));
        assert!(matches!(Payload::parse("-5"), Ok(Payload::Inline(_))));
        assert!(matches!(Payload::parse("-"), Ok(Payload::StandardInput)));
        assert!(matches!(Payload::parse("@a.json"), Ok(Payload::File(path)) if path.as_os_str() == "a.json"));
    }

    #[test]
    fn a_plain_word_is_refused_with_its_quotes_shown() {
        assert!(Payload::parse("world").unwrap_err().contains(r#"'"world"'"#));
        assert!(Payload::parse("it's").unwrap_err().contains(r#"'"it'\''s"'"#));
        assert!(Payload::parse("{name:world}").unwrap_err().contains("single quotes"));
        assert!(Payload::parse("@").unwrap_err().contains("name of a file"));
    }
}
