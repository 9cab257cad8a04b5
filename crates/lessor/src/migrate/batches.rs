//! Reads the batches of a ledger as they were appended.

use std::ops::ControlFlow;

use anyhow::{Result, anyhow};
use ledger::{Batch, BatchBuilder, Reader, Seen};

/// Calls `visit` with every batch in order, and with the bytes that were read so far. Damage ends it.
pub(super) fn for_each(reader: &dyn Reader, visit: &mut dyn FnMut(Batch, u64) -> Result<()>) -> Result<()> {
    let mut open: Option<(BatchBuilder, u64)> = None;
    let mut bytes = 0;
    let mut failed = Ok(());
    reader.inspect(&mut |seen| {
        let seen = match seen {
            Seen::Missing(damage) | Seen::Damage(damage) => Err(anyhow!(damage)),
            Seen::Batch(stored) => {
                let before =
                    open.take().map_or(Ok(()), |(batch, time_ms)| visit(batch.finish(time_ms), bytes));
                bytes += stored.bytes;
                // An empty batch holds nothing that another backend could keep.
                open = (stored.count > 0).then(|| (BatchBuilder::new(stored.first), stored.time_ms));
                before
            }
            Seen::Record(_, record) => match &mut open {
                Some((batch, _)) => batch.push(record).map(drop).map_err(Into::into),
                None => Err(anyhow!("a record belongs to no batch")),
            },
        };
        match seen {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                failed = Err(error);
                ControlFlow::Break(())
            }
        }
    })?;
    failed?;
    open.map_or(Ok(()), |(batch, time_ms)| visit(batch.finish(time_ms), bytes))
}
