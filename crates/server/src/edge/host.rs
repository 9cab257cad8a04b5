//! Checks the host that a request names. A web page can reach a server under a name of its own that it points here, and would
//! then read the answers as its own (DNS rebinding).

use std::net::IpAddr;

use axum::extract::Request;
use axum::http::header;

use crate::convert::{Code, Problem};

pub(crate) fn check(request: &Request, allowed_hosts: &[String]) -> Result<(), Problem> {
    let authority = request.uri().authority().map(|authority| authority.as_str().as_bytes());
    let headers = request.headers().get_all(header::HOST).iter().map(|host| host.as_bytes());
    let is_allowed = |host: &[u8]| {
        std::str::from_utf8(host).is_ok_and(|host| {
            let name = without_port(host);
            cannot_be_rebound(host) || allowed_hosts.iter().any(|known| known.eq_ignore_ascii_case(name))
        })
    };
    // Programs that name no host are no browsers.
    let Some(unknown) = authority.into_iter().chain(headers).find(|host| !is_allowed(host)) else {
        return Ok(());
    };
    let detail = format!(
        "this server is not known as {}; call it by its address or as localhost, or add the name to server.allowed_hosts \
         (--allowed-host)",
        String::from_utf8_lossy(unknown)
    );
    Err(Problem::new(Code::UnknownHost, detail))
}

/// A name that somebody else's DNS answers for may point here to make its pages look like ours; an address cannot.
pub(super) fn cannot_be_rebound(host: &str) -> bool {
    let name = without_port(host);
    let address = name.trim_start_matches('[').trim_end_matches(']');
    name.eq_ignore_ascii_case("localhost") || address.parse::<IpAddr>().is_ok()
}

fn without_port(host: &str) -> &str {
    let port = host.rsplit_once(':').filter(|(_, port)| port.bytes().all(|c| c.is_ascii_digit()));
    port.map_or(host, |(name, _)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_and_localhost_cannot_be_rebound() {
        for host in ["127.0.0.1", "127.0.0.1:8980", "[::1]:8980", "[::1]", "LOCALHOST", "localhost:1"] {
            assert!(cannot_be_rebound(host), "{host}");
        }
        for host in [
            "",
            "evil.example",
            "evil.example:8980",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            ":80",
        ] {
            assert!(!cannot_be_rebound(host), "{host}");
        }
    }
}
