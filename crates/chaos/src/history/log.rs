//! The ledger of a run, read from its directory without a lock or from its database, as `lessor log` does.

use std::ops::ControlFlow;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use auditor::history::Recorded;
use authority::Position;
use history::time_travel;
use ledger::file::Inspection;
use ledger::{Reader, postgres};

use crate::recorder::At;

/// Where the ledger lies in a data directory.
const LEDGER: &str = "ledger";

/// Where the ledger ended while the server was dead: what is up to there was recorded before, all else after.
#[derive(Clone, Debug)]
pub struct Cut {
    pub at: At,
    /// None when it was empty.
    pub last: Option<Recorded>,
}

impl Cut {
    /// Looks at the directory of a server that is dead, at this time.
    pub fn look(data: &Path, at: At) -> Result<Cut> {
        let inspection = open(data)?;
        let last = time_travel::last(&inspection).context("the ledger of a dead server cannot be read")?;
        Ok(Cut { at, last: read_from(&inspection, last.max(Position(1)))?.pop() })
    }

    pub fn position(&self) -> Position {
        self.last.as_ref().map_or(Position::ZERO, |last| last.position)
    }
}

/// Every record from the very first.
pub(crate) fn read_records(data: &Path) -> Result<Vec<Recorded>> {
    read_all(&open(data)?)
}

/// The same from a database.
pub(crate) fn read_database(url: &str) -> Result<Vec<Recorded>> {
    let (reader, ..) =
        postgres::inspect(postgres::Server::parse(url)?, 0).context("cannot read the ledger")?;
    read_all(&reader)
}

fn read_all(reader: &dyn Reader) -> Result<Vec<Recorded>> {
    let first = reader.first()?;
    ensure!(first == Position(1), "history was trimmed: it begins at {first}");
    read_from(reader, first)
}

pub(super) fn same(one: &Recorded, other: &Recorded) -> bool {
    (one.position, one.at, one.prev, &one.event) == (other.position, other.at, other.prev, &other.event)
}

fn open(data: &Path) -> Result<Inspection> {
    Inspection::open_dir(&data.join(LEDGER))
        .with_context(|| format!("cannot read the ledger in {}", data.display()))
}

fn read_from(reader: &dyn Reader, from: Position) -> Result<Vec<Recorded>> {
    let mut records = Vec::new();
    time_travel::records(reader, from, &mut |position, record| {
        records.push(Recorded { position, at: record.at, prev: record.prev, event: record.event });
        ControlFlow::Continue(())
    })
    .context("the ledger cannot be read through")?;
    Ok(records)
}
