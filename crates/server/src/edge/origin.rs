//! Keeps web pages of other origins from changing anything. A browser on the same machine can reach a local
//! coordinator, and it sends some cross-origin requests without asking first.

use axum::extract::Request;
use axum::http::{HeaderMap, Method, header};

use crate::convert::{Code, Problem};
use crate::edge::host::cannot_be_rebound;

pub(super) fn check(request: &Request) -> Result<(), Problem> {
    let safe = matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS);
    let host = request.uri().authority().map(|authority| authority.as_str());
    if safe || is_same(request.headers(), host) {
        return Ok(());
    }
    Err(Problem::new(Code::CrossOrigin, "the request comes from a web page of another origin"))
}

/// Programs other than browsers send no origin.
fn is_same(headers: &HeaderMap, authority: Option<&str>) -> bool {
    // Newer browsers say outright that a page of another site sent the request.
    let site = headers.get("sec-fetch-site").map(|site| site.as_bytes());
    if site.is_some_and(|site| site != b"same-origin" && site != b"none") {
        return false;
    }
    let Some(origin) = headers.get(header::ORIGIN) else { return true };
    let host = authority.or_else(|| headers.get(header::HOST).and_then(|host| host.to_str().ok()));
    let origin = origin.to_str().ok().and_then(|origin| origin.split_once("://"));
    match (origin, host) {
        (Some((_, origin)), Some(host)) => origin.eq_ignore_ascii_case(host) && cannot_be_rebound(host),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn same(origin: Option<&'static str>) -> bool {
        let mut headers = HeaderMap::from_iter([(header::HOST, HeaderValue::from_static("127.0.0.1:8980"))]);
        origin.map(|origin| headers.insert(header::ORIGIN, HeaderValue::from_static(origin)));
        is_same(&headers, None)
    }

    #[test]
    fn only_pages_from_here_may_change_something() {
        assert!(same(None));
        assert!(same(Some("http://127.0.0.1:8980")));
        assert!(!same(Some("https://evil.example")));
        assert!(!same(Some("http://127.0.0.1:80")));
        assert!(!same(Some("null")));
    }

    #[test]
    fn a_browser_that_says_it_comes_from_elsewhere_is_believed() {
        for (site, expected) in
            [("same-origin", true), ("none", true), ("same-site", false), ("cross-site", false)]
        {
            let headers = HeaderMap::from_iter([
                (header::HOST, HeaderValue::from_static("localhost:8980")),
                (header::ORIGIN, HeaderValue::from_static("http://localhost:8980")),
                (header::HeaderName::from_static("sec-fetch-site"), HeaderValue::from_static(site)),
            ]);
            assert_eq!(is_same(&headers, None), expected, "{site}");
        }
    }

    #[test]
    fn a_page_whose_name_was_rebound_to_this_address_changes_nothing() {
        for (host, expected) in [
            ("evil.example:8980", false),
            ("evil.example", false),
            ("[::1]:8980", true),
            ("localhost", true),
            ("10.0.0.1", true),
        ] {
            let headers = HeaderMap::from_iter([
                (header::HOST, HeaderValue::from_static(host)),
                (header::ORIGIN, HeaderValue::try_from(format!("http://{host}")).unwrap()),
            ]);
            assert_eq!(is_same(&headers, None), expected, "{host}");
        }
    }
}
