//! Checks the addresses of push targets. Whoever may configure a queue makes this server call an address of their
//! choice, so by default that is only what anyone on the internet could call: `https`, to public addresses, on the
//! ports of `https`.
//!
//! The URL is checked when it is configured, for what can be seen without looking up a name. Every address that a name
//! stands for is checked before each connection, and the connection goes to one of those.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{Ipv4Net, Ipv6Net};
use url::{Host, Url};

/// The ports that a target on the internet may have.
const PUBLIC_PORTS: [u16; 2] = [443, 8443];

/// Whoever is refused should know the way out.
const WAY_OUT: &str = "the server must be started with --allow-private-push-targets for that";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Guard {
    allow_private: bool,
}

/// Why an address is not called.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Refused(String);

impl Guard {
    pub(crate) fn new(allow_private: bool) -> Guard {
        Guard { allow_private }
    }

    /// The URL as it will be called. Every spelling of an IP address comes out as the address that it means.
    pub(crate) fn url(self, text: &str) -> Result<Url, Refused> {
        let refuse = |what: &str| Err(Refused(what.to_owned()));
        if text.chars().any(|c| c.is_control() || c.is_whitespace() || c == '\\') {
            return refuse("must not contain white space, control characters or backslashes");
        }
        // The parser reads a host into almost anything.
        if text.split_once("://").is_none_or(|(_, rest)| rest.starts_with('/')) {
            return refuse("must begin with https:// and a host");
        }
        let url = Url::parse(text).map_err(|error| Refused(format!("is no URL: {error}")))?;
        match url.scheme() {
            "https" => {}
            "http" if self.allow_private => {}
            "http" => return Err(Refused(format!("must begin with https://; {WAY_OUT}"))),
            _ => return refuse("must begin with https://"),
        }
        if !url.username().is_empty() || url.password().is_some() {
            return refuse("must not carry a user name or password; a header can");
        }
        if url.fragment().is_some() {
            return refuse("must not have a fragment, which no server would see");
        }
        match url.host() {
            Some(Host::Ipv4(ip)) => self.address(ip.into())?,
            Some(Host::Ipv6(ip)) => self.address(ip.into())?,
            Some(Host::Domain(name)) if !self.allow_private && is_local_name(name) => {
                return Err(Refused(format!("must not name this machine; {WAY_OUT}")));
            }
            Some(Host::Domain(name)) if !name.is_empty() => {}
            _ => return refuse("must name a host"),
        }
        match url.port_or_known_default() {
            Some(port) if self.allow_private && port != 0 => Ok(url),
            Some(port) if PUBLIC_PORTS.contains(&port) => Ok(url),
            _ => {
                let ports = PUBLIC_PORTS.map(|port| port.to_string()).join(" or ");
                Err(Refused(format!("must have the port {ports}; {WAY_OUT}")))
            }
        }
    }

    pub(crate) fn address(self, ip: IpAddr) -> Result<(), Refused> {
        // Nobody listens on these, whatever is allowed.
        let nowhere = ip.is_unspecified() || ip.is_multicast() || ip == IpAddr::V4(Ipv4Addr::BROADCAST);
        if !nowhere && (self.allow_private || is_public(ip)) {
            Ok(())
        } else {
            Err(Refused(format!("must not be at {ip}, which is no public address; {WAY_OUT}")))
        }
    }
}

fn is_local_name(name: &str) -> bool {
    let name = name.trim_end_matches('.');
    name == "localhost" || name.ends_with(".localhost")
}

fn is_public(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => is_public_v4(ip),
        IpAddr::V6(ip) => is_public_v6(ip),
    }
}

