//! A batch as a row.

use std::cell::RefCell;
use std::sync::Arc;

use tokio_postgres::Row;
use zstd::bulk::Compressor;

use super::Error;
use super::tables::TableRows;
use crate::batch::split_body;
use crate::{Batch, Link, MAX_BATCH_BYTES, Position};

/// Smaller bodies gain too little.
const COMPRESS_FROM_BYTES: usize = 1 << 10;
const LEVEL: i32 = 1;

const PLAIN: i16 = 0;
const ZSTD: i16 = 1;

/// Where a batch ends, and by which row it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub first: Position,
    pub next: Position,
    pub link: Link,
}

/// A row of the table `batch`, in the form in which it is stored.
#[derive(Clone, Debug)]
pub struct BatchRow {
    pub place: Place,
    /// The time of the batch, in milliseconds.
    pub at: i64,
    pub epoch: i64,
    pub codec: i16,
    pub body: Arc<[u8]>,
    /// What the batch changes in the tables; unknown for a batch that was read or received.
    pub(super) rows: Option<Arc<TableRows>>,
}

/// The columns of a row, in the order of [`BatchRow::read`].
pub(super) const COLUMNS: &str = "first, next, at, epoch, link, codec, body";

/// Leaves out the row before the first batch of a shard, which holds no record.
pub(super) const HOLDS_RECORDS: &str = "length(body) > 0";

impl Place {
    /// Reads the columns `first`, `next` and `link`.
    pub(super) fn read(row: &Row) -> Result<Place, Error> {
        Ok(Place {
            first: position(row.get("first")),
            next: position(row.get("next")),
            link: link(row.get("link"))?,
        })
    }
}

impl BatchRow {
    /// A row that another node has sent.
    pub fn received(place: Place, at: i64, epoch: i64, codec: i16, body: Arc<[u8]>) -> BatchRow {
        BatchRow { place, at, epoch, codec, body, rows: None }
    }

    /// The row of a batch behind the given link.
    pub fn new(batch: &Batch, before: Link, epoch: u64) -> BatchRow {
        let body = batch.body();
        let compressed = (body.len() >= COMPRESS_FROM_BYTES)
            .then(|| compress(body))
            .flatten()
            .filter(|compressed| compressed.len() < body.len());
        let (codec, body) = match compressed {
            Some(compressed) => (ZSTD, compressed.into()),
            None => (PLAIN, body.into()),
        };
        let link = before.then_batch(batch);
        BatchRow {
            place: Place { first: batch.first(), next: batch.next(), link },
            at: batch.time_ms() as i64,
            epoch: epoch as i64,
            codec,
            body,
            rows: None,
        }
    }

    pub(super) fn read(row: &Row) -> Result<BatchRow, Error> {
        Ok(BatchRow {
            place: Place::read(row)?,
            at: row.get("at"),
            epoch: row.get("epoch"),
            codec: row.get("codec"),
            body: row.get::<_, &[u8]>("body").into(),
            rows: None,
        })
    }

    /// The row without what it changes in the tables.
    pub(super) fn bare(&self) -> BatchRow {
        BatchRow { rows: None, ..self.clone() }
    }

    /// Whether it is known what the batch changes in the tables, and written with it.
    pub(super) fn writes_tables(&self) -> bool {
        self.rows.as_ref().is_some_and(|rows| rows.is_whole())
    }

    /// The same row where it writes the tables, without that.
    pub(super) fn without_tables(&self) -> Option<BatchRow> {
        let rows = self.rows.as_ref()?.without_tables()?;
        Some(BatchRow { rows: Some(Arc::new(rows)), ..self.clone() })
    }

    /// How much memory it takes to append the batch again.
    pub(super) fn bytes(&self) -> usize {
        self.body.len() + self.rows.as_ref().map_or(0, |rows| rows.bytes())
    }

    /// The body as it was appended.
    pub fn unpack(&self) -> Result<Vec<u8>, Error> {
        match self.codec {
            PLAIN => Ok(self.body.to_vec()),
            ZSTD => zstd::bulk::decompress(&self.body, MAX_BATCH_BYTES).map_err(|_| self.damaged()),
            _ => Err(self.damaged()),
        }
    }

    /// Checks the row behind the link of the row before it, and returns its body.
    pub fn verify(&self, before: Link) -> Result<Vec<u8>, Error> {
        let body = self.unpack()?;
        let Place { first, next, link } = self.place;
        if before.then(first, next, &body) == link { Ok(body) } else { Err(self.damaged()) }
    }

    /// How many records a body holds.
    pub(super) fn count(&self) -> u32 {
        (self.place.next.0 - self.place.first.0) as u32
    }

    /// The records of an unpacked body, with their positions.
    pub fn records<'a>(&self, body: &'a [u8]) -> impl Iterator<Item = Result<(Position, &'a [u8]), Error>> {
        let damaged = self.damaged();
        let mut damaged = Some(damaged);
        (self.place.first.0..).map(Position).zip(split_body(body, self.count())).map_while(
            move |(position, record)| match record {
                Some(record) => Some(Ok((position, record))),
                None => damaged.take().map(Err),
            },
        )
    }

    pub(super) fn damaged(&self) -> Error {
        Error::Damaged(format!(
            "the batch at position {} of the table lessor.batch is not what was appended",
            self.place.first
        ))
    }
}

/// Each thread reuses one context: a new one for each batch is hundreds of kilobytes to allocate and clear.
fn compress(body: &[u8]) -> Option<Vec<u8>> {
    thread_local! {
        static CONTEXT: RefCell<Option<Compressor<'static>>> = RefCell::new(Compressor::new(LEVEL).ok());
    }
    CONTEXT.with_borrow_mut(|context| context.as_mut()?.compress(body).ok())
}

pub(super) fn position(column: i64) -> Position {
    Position(column as u64)
}

pub(super) fn link(column: &[u8]) -> Result<Link, Error> {
    let link = column.try_into().map_err(|_| Error::Damaged("a link has not 16 bytes".into()))?;
    Ok(Link(link))
}
