//! Which server to talk to, on whose behalf, and how to show what it says: the options that all client commands share.

use reqwest::Url;
use reqwest::header::HeaderValue;
use wire::DEFAULT_SCOPE_NAME;

/// Below a command's own options.
const LAST: usize = 900;

#[derive(clap::Args)]
pub struct Connection {
    /// Print one JSON document instead of text for people; points in time are in RFC 3339
    #[arg(long, global = true, display_order = LAST)]
    pub json: bool,

    /// The server to talk to
    #[arg(
        long,
        global = true,
        help_heading = "Server",
        value_name = "URL",
        env = "LESSOR_URL",
        default_value = "http://127.0.0.1:8980",
        value_parser = parse_url
    )]
    pub url: Url,

    /// The tenant to act for
    #[arg(
        long,
        global = true,
        help_heading = "Server",
        value_name = "NAME",
        env = "LESSOR_TENANT",
        default_value = DEFAULT_SCOPE_NAME,
        value_parser = parse_header
    )]
    pub tenant: HeaderValue,

    /// The tenant's workspace to act in
    #[arg(
        long,
        global = true,
        help_heading = "Server",
        value_name = "NAME",
        env = "LESSOR_WORKSPACE",
        default_value = DEFAULT_SCOPE_NAME,
        value_parser = parse_header
    )]
    pub workspace: HeaderValue,
}

/// Reads the address of a server, which may leave out the scheme.
pub fn parse_url(text: &str) -> Result<Url, String> {
    let with_scheme = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
    let url = Url::parse(&with_scheme).map_err(|error| error.to_string())?;
    match (url.scheme(), url.host_str()) {
        ("http", Some(_)) => Ok(url),
        ("http", None) => Err("it names no host".to_owned()),
        (other, _) => Err(format!("{other} is not supported, only http")),
    }
}

/// The same as a text that gRPC clients take.
pub fn parse_grpc_url(text: &str) -> Result<String, String> {
    parse_url(text).map(|url| url.as_str().trim_end_matches('/').to_owned())
}

fn parse_header(text: &str) -> Result<HeaderValue, String> {
    HeaderValue::from_str(text)
        .map_err(|_| "a name is sent as a header and must be printable ASCII".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_may_leave_out_the_scheme() {
        assert_eq!(parse_url("127.0.0.1:8980").unwrap().as_str(), "http://127.0.0.1:8980/");
        assert_eq!(parse_url("http://host/lessor").unwrap().as_str(), "http://host/lessor");
    }

    #[test]
    fn a_url_that_cannot_be_reached_is_refused() {
        assert!(parse_url("https://host").unwrap_err().contains("https is not supported"));
        assert!(parse_url("http://").is_err());
        assert!(parse_url("http://host:port").is_err());
        assert!(parse_url("x y").is_err());
    }

    #[test]
    fn a_url_for_grpc_has_a_scheme_and_no_slash_at_its_end() {
        for text in ["host:8980", "http://host:8980", "http://host:8980/"] {
            assert_eq!(parse_grpc_url(text).unwrap(), "http://host:8980", "{text}");
        }
        assert!(parse_grpc_url("https://host").is_err());
    }
}
