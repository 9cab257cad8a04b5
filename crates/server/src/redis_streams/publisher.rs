//! The thread that talks to Redis: connects, sends the changes of the index, and connects again after a failure. Nothing else
//! waits for it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use backon::{BackoffBuilder, ExponentialBuilder};
use coordinator::wall;
use redis::{AsyncConnectionConfig, Client, ConnectionInfo};
use tokio::time::{sleep, timeout};

use super::Shared;
use super::commands::Scripts;
use super::sync::{CHECK_INTERVAL, Error, StreamSync};
use crate::metrics::Metrics;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// A Redis that does not answer within this time counts as lost.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(2);
const FIRST_RETRY: Duration = Duration::from_millis(100);
/// Short enough that Redis is used soon after it is back.
const MAX_RETRY: Duration = Duration::from_secs(2);
/// Redis that comes and goes is logged no more often than this.
const WARNING_INTERVAL: Duration = Duration::from_secs(60);
/// Changes within this time are sent together, and a task that ends within it is never sent.
const GATHER: Duration = Duration::from_millis(10);
/// The same while this many changes come together: then the time that Redis and this thread take would be taken from claims.
const GATHER_UNDER_LOAD: Duration = Duration::from_millis(50);
const MANY_CHANGES: usize = 100;

pub(super) struct Publisher {
    shared: Arc<Shared>,
    client: Client,
    sync: StreamSync,
    metrics: Metrics,
    warned_at: Option<Instant>,
    /// Whether the log says that Redis cannot be used.
    is_reported: bool,
}

impl Publisher {
    pub(super) fn new(
        shared: Arc<Shared>,
        info: ConnectionInfo,
        ledger: String,
        metrics: Metrics,
    ) -> Result<Publisher, String> {
        let client = Client::open(info).map_err(|error| error.to_string())?;
        let sync = StreamSync::new(shared.clone(), ledger, metrics.clone())?;
        Ok(Publisher { shared, client, sync, metrics, warned_at: None, is_reported: false })
    }

    /// Publishes until the projection has ended.
    pub(super) fn run(mut self) {
        let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else {
            return tracing::error!("no runtime could be built for Redis");
        };
        runtime.block_on(async {
            let mut retries = retries();
            while let Err(error) = self.session().await {
                if self.metrics.redis().connected.get() == 1 {
                    retries = self::retries();
                }
                self.lost(&error);
                let retry = retries.next().unwrap_or(MAX_RETRY);
                let closed = async {
                    while !self.is_closed() {
                        self.shared.changed.notified().await;
                    }
                };
                if timeout(retry, closed).await.is_ok() {
                    return;
                }
            }
        });
    }

    fn lost(&mut self, error: &Error) {
        let metrics = self.metrics.redis();
        metrics.connected.set(0);
        metrics.failures.inc();
        metrics.pending.set(self.shared.lock().index.pending() as i64);
        if !self.is_reported && self.warned_at.is_none_or(|at| at.elapsed() >= WARNING_INTERVAL) {
            tracing::warn!(
                %error,
                "Redis cannot be used; tasks are served without it, and its streams are corrected when it is back"
            );
            (self.is_reported, self.warned_at) = (true, Some(Instant::now()));
        } else {
            tracing::debug!(%error, "Redis cannot be used");
        }
    }

    fn found(&mut self) {
        self.metrics.redis().connected.set(1);
        if std::mem::take(&mut self.is_reported) {
            tracing::info!("Redis is back, and its streams have the open tasks");
        }
    }

    /// One connection, until it fails or the projection has ended.
    async fn session(&mut self) -> Result<(), Error> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT_TIMEOUT))
            .set_response_timeout(Some(RESPONSE_TIMEOUT));
        let mut connection = self.client.get_multiplexed_async_connection_with_config(&config).await?;
        let scripts = Scripts::load(&mut connection).await?;
        self.sync.begin(&mut connection).await?;
        let mut checked_at = Instant::now();
        loop {
            // Once the projection has ended, its index is out of date.
            while !self.is_closed() && self.sync.round(&mut connection, &scripts).await? {}
            if self.is_closed() {
                return Ok(());
            }
            self.sync.publish_due(&mut connection).await?;
            self.found();
            let due = self.shared.lock().index.next_due();
            let until_check = CHECK_INTERVAL.saturating_sub(checked_at.elapsed());
            let until_due = due.map(|due| Duration::from_millis(due.since_ms(wall())));
            let pause = until_due.map_or(until_check, |until_due| until_check.min(until_due));
            if timeout(pause, self.shared.changed.notified()).await.is_ok() {
                sleep(if self.sync.taken() < MANY_CHANGES { GATHER } else { GATHER_UNDER_LOAD }).await;
            }
            if checked_at.elapsed() >= CHECK_INTERVAL {
                self.sync.check_some(&mut connection).await?;
                checked_at = Instant::now();
            }
        }
    }

    fn is_closed(&self) -> bool {
        self.shared.lock().is_closed
    }
}

/// The delays after failures in a row.
fn retries() -> impl Iterator<Item = Duration> {
    let retries = ExponentialBuilder::default().with_min_delay(FIRST_RETRY).with_max_delay(MAX_RETRY);
    retries.without_max_times().build()
}
