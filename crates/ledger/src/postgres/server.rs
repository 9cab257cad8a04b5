//! The address of a database, and how its connections are made.

use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode};

use super::Error;

/// How to reach the database.
#[derive(Clone)]
pub struct Server {
    /// Hosts, user, password and database.
    pub config: Config,
    /// For servers that ask for TLS; without it connections are not encrypted.
    pub tls: Option<rustls::ClientConfig>,
    /// Use a server that acknowledges commits which a power failure can undo. For tests.
    pub unsafe_no_sync: bool,
}

impl Server {
    /// Parses a URL such as `postgres://user:password@host:5432/database`, or `key=value` pairs. The error does not repeat
    /// the text, which may hold a password.
    pub fn parse(url: &str) -> Result<Server, Error> {
        let refused = |what: &str| Error::Refused(what.to_owned());
        let config: Config = url.parse().map_err(|_| {
            refused(
                "is not an address of PostgreSQL, such as postgres://lessor@db.example.com/lessor; special characters of a \
                 password are written as %40; sslmode is disable, prefer or require",
            )
        })?;
        if config.get_hosts().is_empty() {
            return Err(refused(
                "names no host, such as db.example.com in postgres://lessor@db.example.com/lessor",
            ));
        }
        Ok(Server { config, tls: None, unsafe_no_sync: false })
    }

    /// Whether the address asks for TLS.
    pub fn requires_tls(&self) -> bool {
        self.config.get_ssl_mode() == SslMode::Require
    }

    /// Encrypts every connection, and refuses a server that cannot.
    pub fn with_tls(mut self, tls: rustls::ClientConfig) -> Server {
        self.config.ssl_mode(SslMode::Require);
        Server { tls: Some(tls), ..self }
    }

    /// The address without its password.
    pub fn address(&self) -> String {
        let ports = self.config.get_ports();
        let host = |(at, host): (usize, &Host)| {
            let port = ports.get(at).or(ports.first()).map_or(String::new(), |port| format!(":{port}"));
            match host {
                Host::Tcp(name) => format!("{name}{port}"),
                Host::Unix(path) => format!("{}{port}", path.display()),
            }
        };
        let hosts: Vec<String> = self.config.get_hosts().iter().enumerate().map(host).collect();
        let user = self.config.get_user().map_or(String::new(), |user| format!("{user}@"));
        let database = self.config.get_dbname().or(self.config.get_user()).unwrap_or_default();
        format!("postgres://{user}{}/{database}", hosts.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_shown_without_its_password() {
        for (url, shown) in [
            ("postgres://lessor:se%40cret@a:5433,b/jobs", "postgres://lessor@a:5433,b:5432/jobs"),
            ("host=a user=lessor password=secret dbname=jobs", "postgres://lessor@a/jobs"),
            ("postgresql://lessor:secret@a", "postgres://lessor@a:5432/lessor"),
        ] {
            assert_eq!(Server::parse(url).unwrap().address(), shown);
        }
    }

    #[test]
    fn an_address_that_is_not_valid_is_not_repeated() {
        for url in ["postgres://lessor:secret@a/b?ssl=secret", "secret", "postgres:///secret"] {
            let error = Server::parse(url).err().unwrap().to_string();
            assert!(!error.contains("secret") && error.contains("postgres://lessor@"), "{error}");
        }
    }
}
