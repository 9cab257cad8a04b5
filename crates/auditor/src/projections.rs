//! Checks projections: they apply every record in order, at least once, and nothing that is not durable.

use authority::{Event, Position, Time};

use super::{Auditor, Covered, ensure};

impl Auditor {
    pub(super) fn applied(&mut self, position: Position, at: Time, event: &Event) -> Result<(), String> {
        let record = position.0.checked_sub(1).and_then(|index| self.log.get(index as usize));
        let record = record.ok_or("it is not durable")?;
        ensure(record.at == at && record.event == *event, "something else was recorded there")?;
        let next = self.applied.next();
        ensure(position <= next, format!("record {next} is left out"))?;
        if position < next {
            self.mark_covered(Covered::ProjectionRepeated);
        }
        self.applied = position;
        Ok(())
    }

    /// Checks, when nothing more is on its way, that no record is missing.
    pub fn all_applied(&self) -> Result<(), String> {
        let (applied, newest) = (self.applied, self.position);
        ensure(applied == newest, format!("of {newest} records only those up to {applied} are applied"))
    }
}
