//! What a commit does beyond the ledger: entries and messages elsewhere that only the coordinator may write.
//!
//! An effect follows the durable ledger on a thread of its own and remembers how far it has come. After a crash it is
//! shown some records again, so it must be idempotent; it is never shown a record that is not durable, and it never
//! slows the writer.

use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use authority::Position;
use ledger::HistoryRecord;
use ledger::disk::RealDisk;
use ledger::file::Reader;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use crate::history::HistoryReader;
use crate::projection_runner::ProjectionRunner;

const FIRST_RETRY: Duration = Duration::from_millis(100);
const MAX_RETRY: Duration = Duration::from_secs(30);
/// With nothing new for this long, the place is saved, and while there is always something new, this often: seldom
/// enough that its syncs do not take the disk from the ledger.
const SAVE_PAUSE: Duration = Duration::from_secs(1);
const SAVE_INTERVAL: Duration = Duration::from_secs(10);
/// Records that come within this time are read together: to be woken for every batch of a busy writer, and to read
/// each on its own, would take the processor from it. Whoever waits for an outcome does not wait for its effects.
const GATHER: Duration = Duration::from_millis(10);

/// Something that follows from records. Shown every record in order, from where it left off.
pub trait Projection: Send {
    /// Names the file that remembers its place.
    fn name(&self) -> &str;

    /// Makes the record's effect true. After an error the same record is shown again, later.
    /// `past` tells what came before it.
    fn apply(&mut self, record: &HistoryRecord, past: &dyn HistoryReader) -> Result<(), String>;
}

/// Follows the ledger until the sender of `durable` is gone and everything durable is applied.
pub fn spawn(
    projection: Box<dyn Projection>,
    directory: &Path,
    reader: Reader,
    mut durable: watch::Receiver<Position>,
) -> std::io::Result<JoinHandle<()>> {
    let mut runner = ProjectionRunner::open(projection, Arc::new(RealDisk::create(directory)?), reader)?;
    std::thread::Builder::new().name(format!("lessor-{}", runner.name())).spawn(move || {
        let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_time().build() else {
            return tracing::error!("no runtime could be built to follow the ledger");
        };
        runtime.block_on(async {
            let mut retry = FIRST_RETRY;
            let mut saved_at = Instant::now();
            loop {
                let target = *durable.borrow_and_update();
                match runner.catch_up(target) {
                    Ok(()) => {
                        retry = FIRST_RETRY;
                        let changed = match runner.is_saved() {
                            true => Ok(durable.changed().await),
                            false => timeout(SAVE_PAUSE, durable.changed()).await,
                        };
                        if !matches!(changed, Ok(Ok(()))) || saved_at.elapsed() >= SAVE_INTERVAL {
                            save(&mut runner);
                            saved_at = Instant::now();
                        }
                        match changed {
                            Ok(Ok(())) => sleep(GATHER).await,
                            Ok(Err(_)) => return,
                            Err(_) => {}
                        }
                    }
                    Err(error) => {
                        let applied_up_to = runner.applied_up_to().0;
                        tracing::error!(
                            effect = runner.name(),
                            applied_up_to,
                            error,
                            "an effect failed and is tried again"
                        );
                        if durable.has_changed().is_err() {
                            return save(&mut runner);
                        }
                        sleep(retry).await;
                        retry = (retry * 2).min(MAX_RETRY);
                    }
                }
            }
        });
    })
}

/// An older place only means that records are shown again.
fn save(runner: &mut ProjectionRunner) {
    if let Err(error) = runner.save() {
        tracing::error!(effect = runner.name(), %error, "the place of an effect could not be saved");
    }
}
