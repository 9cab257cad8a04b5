//! Reads the ledger page by page.

use std::ops::ControlFlow;
use std::sync::Arc;

use super::Error;
use super::batch_row::{BatchRow, COLUMNS, HOLDS_RECORDS};
use super::connection::Session;
use super::shared::{Database, Pending};
use crate::{Link, Position};

/// A page ends with the batch that takes it over this size.
const PAGE_BYTES: i64 = 4 << 20;
const PAGE_ROWS: i64 = 1_024;

/// Visits batches in order, until it breaks.
pub(super) type VisitRow<'a> = dyn FnMut(&BatchRow, Vec<u8>) -> Result<ControlFlow<()>, Error> + 'a;

/// Visits every batch from the one that holds `from`, each verified by the link before it; the first one by `after`. The next page is fetched while
/// one is visited. Returns where the first batch begins; when that is after `from`, which was trimmed, nothing is visited.
pub(super) fn visit_rows(
    database: &Database,
    from: Position,
    after: Option<Link>,
    visit: &mut VisitRow<'_>,
) -> Result<Option<Position>, Error> {
    let shard = database.shard();
    let mut pending: Option<Pending<Vec<BatchRow>>> =
        Some(database.begin(move |session| fetch_from(session, shard, from)));
    let (mut begin, mut before, mut expected): (_, Option<Link>, Option<Position>) = (None, after, None);
    while let Some(page) = pending.take() {
        let rows = page.finish()?;
        let Some(last) = rows.last() else { break };
        let next = last.place.next;
        pending = Some(database.begin(move |session| fetch_at(session, shard, next)));
        if begin.is_none() {
            begin = rows.first().map(|row| row.place.first);
            if begin > Some(from) {
                return Ok(begin);
            }
        }
        for row in &rows {
            if let Some(expected) = expected.filter(|expected| *expected != row.place.first) {
                return Err(missing(database, expected, row.place.first)?);
            }
            let body = match before {
                Some(before) => row.verify(before).map_err(|error| match (expected, after) {
                    (None, Some(_)) => Error::Forked(row.place.first),
                    _ => error,
                })?,
                None => row.unpack()?,
            };
            (before, expected) = (Some(row.place.link), Some(row.place.next));
            if visit(row, body)?.is_break() {
                return Ok(begin);
            }
        }
    }
    Ok(begin)
}

/// Why batches between two others are missing: a slow reader was overtaken by a trim, which removes the oldest ones, or somebody
/// has removed them.
fn missing(database: &Database, expected: Position, found: Position) -> Result<Error, Error> {
    let shard = database.shard();
    let before = found.0 as i64;
    let has_older = database.run(move |session| async move {
        let sql = format!(
            "SELECT EXISTS (SELECT 1 FROM lessor.batch WHERE shard = $1 AND first < $2 AND {HOLDS_RECORDS})"
        );
        Ok(session.query_one(&sql, &[&shard, &before]).await?.get::<_, bool>(0))
    })?;
    Ok(match has_older {
        true => Error::Damaged(format!("batches before position {found} are missing")),
        false => Error::Trimmed { from: expected, first: found },
    })
}

/// The page that begins with the batch of a position, or with the first one after it.
async fn fetch_from(session: Arc<Session>, shard: i32, from: Position) -> Result<Vec<BatchRow>, Error> {
    let before = format!(
        "SELECT first, next FROM lessor.batch WHERE shard = $1 AND first <= $2 AND {HOLDS_RECORDS} \
         ORDER BY first DESC LIMIT 1"
    );
    let from = from.0.max(1) as i64;
    let row = session.query_opt(&before, &[&shard, &from]).await?;
    let holds = row.filter(|row| row.get::<_, i64>(1) > from);
    let first = holds.map_or(from, |row| row.get(0));
    fetch(&session, shard, first).await
}

async fn fetch_at(session: Arc<Session>, shard: i32, first: Position) -> Result<Vec<BatchRow>, Error> {
    fetch(&session, shard, first.0 as i64).await
}

async fn fetch(session: &Session, shard: i32, first: i64) -> Result<Vec<BatchRow>, Error> {
    // The sizes are known without reading the bodies.
    let page = format!(
        "SELECT {COLUMNS} FROM (SELECT *, sum(length(body)) OVER (ORDER BY first) - length(body) AS before \
         FROM (SELECT * FROM lessor.batch WHERE shard = $1 AND first >= $2 AND {HOLDS_RECORDS} ORDER BY first LIMIT $3) AS batch) AS page \
         WHERE before < $4::int8 ORDER BY first"
    );
    let rows = session.query(&page, &[&shard, &first, &PAGE_ROWS, &PAGE_BYTES]).await?;
    rows.iter().map(BatchRow::read).collect()
}
