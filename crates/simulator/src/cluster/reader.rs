//! Reads the ledger from the simulated database, as a standby does.

use std::ops::ControlFlow;

use authority::Position;
use ledger::postgres::{Error as TableError, Kept};
use ledger::{Error, ErrorKind, Hold, Link, Reader, SnapshotInfo, SnapshotSource, Visit};

use super::NodeId;
use super::database::Database;

pub(crate) struct NodeReader {
    pub database: Database,
    pub node: NodeId,
    pub kept: Kept,
}

impl NodeReader {
    fn unavailable() -> Error {
        Error::new(ErrorKind::Unavailable, "the database cannot be reached")
    }
}

impl Reader for NodeReader {
    fn first(&self) -> Result<Position, Error> {
        let content = self.database.lock();
        let first = content.rows().values().find(|row| !row.body.is_empty()).map(|row| row.place.first);
        Ok(first.unwrap_or(content.last().next))
    }

    fn next(&self) -> Result<Position, Error> {
        Ok(self.database.lock().last().next)
    }

    fn record(&self, position: Position) -> Result<Option<Vec<u8>>, Error> {
        let mut found = None;
        let read = self.read(position, position, &mut |_, bytes| {
            found = Some(bytes.to_vec());
            ControlFlow::Break(())
        });
        match read {
            Err(error) if error.kind() == ErrorKind::Trimmed => Ok(None),
            read => read.map(|()| found),
        }
    }

    fn read(&self, from: Position, to: Position, visit: &mut Visit<'_>) -> Result<(), Error> {
        let first = self.first()?;
        if from < first {
            return Err(Error::trimmed(from, first));
        }
        let rows: Vec<_> = self.database.lock().rows().values().cloned().collect();
        let mut before: Option<Link> = None;
        for row in rows {
            let body = match before.replace(row.place.link) {
                Some(before) if !row.body.is_empty() => row.verify(before).map_err(Error::from)?,
                _ => continue,
            };
            for record in row.records(&body) {
                let (position, bytes) = record.map_err(Error::from)?;
                if position > to || (position >= from && visit(position, bytes).is_break()) {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn follow(
        &self,
        from: Position,
        after: Option<Link>,
        visit: &mut Visit<'_>,
    ) -> Result<Option<Link>, Error> {
        let rows: Vec<_> = {
            let content = self.database.lock();
            if !content.is_reachable(self.node) {
                return Err(NodeReader::unavailable());
            }
            content
                .rows()
                .range(..from)
                .next_back()
                .map(|(_, row)| row.clone())
                .into_iter()
                .chain(content.rows().range(from..).map(|(_, row)| row.clone()))
                .collect()
        };
        let mut last = after;
        let before = rows.first().filter(|row| row.place.next == from).map(|row| row.place);
        if let Some(place) = before.filter(|place| last.is_none_or(|last| last == place.link)) {
            self.database.lock().reads.push((self.node, place));
            if self.kept.end().is_none() {
                self.kept.begin(place);
                last = Some(place.link);
            }
        }
        // Another batch has taken the place of those that were read.
        let other = rows.first().filter(|row| row.place.first < from && row.place.next > from);
        if let (Some(other), Some(_)) = (other, after) {
            return Err(TableError::Forked(other.place.first).into());
        }
        let new: Vec<_> = rows.into_iter().filter(|row| row.place.first >= from).collect();
        if let Some(first) = new.first().filter(|row| row.place.first > from) {
            return Err(Error::trimmed(from, first.place.first));
        }
        let after = last;
        for row in new {
            let body = match last.or(before.map(|place| place.link)) {
                Some(link) => row.verify(link).map_err(|error| match after {
                    Some(_) if row.place.first == from => TableError::Forked(row.place.first),
                    _ => error,
                })?,
                None => row.unpack()?,
            };
            self.database.lock().reads.push((self.node, row.place));
            self.kept.found(&row, &body)?;
            for record in row.records(&body) {
                let (position, bytes) = record?;
                if visit(position, bytes).is_break() {
                    return Ok(last);
                }
            }
            last = Some(row.place.link);
        }
        Ok(last)
    }

    fn snapshots(&self) -> Result<Vec<SnapshotInfo>, Error> {
        let content = self.database.lock();
        if !content.is_reachable(self.node) {
            return Err(NodeReader::unavailable());
        }
        Ok(content.snapshots.iter().map(|(info, _)| info.clone()).collect())
    }

    fn load_snapshot(&self, info: &SnapshotInfo) -> Result<Box<dyn SnapshotSource>, Error> {
        let content = self.database.lock();
        let found = content.snapshots.iter().find(|(known, _)| known == info).cloned();
        let (info, blocks) = found.ok_or_else(NodeReader::unavailable)?;
        Ok(Box::new(Blocks(info, blocks.into_iter())))
    }

    fn hold(&self, _name: &str, _from: Position) -> Result<Box<dyn Hold>, Error> {
        Ok(Box::new(NoHold))
    }
}

struct NoHold;

impl Hold for NoHold {
    fn advance(&self, _from: Position) -> Result<(), Error> {
        Ok(())
    }
}

struct Blocks(SnapshotInfo, std::vec::IntoIter<Vec<u8>>);

impl SnapshotSource for Blocks {
    fn info(&self) -> &SnapshotInfo {
        &self.0
    }

    fn next_block(&mut self, block: &mut Vec<u8>) -> Result<bool, Error> {
        Ok(self.1.next().map(|next| *block = next).is_some())
    }
}
