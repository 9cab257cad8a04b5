//! The settings of push dispatch.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use url::Url;

use crate::convert::task_token::DEFAULT_TTL;

/// How long a worker has to begin after its target took the task, unless the heartbeat timeout is longer.
const BEGIN_WITHIN: Duration = Duration::from_secs(60);

/// Connections to all targets by default.
const MAX_CONNECTIONS: usize = 1_024;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PushOptions {
    /// Whether a push target may be on a loopback or private address, and speak plain HTTP.
    pub allow_private_targets: bool,
    /// Where targets call back; where the server listens when it is not said.
    pub callback_url: Option<String>,
    /// Most connections to all targets together, as long as there are not more targets than that: each may have one.
    pub max_connections: usize,
    /// How long a task token is valid when its task has no deadline (S1-8).
    pub token_ttl: Duration,
    /// For tests, which do not want to wait a minute.
    pub begin_within: Duration,
}

impl Default for PushOptions {
    fn default() -> PushOptions {
        PushOptions {
            allow_private_targets: false,
            callback_url: None,
            max_connections: MAX_CONNECTIONS,
            token_ttl: DEFAULT_TTL,
            begin_within: BEGIN_WITHIN,
        }
    }
}

impl PushOptions {
    /// What a target puts before `/v1/tasks/…`, without a slash at its end.
    pub fn callback_base_url(&self, listening: SocketAddr, is_tls: bool) -> String {
        match &self.callback_url {
            Some(url) => url.trim_end_matches('/').to_owned(),
            None => format!("{}://{}", if is_tls { "https" } else { "http" }, reachable(listening)),
        }
    }

    /// Whether only targets on this machine can call back, though the server can be reached from elsewhere.
    pub fn is_guessed(&self, listening: SocketAddr) -> bool {
        self.callback_url.is_none() && listening.ip().is_unspecified()
    }
}

/// What is wrong with a callback URL.
pub fn fault_of_callback_url(text: &str) -> Option<String> {
    let url = match Url::parse(text) {
        Ok(url) => url,
        Err(error) => return Some(format!("is no URL: {error}")),
    };
    if !matches!(url.scheme(), "http" | "https") || url.host().is_none() {
        Some("must begin with http:// or https://".to_owned())
    } else if !url.username().is_empty() || url.password().is_some() {
        Some("must not carry a user name or password".to_owned())
    } else if url.query().is_some() || url.fragment().is_some() {
        Some("must not have a query or a fragment: paths are put behind it".to_owned())
    } else {
        None
    }
}

fn reachable(listening: SocketAddr) -> SocketAddr {
    let ip = match listening.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, listening.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s1_4_targets_call_back_to_where_the_server_listens_unless_told() {
        let base = |options: &PushOptions, at: &str| options.callback_base_url(at.parse().unwrap(), false);
        let options = PushOptions::default();
        assert_eq!(base(&options, "10.1.2.3:80"), "http://10.1.2.3:80");
        assert_eq!(base(&options, "0.0.0.0:8980"), "http://127.0.0.1:8980");
        assert_eq!(base(&options, "[::]:8980"), "http://[::1]:8980");
        let tls = options.callback_base_url("10.1.2.3:80".parse().unwrap(), true);
        assert_eq!(tls, "https://10.1.2.3:80");
        assert!(options.is_guessed("[::]:8980".parse().unwrap()));
        let told = PushOptions { callback_url: Some("https://lessor.example/base/".into()), ..options };
        assert_eq!(base(&told, "0.0.0.0:8980"), "https://lessor.example/base");
        assert!(!told.is_guessed("0.0.0.0:8980".parse().unwrap()));
    }

    #[test]
    fn a_callback_url_is_one_that_paths_can_be_put_behind() {
        for good in ["http://a", "https://a.example/x", "http://[::1]:80/"] {
            assert_eq!(fault_of_callback_url(good), None, "{good}");
        }
        for bad in ["", "a.example", "ftp://a", "http://u:p@a", "http://a?x=1", "http://a#x", "mailto:x@y"] {
            assert!(fault_of_callback_url(bad).is_some(), "{bad}");
        }
    }
}
