//! Redis Streams as transport: a projection that keeps one stream for each queue, with an entry for each time that a task waits.
//!
//! An entry is added when the record that made the task wait is durable, and removed, and acknowledged for every consumer
//! group, when the record is durable that ends the wait or the attempt. Its id is the `message_id` that a claim returns. No
//! decision depends on Redis: neither the writer nor a claim waits for it, and after a loss the streams are rebuilt.

mod commands;
mod index;
mod names;
mod publisher;
mod reconcile;
mod sync;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use authority::State;
use coordinator::{HistoryReader, HistoryRecord, Projection};
use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo};
use secrecy::{ExposeSecret, SecretString};
use tokio::sync::Notify;

use crate::metrics::Metrics;
use index::Index;
use publisher::Publisher;

/// The Redis server to publish to.
#[derive(Clone)]
pub struct RedisOptions {
    pub url: String,
    pub password: Option<SecretString>,
    /// The id of the ledger. Streams of another ledger are left alone.
    pub ledger: String,
    pub metrics: Metrics,
}

/// The projection. A thread of its own talks to Redis.
pub struct RedisStreams {
    shared: Arc<Shared>,
    /// Until the first record, by which this process owns the ledger: nobody else publishes from then on.
    publisher: Option<Publisher>,
}

/// What the projection and the publisher share.
#[derive(Default)]
struct Shared {
    state: Mutex<SharedState>,
    /// Tells the publisher that there is work, or that the projection has ended.
    changed: Notify,
}

#[derive(Default)]
struct SharedState {
    index: Index,
    is_closed: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, SharedState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RedisStreams {
    /// Fails with a message if the URL is not the URL of a Redis server.
    pub fn new(options: RedisOptions) -> Result<RedisStreams, String> {
        let mut info = connection_info(&options.url)?;
        if let Some(password) = &options.password {
            let settings = info.redis_settings().clone().set_password(password.expose_secret());
            info = info.set_redis_settings(settings);
        }
        let shared = Arc::new(Shared::default());
        let publisher = Publisher::new(shared.clone(), info, options.ledger, options.metrics)?;
        Ok(RedisStreams { shared, publisher: Some(publisher) })
    }
}

impl Projection for RedisStreams {
    fn name(&self) -> &str {
        "redis-streams"
    }

    fn begin(&mut self, state: &State, history: &dyn HistoryReader) -> bool {
        self.shared.lock().index.begin(state, history);
        true
    }

    fn apply(&mut self, record: &HistoryRecord, _: &dyn HistoryReader) -> Result<(), String> {
        let mut state = self.shared.lock();
        state.index.apply(record);
        let has_work = state.index.has_work();
        drop(state);
        if has_work {
            self.shared.changed.notify_one();
        }
        if let Some(publisher) = self.publisher.take() {
            let spawned = std::thread::Builder::new().name("lessor-redis".into()).spawn(|| publisher.run());
            if let Err(error) = spawned {
                tracing::error!(%error, "nothing is published to Redis: its thread could not be started");
            }
        }
        Ok(())
    }
}

impl Drop for RedisStreams {
    fn drop(&mut self) {
        self.shared.lock().is_closed = true;
        self.shared.changed.notify_one();
    }
}

/// What is wrong with the URL of a Redis server, or nothing.
pub fn fault_of_redis_url(url: &str) -> Option<String> {
    connection_info(url).err()
}

fn connection_info(url: &str) -> Result<ConnectionInfo, String> {
    const FORM: &str = "must be redis://HOST:PORT, redis://USER@HOST:PORT/DATABASE or redis+unix:///SOCKET";
    if url.starts_with("rediss:") {
        return Err(
            "must not be rediss://: TLS to Redis is not supported; use a tunnel such as stunnel".to_owned()
        );
    }
    let info = url.into_connection_info().map_err(|error| format!("{FORM}: {error}"))?;
    if info.redis_settings().password().is_some() {
        return Err(
            "must not contain the password: name a file in redis.password_file, or set LESSOR_REDIS_PASSWORD"
                .to_owned(),
        );
    }
    match info.addr() {
        ConnectionAddr::Tcp(..) | ConnectionAddr::Unix(_) => Ok(info),
        _ => Err(FORM.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_a_server_and_no_secret() {
        for good in [
            "redis://127.0.0.1:6379",
            "redis://redis/2",
            "redis://user@redis:7000/0",
            "redis+unix:///run/r.sock",
        ] {
            assert_eq!(fault_of_redis_url(good), None, "{good}");
        }
        for (bad, what) in [
            ("redis://:secret@redis", "redis.password_file"),
            ("rediss://redis", "stunnel"),
            ("http://redis", "must be redis://HOST:PORT"),
            ("", "must be redis://HOST:PORT"),
        ] {
            let fault = fault_of_redis_url(bad).unwrap();
            assert!(fault.contains(what) && !fault.contains("secret@"), "{bad}: {fault}");
        }
    }
}
