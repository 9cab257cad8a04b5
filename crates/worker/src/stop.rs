//! Telling a worker to stop, from anywhere.

use tokio::sync::watch;

/// A clone stops the same worker.
#[derive(Clone, Debug)]
pub struct Stopper(watch::Sender<u32>);

impl Stopper {
    pub fn new() -> Stopper {
        Stopper(watch::Sender::new(0))
    }

    /// Tells the worker to drain; a second call ends the grace.
    pub fn stop(&self) {
        self.0.send_modify(|times| *times = times.saturating_add(1));
    }

    /// Returns once it was told to stop.
    pub async fn stopped(&self) {
        self.told(1).await;
    }

    /// Returns once it was told so often.
    pub(crate) async fn told(&self, times: u32) {
        let mut told = self.0.subscribe();
        // The sender lives as long as `self`.
        let _ = told.wait_for(|told| *told >= times).await;
    }
}

impl Default for Stopper {
    fn default() -> Stopper {
        Stopper::new()
    }
}
