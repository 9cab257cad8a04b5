//! An effect and its durable place in the ledger. It has no thread and no clock, so that production and a simulator
//! drive the same code.
//!
//! Every durable record is shown to the projection, in order and at least once: the place is saved only after the effect
//! of everything before it is true, and history from the saved place on is not trimmed.

use std::io;
use std::sync::Arc;

use authority::Position;
use authority::injected_bug::{self, InjectedBug};
use ledger::disk::{Disk, read_up_to, write_all_at};
use ledger::file::{Hold, Reader};
use ledger::{HistoryRecord, record};

use crate::history::LedgerHistory;
use crate::projection::Projection;

/// The place is saved at least this often while catching up. Seldom, because that takes two syncs, and a second look at
/// so many records takes a tenth of a second.
const SAVE_AFTER_RECORDS: u64 = 100_000;
/// A position takes no more than this in its file.
const MAX_PLACE_BYTES: usize = 64;

pub struct ProjectionRunner {
    projection: Box<dyn Projection>,
    reader: Reader,
    past: LedgerHistory,
    place: Place,
    hold: Hold,
}

impl ProjectionRunner {
    /// Goes on where the effect left off, as the file of its name on this disk says. One that never began begins with
    /// the oldest record that is kept: what was trimmed before it cannot be told any more.
    pub fn open(
        projection: Box<dyn Projection>,
        disk: Arc<dyn Disk>,
        reader: Reader,
    ) -> io::Result<ProjectionRunner> {
        let oldest = Position(reader.first().0.saturating_sub(1));
        let place = Place::load(disk, projection.name(), oldest)?;
        let hold = reader.hold(place.saved.next());
        let past = LedgerHistory::new(reader.clone());
        Ok(ProjectionRunner { projection, reader, past, place, hold })
    }

    pub fn name(&self) -> &str {
        self.projection.name()
    }

    pub fn applied_up_to(&self) -> Position {
        self.place.applied_up_to
    }

    pub fn is_saved(&self) -> bool {
        self.place.applied_up_to == self.place.saved
    }

    /// Shows the effect every record up to `target` that it has not made true yet. After an error the same record is
    /// shown again by the next call.
    pub fn catch_up(&mut self, target: Position) -> Result<(), String> {
        if self.place.applied_up_to >= target {
            return Ok(());
        }
        let from = self.place.applied_up_to.next();
        let records = self.reader.read_from(from, target).map_err(|error| error.to_string())?;
        let records = records.ok_or_else(|| format!("the history from record {from} is no longer kept"))?;
        for read in records {
            let (position, bytes) = read.map_err(|error| error.to_string())?;
            let decoded = record::decode(&bytes).map_err(|error| error.to_string())?;
            let record = HistoryRecord { position, at: decoded.at, event: decoded.event };
            match self.projection.apply(&record, &self.past) {
                Err(_) if injected_bug::is(InjectedBug::FailedEffectPassed) => {}
                applied => applied?,
            }
            self.place.applied_up_to = position;
            if position.0 - self.place.saved.0 >= SAVE_AFTER_RECORDS {
                self.save().map_err(|error| error.to_string())?;
            }
        }
        Ok(())
    }

    /// Makes the place durable. Whoever drives the runner does this when there is nothing else to do; what is shown
    /// again after a crash is what came after.
    pub fn save(&mut self) -> io::Result<()> {
        if !self.is_saved() {
            self.place.save()?;
            self.hold.advance(self.place.saved.next());
        }
        Ok(())
    }
}

/// How far an effect has come, in a small file.
struct Place {
    disk: Arc<dyn Disk>,
    name: String,
    temp: String,
    applied_up_to: Position,
    /// What a start would find.
    saved: Position,
}

impl Place {
    /// The saved place, or `start` when none was ever saved.
    fn load(disk: Arc<dyn Disk>, name: &str, start: Position) -> io::Result<Place> {
        let saved = match disk.open(name) {
            Ok(file) => {
                let mut bytes = [0; MAX_PLACE_BYTES];
                let length = read_up_to(&*file, &mut bytes, 0)?;
                let text = str::from_utf8(&bytes[..length]).ok();
                let position = text.and_then(|text| text.trim().parse().ok()).map(Position);
                position.ok_or_else(|| {
                    io::Error::other(format!("{name} does not hold a position; restore or remove it"))
                })?
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => start,
            Err(error) => return Err(error),
        };
        let temp = format!("{name}.tmp");
        Ok(Place { disk, name: name.to_owned(), temp, applied_up_to: saved, saved })
    }

    /// Replaces the file as a whole: a power loss leaves the old place or the new one, never half of it.
    fn save(&mut self) -> io::Result<()> {
        match self.disk.remove(&self.temp) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let file = self.disk.create(&self.temp)?;
        write_all_at(&*file, format!("{}\n", self.applied_up_to).as_bytes(), 0)?;
        file.sync_data()?;
        self.disk.rename(&self.temp, &self.name)?;
        self.disk.sync_dir()?;
        self.saved = self.applied_up_to;
        Ok(())
    }
}
