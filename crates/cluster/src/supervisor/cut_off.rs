//! An owner that most nodes cannot reach hands the ledger over, because their requests wait for it.

use std::time::Instant;

use ledger::postgres::Error;
use tokio::time::timeout;

use super::{LOOK_TIMEOUT, Supervisor};

impl Supervisor {
    /// Tells whether other nodes were heard a moment ago. Without this an owner never hands over because it is cut off.
    pub fn with_hearing(self, is_heard: impl Fn(&str) -> bool + Send + 'static) -> Supervisor {
        Supervisor { is_heard: Some(Box::new(is_heard)), ..self }
    }

    /// Compares the nodes that live with those that this owner hears.
    pub(super) async fn look_whether_it_is_cut_off(&mut self) -> Result<bool, Error> {
        if self.is_heard.is_none() {
            return Ok(false);
        }
        // Before the ages of the rows are known, so that no row looks newer than it is.
        let now = Instant::now();
        let living = self.membership.living().await?;
        let is_heard = self.is_heard.as_ref();
        Ok(is_heard.is_some_and(|is_heard| self.reachability.is_cut_off(&living, is_heard, now)))
    }

    /// Says that this owner hands over because it is cut off. An owner whose answers wait for a standby may not be able to end
    /// before another node has replaced it.
    pub(super) async fn say_that_it_is_cut_off(&mut self, epoch: u64) {
        tracing::warn!("most nodes cannot reach this one; it hands the ledger over to one of them");
        self.reachability.hands_over(Instant::now());
        let said = async {
            self.membership.record_cut_off(epoch).await?;
            if self.lacks_standby() { self.membership.release().await } else { Ok(()) }
        };
        let _ = timeout(LOOK_TIMEOUT, said).await;
    }

    /// Whether answers wait for a standby that does not come.
    pub(super) fn lacks_standby(&self) -> bool {
        self.feed.lacks_standby().load(std::sync::atomic::Ordering::Acquire)
    }
}