/// The blocks that the registry of special-purpose addresses keeps from the internet.
const SPECIAL_V4: [Ipv4Net; 16] = [
    v4([0, 0, 0, 0], 8),
    v4([10, 0, 0, 0], 8),
    v4([100, 64, 0, 0], 10),
    v4([127, 0, 0, 0], 8),
    v4([169, 254, 0, 0], 16),
    v4([172, 16, 0, 0], 12),
    v4([192, 0, 0, 0], 24),
    v4([192, 0, 2, 0], 24),
    v4([192, 31, 196, 0], 24),
    v4([192, 88, 99, 0], 24),
    v4([192, 168, 0, 0], 16),
    v4([198, 18, 0, 0], 15),
    v4([198, 51, 100, 0], 24),
    v4([203, 0, 113, 0], 24),
    v4([224, 0, 0, 0], 4),
    v4([240, 0, 0, 0], 4),
];
/// The unicast block of the internet.
const GLOBAL_V6: Ipv6Net = v6([0x2000, 0, 0], 3);
/// The blocks that are reserved in the unicast block: protocol assignments, Teredo among them, and documentation.
const SPECIAL_V6: [Ipv6Net; 3] = [v6([0x2001, 0, 0], 23), v6([0x2001, 0xdb8, 0], 32), v6([0x3fff, 0, 0], 20)];
/// The blocks whose last four bytes are an IPv4 address: compatible, mapped, and translated by NAT64.
const ENDS_IN_V4: [Ipv6Net; 3] = [
    v6([0, 0, 0], 96),
    Ipv6Net::new_assert(Ipv6Addr::new(0, 0, 0, 0, 0, 0xffff, 0, 0), 96),
    v6([0x64, 0xff9b, 0], 96),
];
/// 6to4, whose IPv4 address follows the first two bytes.
const SIX_TO_FOUR: Ipv6Net = v6([0x2002, 0, 0], 16);

const fn v4([a, b, c, d]: [u8; 4], length: u8) -> Ipv4Net {
    Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), length)
}

const fn v6([a, b, c]: [u16; 3], length: u8) -> Ipv6Net {
    Ipv6Net::new_assert(Ipv6Addr::new(a, b, c, 0, 0, 0, 0, 0), length)
}

fn is_public_v4(ip: Ipv4Addr) -> bool {
    !SPECIAL_V4.iter().any(|block| block.contains(&ip))
}

fn is_public_v6(ip: Ipv6Addr) -> bool {
    match embedded_v4(ip) {
        Some(ip) => is_public_v4(ip),
        None => GLOBAL_V6.contains(&ip) && !SPECIAL_V6.iter().any(|block| block.contains(&ip)),
    }
}

