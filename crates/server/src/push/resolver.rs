//! Looks up the name of a push target, and gives out addresses only when each of them may be called. What connects gets
//! these and looks nothing up itself, so that a name cannot mean one thing when it is checked and another when it is
//! called.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper_util::client::legacy::connect::dns::Name;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tower::Service;

use super::guard::Guard;

/// Longest look-up of a name.
const MAX_LOOKUP: Duration = Duration::from_secs(5);

/// One for each target. Look-ups take a thread each, so a target has one of them at a time: a name server that does not
/// answer must not hold all threads.
#[derive(Clone)]
pub struct Resolver {
    guard: Guard,
    turn: Arc<Semaphore>,
}

impl Resolver {
    pub fn new(guard: Guard) -> Resolver {
        Resolver { guard, turn: Arc::new(Semaphore::new(1)) }
    }

    async fn resolve(self, name: Name) -> io::Result<Vec<SocketAddr>> {
        let _turn = self.turn.acquire().await.map_err(io::Error::other)?;
        // The port is put in by whoever connects.
        let addresses: Vec<SocketAddr> =
            timeout(MAX_LOOKUP, tokio::net::lookup_host((name.as_str(), 0))).await??.collect();
        self.checked(addresses)
    }

    /// All of them, or none: a name that also stands for a private address is not to be trusted with the others.
    fn checked(&self, addresses: Vec<SocketAddr>) -> io::Result<Vec<SocketAddr>> {
        match addresses.iter().find_map(|address| self.guard.address(address.ip()).err()) {
            Some(refused) => Err(io::Error::other(refused)),
            None => Ok(addresses),
        }
    }
}

impl Service<Name> for Resolver {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let resolver = self.clone();
        Box::pin(async move { resolver.resolve(name).await.map(Vec::into_iter) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(addresses: &[&str]) -> io::Result<Vec<SocketAddr>> {
        let addresses = addresses.iter().map(|ip| SocketAddr::new(ip.parse().unwrap(), 0)).collect();
        Resolver::new(Guard::new(false)).checked(addresses)
    }

    #[test]
    fn x5_a_name_with_one_private_address_is_refused_with_all_of_them() {
        assert_eq!(checked(&["8.8.8.8", "2606:4700::1"]).unwrap().len(), 2);
        for bad in [&["127.0.0.1"][..], &["8.8.8.8", "10.0.0.1"], &["fe80::1", "8.8.8.8"]] {
            let error = checked(bad).unwrap_err().to_string();
            assert!(error.contains("no public address"), "{error}");
        }
    }

    #[tokio::test]
    async fn x5_a_name_that_means_this_machine_is_refused_when_it_is_looked_up() {
        let look_up = |allow| {
            let name: Name = "localhost".parse().unwrap();
            Resolver::new(Guard::new(allow)).call(name)
        };
        assert!(look_up(false).await.is_err());
        assert!(look_up(true).await.unwrap().all(|address| address.ip().is_loopback()));
    }
}
