//! Reads the history from the disk beside a running coordinator, as a read-only tool does.

use std::ops::ControlFlow;
use std::sync::Arc;

use authority::Position;
use history::time_travel;
use ledger::file::Inspection;
use ledger::{HistoryRecord, Reader};

use super::Host;

impl Host {
    /// Every retained record, and the position of the first.
    pub(crate) fn read_history(&self) -> Result<(Position, Vec<HistoryRecord>), String> {
        let inspection = Inspection::open(Arc::new(self.disk.clone()))
            .map_err(|error| format!("the ledger cannot be inspected: {error}"))?;
        let first = inspection.first().map_err(|error| error.to_string())?;
        let mut records = Vec::new();
        time_travel::records(&inspection, first, &mut |position, record| {
            records.push(HistoryRecord { position, at: record.at, event: record.event });
            ControlFlow::Continue(())
        })
        .map_err(|error| format!("the history cannot be read: {error}"))?;
        Ok((first, records))
    }
}
