//! Projections: entries and messages outside of the ledger that follow from its records, such as action-cache entries.
//!
//! A projection follows the durable ledger on a thread of its own, and its offset says how far it has come. After a
//! crash it gets some records again, so it must be idempotent. It never gets a record that is not durable, and it never
//! slows the writer.

use std::io;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use authority::{Position, State};
use backon::{BackoffBuilder, ExponentialBuilder};
use ledger::HistoryRecord;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use crate::history::HistoryReader;
use crate::projection_runner::ProjectionRunner;

const FIRST_RETRY: Duration = Duration::from_millis(100);
const MAX_RETRY: Duration = Duration::from_secs(30);
/// The offset is saved after this long without a new record, and this often while there is always a new record: seldom
/// enough that the syncs do not take the disk from the ledger.
const SAVE_PAUSE: Duration = Duration::from_secs(1);
const SAVE_INTERVAL: Duration = Duration::from_secs(10);
/// Records that come within this time are read together: to wake for every batch of a busy writer, and to read each
/// batch on its own, would take the processor from the writer. Only a start waits for a projection.
const GATHER: Duration = Duration::from_millis(10);

/// The delays after failures in a row.
fn retries() -> impl Iterator<Item = Duration> {
    let retries = ExponentialBuilder::default().with_min_delay(FIRST_RETRY).with_max_delay(MAX_RETRY);
    retries.without_max_times().build()
}

/// Applies every record in order, from its saved offset on.
pub trait Projection: Send {
    /// Names the saved offset.
    fn name(&self) -> &str;

    /// A projection that follows from the state alone takes the state of a start here and returns true. It gets the
    /// records after that state, has no offset, and keeps no earlier record from being trimmed.
    fn begin(&mut self, _state: &State, _history: &dyn HistoryReader) -> bool {
        false
    }

    /// Applies the record. After an error the same record comes again later. `history` reads earlier records.
    fn apply(&mut self, record: &HistoryRecord, history: &dyn HistoryReader) -> Result<(), String>;
}

impl ProjectionRunner {
    /// Follows the ledger until the sender of `durable` is gone and every durable record is applied, or until the runner is
    /// stopped. Tells `progress` how far it has come.
    pub fn spawn(
        mut self,
        mut durable: watch::Receiver<Position>,
        progress: watch::Sender<Position>,
    ) -> io::Result<JoinHandle<()>> {
        std::thread::Builder::new().name(format!("lessor-{}", self.name())).spawn(move || {
            let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_time().build() else {
                return tracing::error!("no runtime could be built for a projection");
            };
            runtime.block_on(self.follow(&mut durable, &progress));
        })
    }

    async fn follow(&mut self, durable: &mut watch::Receiver<Position>, progress: &watch::Sender<Position>) {
        let mut retries = retries();
        let mut saved_at = Instant::now();
        loop {
            let target = *durable.borrow_and_update();
            if let Err(error) = self.catch_up(target) {
                let (projection, applied_up_to) = (self.name(), self.applied_up_to().0);
                tracing::error!(projection, applied_up_to, error, "a projection failed and will retry");
                let wait = sleep(retries.next().unwrap_or(MAX_RETRY));
                let ended = async { while durable.changed().await.is_ok() {} };
                tokio::select! {
                    biased;
                    () = ended => return self.save_or_log(),
                    () = wait => continue,
                }
            }
            if self.is_stopped() {
                return self.save_or_log();
            }
            retries = self::retries();
            progress.send_replace(self.applied_up_to());
            let changed = if self.is_saved() {
                Ok(durable.changed().await)
            } else {
                timeout(SAVE_PAUSE, durable.changed()).await
            };
            if !matches!(changed, Ok(Ok(()))) || saved_at.elapsed() >= SAVE_INTERVAL {
                self.save_or_log();
                saved_at = Instant::now();
            }
            match changed {
                Ok(Ok(())) => sleep(GATHER).await,
                Ok(Err(_)) => return,
                Err(_) => {}
            }
        }
    }

    /// With an older offset the projection only gets records again.
    fn save_or_log(&mut self) {
        if let Err(error) = self.save() {
            tracing::error!(projection = self.name(), %error, "the offset of a projection could not be saved");
        }
    }
}
