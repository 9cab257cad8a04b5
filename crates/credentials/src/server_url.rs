//! Parses the URLs of servers.

use url::{Host, Url};

/// Parses the URL of a server into http or https. It may omit the scheme, which is then http; `grpc` and `grpcs` mean the
/// same port.
pub fn parse_url(text: &str) -> Result<Url, String> {
    let (scheme, rest) = text.split_once("://").unwrap_or(("http", text));
    let scheme = match scheme.to_ascii_lowercase().as_str() {
        "http" | "grpc" => "http",
        "https" | "grpcs" => "https",
        other => return Err(format!("{other} is not supported, only http, https, grpc and grpcs")),
    };
    if rest.is_empty() || rest.starts_with('/') {
        return Err("it names no host".to_owned());
    }
    let url = Url::parse(&format!("{scheme}://{rest}")).map_err(|error| error.to_string())?;
    if !url.username().is_empty() || url.password().is_some() {
        return Err("it must not contain a user name or password; use an API key".to_owned());
    }
    Ok(url)
}

pub(crate) fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name.eq_ignore_ascii_case("localhost"),
        Some(Host::Ipv4(ip)) => ip.is_loopback(),
        Some(Host::Ipv6(ip)) => ip.to_canonical().is_loopback(),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_may_omit_the_scheme_or_have_that_of_grpc() {
        for (text, url) in [
            ("127.0.0.1:8980", "http://127.0.0.1:8980/"),
            ("http://host/lessor", "http://host/lessor"),
            ("https://host:8980", "https://host:8980/"),
            ("grpc://host:1", "http://host:1/"),
            ("grpcs://host:1", "https://host:1/"),
            ("GRPCS://host:1", "https://host:1/"),
        ] {
            assert_eq!(parse_url(text).unwrap().as_str(), url, "{text}");
        }
    }

    #[test]
    fn a_url_that_cannot_be_used_is_refused() {
        assert!(parse_url("ftp://host").unwrap_err().contains("ftp is not supported"));
        for url in ["ftp://host", "http://", "https:///x", "http://host:port", "x y", "https://me:key@host"] {
            assert!(parse_url(url).is_err(), "{url}");
        }
    }
}
