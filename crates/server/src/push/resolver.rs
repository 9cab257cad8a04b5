//! Looks up the names of push targets and returns addresses only if each of them may be called. The connector uses these
//! addresses and looks nothing up itself, so that a name cannot change its meaning between the check and the call.

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

use crate::edge::address_guard::Guard;

/// Longest look-up of a name.
const MAX_LOOKUP: Duration = Duration::from_secs(5);

/// Most look-ups at one time, over all targets: a quarter of the threads that a runtime has for such work.
const MAX_LOOKUPS: usize = 128;

/// The look-ups of all targets. Each takes a thread until the name server answers or the system gives up, which nobody
/// can hasten; so a permit is held until its look-up ends, however long its caller waits.
pub(super) fn look_ups() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(MAX_LOOKUPS))
}

type Found = Pin<Box<dyn Future<Output = io::Result<Vec<SocketAddr>>> + Send>>;

/// One for each target, which has one look-up at a time: a name server that does not answer must not hold all threads.
#[derive(Clone)]
pub(super) struct Resolver {
    guard: Guard,
    own_turn: Arc<Semaphore>,
    turns: Arc<Semaphore>,
    look_up: Arc<dyn Fn(Name) -> Found + Send + Sync>,
}

impl Resolver {
    pub(super) fn new(guard: Guard, turns: Arc<Semaphore>) -> Resolver {
        Resolver { guard, own_turn: Arc::new(Semaphore::new(1)), turns, look_up: Arc::new(look_up) }
    }

    async fn resolve(self, name: Name) -> io::Result<Vec<SocketAddr>> {
        let addresses = self.in_turn((self.look_up)(name)).await?;
        self.checked(addresses)
    }

    /// Begins a look-up in its turn, and waits a while for what it finds.
    async fn in_turn(
        &self,
        look_up: impl Future<Output = io::Result<Vec<SocketAddr>>> + Send + 'static,
    ) -> io::Result<Vec<SocketAddr>> {
        let own_turn = self.own_turn.clone().acquire_owned().await.map_err(io::Error::other)?;
        let turn = self.turns.clone().acquire_owned().await.map_err(io::Error::other)?;
        let found = tokio::spawn(async move {
            let _turns = (own_turn, turn);
            look_up.await
        });
        timeout(MAX_LOOKUP, found).await??
    }

    /// All of them, or none: a name that also stands for a private address is not to be trusted with the others.
    fn checked(&self, addresses: Vec<SocketAddr>) -> io::Result<Vec<SocketAddr>> {
        match addresses.iter().find_map(|address| self.guard.address(address.ip()).err()) {
            Some(refused) => Err(io::Error::other(refused)),
            None => Ok(addresses),
        }
    }
}

/// Asks the system. The port is put in by whoever connects.
fn look_up(name: Name) -> Found {
    Box::pin(async move { Ok(tokio::net::lookup_host((name.as_str(), 0)).await?.collect()) })
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
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::FutureExt;
    use hyper_util::client::legacy::connect::HttpConnector;
    use tokio::sync::oneshot;

    use super::*;

    fn checked(addresses: &[&str]) -> io::Result<Vec<SocketAddr>> {
        let addresses = addresses.iter().map(|ip| SocketAddr::new(ip.parse().unwrap(), 0)).collect();
        Resolver::new(Guard::new(false), look_ups()).checked(addresses)
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
            Resolver::new(Guard::new(allow), look_ups()).call(name)
        };
        assert!(look_up(false).await.is_err());
        assert!(look_up(true).await.unwrap().all(|address| address.ip().is_loopback()));
    }

    /// A name server that gives these addresses, one after the other.
    fn changing(guard: Guard, addresses: &[&str]) -> (Resolver, Arc<AtomicUsize>) {
        let addresses: Vec<SocketAddr> =
            addresses.iter().map(|ip| SocketAddr::new(ip.parse().unwrap(), 0)).collect();
        let asked = Arc::new(AtomicUsize::new(0));
        let counter = asked.clone();
        let look_up = move |_| -> Found {
            let next = addresses[counter.fetch_add(1, Ordering::Relaxed)];
            Box::pin(async move { Ok(vec![next]) })
        };
        (Resolver { look_up: Arc::new(look_up), ..Resolver::new(guard, look_ups()) }, asked)
    }

    #[tokio::test]
    async fn x6_a_connection_goes_to_the_address_that_was_checked_whatever_the_name_means_next() {
        let checked = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = checked.local_addr().unwrap().port();
        let other = tokio::net::TcpListener::bind(("127.0.0.2", port)).await.unwrap();
        let (resolver, asked) = changing(Guard::new(true), &["127.0.0.1", "127.0.0.2"]);
        let mut connector = HttpConnector::new_with_resolver(resolver);
        let uri = format!("http://target.example:{port}").parse().unwrap();
        let connection = connector.call(uri).await.unwrap();
        assert_eq!(connection.inner().peer_addr().unwrap(), checked.local_addr().unwrap());
        assert_eq!(asked.load(Ordering::Relaxed), 1, "the name is looked up once for a connection");
        assert!(other.accept().now_or_never().is_none());

        // The next connection looks it up again, and checks what it means by then.
        let (mut resolver, _) = changing(Guard::new(false), &["8.8.8.8", "127.0.0.1"]);
        let name: Name = "target.example".parse().unwrap();
        assert!(resolver.call(name.clone()).await.is_ok());
        let error = resolver.call(name).await.unwrap_err().to_string();
        assert!(error.contains("no public address"), "{error}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_look_up_that_hangs_keeps_its_turn_when_nobody_waits_for_it_any_longer() {
        let (turns, (answer, answered)) = (look_ups(), oneshot::channel());
        let (dead, other) =
            (Resolver::new(Guard::new(true), turns.clone()), Resolver::new(Guard::new(true), turns.clone()));
        let hangs = async { answered.await.map_err(io::Error::other) };
        let error = dead.in_turn(hangs).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert_eq!((dead.own_turn.available_permits(), turns.available_permits()), (0, MAX_LOOKUPS - 1));
        assert!(other.in_turn(async { Ok(Vec::new()) }).await.is_ok(), "another target has its own turn");
        answer.send(Vec::new()).unwrap();
        assert!(dead.in_turn(async { Ok(Vec::new()) }).await.is_ok(), "the turn ends with the look-up");
    }

    #[tokio::test(start_paused = true)]
    async fn no_more_names_are_looked_up_at_one_time_than_there_are_turns() {
        let turns = look_ups();
        for _ in 0..MAX_LOOKUPS {
            let dead = Resolver::new(Guard::new(true), turns.clone());
            assert!(dead.in_turn(std::future::pending()).await.is_err());
        }
        let one_more = Resolver::new(Guard::new(true), turns);
        assert!(timeout(MAX_LOOKUP * 2, one_more.in_turn(async { Ok(Vec::new()) })).await.is_err());
    }
}