/// The IPv4 address that an IPv6 address merely carries.
fn embedded_v4(ip: Ipv6Addr) -> Option<Ipv4Addr> {
    let bytes = ip.octets();
    let v4 = |at: usize| Some(Ipv4Addr::new(bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]));
    if ENDS_IN_V4.iter().any(|block| block.contains(&ip)) {
        v4(12)
    } else if SIX_TO_FOUR.contains(&ip) {
        v4(2)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn public(text: &str) -> Result<Url, Refused> {
        Guard::new(false).url(text)
    }

    #[test]
    fn x5_targets_on_the_internet_are_fine() {
        for good in [
            "https://hooks.example.com/a/b?c=d",
            "https://hooks.example.com:8443",
            "https://8.8.8.8/",
            "https://[2606:4700::1]/",
            "https://[::ffff:8.8.8.8]/",
            "https://[64:ff9b::808:808]/",
            "https://[2002:808:808::1]/",
            "HTTPS://EXAMPLE.COM",
        ] {
            assert!(public(good).is_ok(), "{good}: {:?}", public(good));
        }
    }

    #[test]
    fn x5_what_is_no_target_on_the_internet_is_refused() {
        for bad in [
            "",
            "hooks.example.com",
            "//example.com",
            "https://",
            "https:///path",
            "https:example.com",
            "https:/example.com",
            "example.com/?x=https://a",
            "https://?x",
            "http://example.com",
            "file:///etc/passwd",
            "ftp://example.com",
            "gopher://example.com",
            "javascript:alert(1)",
            "data:text/plain,x",
            "unix:/run/x.sock",
            "https://user@example.com",
            "https://user:pw@example.com",
            "https://:pw@example.com",
            "https://example.com#fragment",
            "https://example.com/ x",
            "https://exam\nple.com",
            "https://example.com\\@127.0.0.1/",
            "https://example.com@127.0.0.1/",
            "https://example.com:22",
            "https://example.com:80",
            "https://example.com:0",
            "https://example.com:65536",
            "https://localhost",
            "https://localhost.",
            "https://LOCALHOST",
            "https://a.localhost",
        ] {
            assert!(public(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn x5_every_spelling_of_an_address_that_is_not_public_is_refused() {
        for bad in [
            "127.0.0.1",
            "127.255.0.9",
            "127.1",
            "2130706433",
            "0x7f000001",
            "0177.0.0.1",
            "017700000001",
            "0x7f.0.0.0x1",
            "0",
            "0.0.0.0",
            "0.1.2.3",
            "10.0.0.1",
            "10.255.255.255",
            "100.64.0.1",
            "100.127.255.255",
            "169.254.169.254",
            "0xa9fea9fe",
            "2852039166",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.8",
            "192.0.2.1",
            "192.88.99.1",
            "192.168.1.1",
            "198.18.0.1",
            "198.19.255.255",
            "198.51.100.7",
            "203.0.113.7",
            "224.0.0.1",
            "239.255.255.255",
            "240.0.0.1",
            "255.255.255.255",
            "[::]",
            "[::1]",
            "[::2]",
            "[::127.0.0.1]",
            "[::ffff:127.0.0.1]",
            "[::ffff:10.0.0.1]",
            "[::ffff:a9fe:a9fe]",
            "[64:ff9b::7f00:1]",
            "[64:ff9b::a9fe:a9fe]",
            "[64:ff9b:1::1]",
            "[100::1]",
            "[2001::1]",
            "[2001:0:a00:1::]",
            "[2001:10::1]",
            "[2001:db8::1]",
            "[2002:7f00:1::1]",
            "[2002:a9fe:a9fe::]",
            "[2002:c0a8:101::1]",
            "[3fff::1]",
            "[fc00::1]",
            "[fd00:ec2::254]",
            "[fe80::1]",
            "[febf::1]",
            "[fec0::1]",
            "[ff02::1]",
            "[4000::1]",
            "[5f00::1]",
            "１２７.0.0.1",
            "127。0。0。1",
        ] {
            assert!(public(&format!("https://{bad}/")).is_err(), "{bad}");
        }
    }

    #[test]
    fn x5_neighbours_of_private_blocks_are_public() {
        for good in [
            "9.255.255.255",
            "11.0.0.0",
            "100.63.255.255",
            "100.128.0.0",
            "126.0.0.1",
            "128.0.0.1",
            "169.253.0.1",
            "172.15.255.255",
            "172.32.0.0",
            "192.167.0.1",
            "192.169.0.1",
            "198.17.0.1",
            "198.20.0.0",
            "223.0.0.1",
            "2001:200::1",
            "2001:db9::1",
            "3ffe::1",
            "2003::1",
        ] {
            assert_eq!(Guard::new(false).address(good.parse().unwrap()), Ok(()), "{good}");
        }
    }

    #[test]
    fn private_targets_can_be_allowed_and_the_way_is_named() {
        for private in
            ["http://127.0.0.1:9", "http://localhost:8080", "https://10.0.0.1", "https://example.com:22"]
        {
            assert!(Guard::new(true).url(private).is_ok(), "{private}");
            assert!(public(private).unwrap_err().to_string().contains("--allow-private-push-targets"));
        }
        for bad in [
            "file:///x",
            "http://u@127.0.0.1",
            "http://0.0.0.0:1",
            "http://[::]",
            "http://224.0.0.1",
            "http://a:0",
        ] {
            assert!(Guard::new(true).url(bad).is_err(), "{bad}");
        }
    }
}
