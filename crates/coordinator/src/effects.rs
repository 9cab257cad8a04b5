//! What a commit does beyond the ledger: entries and messages elsewhere that only the coordinator may write.
//!
//! An effect follows the durable ledger on a thread of its own and remembers how far it has come. After a crash it is
//! shown some records again, so it must be idempotent; it is never shown a record that is not durable, and it never
//! slows the writer.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::Duration;

use authority::Position;
use ledger::file::Reader;
use ledger::record;
use tokio::sync::watch;

use crate::history::HistoryRecord;

/// The place is saved at least this often while catching up.
const SAVE_AFTER_RECORDS: u64 = 1_000;
const FIRST_RETRY: Duration = Duration::from_millis(100);
const MAX_RETRY: Duration = Duration::from_secs(30);

/// Something that follows from records. Shown every record in order, from where it left off.
pub trait Effect: Send {
    /// Names the file that remembers its place.
    fn name(&self) -> &str;

    /// Makes the record's effect true. After an error the same record is shown again, later.
    fn apply(&mut self, record: &HistoryRecord) -> Result<(), String>;
}

/// Follows the ledger until the sender of `durable` is gone and everything durable is applied.
pub fn follow(
    mut effect: Box<dyn Effect>,
    directory: &Path,
    reader: Reader,
    mut durable: watch::Receiver<Position>,
) -> std::io::Result<JoinHandle<()>> {
    fs::create_dir_all(directory)?;
    let mut place = Place::load(directory.join(effect.name()))?;
    std::thread::Builder::new().name(format!("lessor-{}", effect.name())).spawn(move || {
        let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_time().build() else {
            return tracing::error!("no runtime could be built to follow the ledger");
        };
        runtime.block_on(async {
            let mut retry = FIRST_RETRY;
            loop {
                let target = *durable.borrow_and_update();
                match catch_up(&mut *effect, &reader, &mut place, target) {
                    Ok(()) => {
                        retry = FIRST_RETRY;
                        if durable.changed().await.is_err() {
                            return;
                        }
                    }
                    Err(error) => {
                        let applied_up_to = place.applied_up_to.0;
                        tracing::error!(
                            effect = effect.name(),
                            applied_up_to,
                            error,
                            "an effect failed and is tried again"
                        );
                        if durable.has_changed().is_err() {
                            return;
                        }
                        tokio::time::sleep(retry).await;
                        retry = (retry * 2).min(MAX_RETRY);
                    }
                }
            }
        });
    })
}

fn catch_up(
    effect: &mut dyn Effect,
    reader: &Reader,
    place: &mut Place,
    target: Position,
) -> Result<(), String> {
    if place.applied_up_to >= target {
        return Ok(());
    }
    let from = place.applied_up_to.next();
    let records = reader.read_from(from, target).map_err(|error| error.to_string())?;
    let records = records.ok_or_else(|| format!("the history from record {from} is no longer kept"))?;
    let mut result = Ok(());
    for read in records {
        let (position, bytes) = read.map_err(|error| error.to_string())?;
        let decoded = record::decode(&bytes).map_err(|error| error.to_string())?;
        result = effect.apply(&HistoryRecord { position, at: decoded.at, event: decoded.event });
        if result.is_err() {
            break;
        }
        place.applied_up_to = position;
        if position.0.is_multiple_of(SAVE_AFTER_RECORDS) {
            place.save().map_err(|error| error.to_string())?;
        }
    }
    place.save().map_err(|error| error.to_string())?;
    result
}

/// How far an effect has come, in a small file.
struct Place {
    path: PathBuf,
    applied_up_to: Position,
}

impl Place {
    fn load(path: PathBuf) -> std::io::Result<Place> {
        let applied_up_to = match fs::read_to_string(&path) {
            Ok(text) => text.trim().parse().map(Position).map_err(|_| {
                std::io::Error::other(format!(
                    "{} does not hold a position; restore or remove it",
                    path.display()
                ))
            })?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Position::ZERO,
            Err(error) => return Err(error),
        };
        Ok(Place { path, applied_up_to })
    }

    /// Not synced: an older place after a power loss only means that records are shown again.
    fn save(&self) -> std::io::Result<()> {
        let temp = self.path.with_extension("tmp");
        fs::write(&temp, format!("{}\n", self.applied_up_to))?;
        fs::rename(&temp, &self.path)
    }
}
