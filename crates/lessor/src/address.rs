//! Parses listen addresses.

use std::net::SocketAddr;

use serde::{Deserialize, Deserializer, de};

/// Parses an IP address and a port. A host name would need a lookup and may have several addresses, so only `localhost`
/// is accepted.
pub(crate) fn parse(text: &str) -> Result<SocketAddr, String> {
    let local = text.strip_prefix("localhost:").map(|port| format!("127.0.0.1:{port}"));
    local.as_deref().unwrap_or(text).parse().map_err(|_| {
        "an address is an IP address and a port, such as 127.0.0.1:8980, or [::]:8980 for all addresses"
            .to_owned()
    })
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SocketAddr, D::Error> {
    parse(&String::deserialize(deserializer)?).map_err(de::Error::custom)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_a_port_and_may_be_localhost() {
        for (text, address) in
            [("127.0.0.1:8980", "127.0.0.1:8980"), ("[::]:8980", "[::]:8980"), ("localhost:0", "127.0.0.1:0")]
        {
            assert_eq!(parse(text), Ok(address.parse().unwrap()), "{text}");
        }
    }

    #[test]
    fn a_bad_address_is_refused_with_an_example() {
        for text in ["", "nowhere", ":8980", "localhost", "localhost:", "127.0.0.1", "example.com:8980"] {
            assert!(parse(text).unwrap_err().contains("127.0.0.1:8980"), "{text}");
        }
    }
}
