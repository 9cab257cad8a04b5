//! Stops a worker: by signal, or through a [`Stopper`].

use tokio::sync::watch;

use crate::Error;

/// Stops a worker from anywhere; a clone stops the same worker.
#[derive(Clone, Debug, Default)]
pub struct Stopper(watch::Sender<u32>);

impl Stopper {
    pub fn new() -> Stopper {
        Stopper::default()
    }

    /// Makes the worker drain; a second call ends the grace period.
    pub fn stop(&self) {
        self.0.send_modify(|calls| *calls = calls.saturating_add(1));
    }

    /// Whether `stop` was called.
    pub fn is_stop_requested(&self) -> bool {
        *self.0.borrow() > 0
    }

    /// Returns once `stop` was called.
    pub async fn stop_requested(&self) {
        self.wait_for_calls(1).await;
    }

    /// Returns once `stop` was called twice.
    pub async fn immediate_stop_requested(&self) {
        self.wait_for_calls(2).await;
    }

    async fn wait_for_calls(&self, count: u32) {
        // It cannot fail: the sender lives as long as `self`.
        let _ = self.0.subscribe().wait_for(|calls| *calls >= count).await;
    }
}

/// Calls `stop` for every SIGTERM and SIGINT. The future never ends.
pub fn stop_on_signals(stopper: Stopper) -> Result<impl Future<Output = ()>, Error> {
    use tokio::signal::unix::{SignalKind, signal};

    let failed = |error: std::io::Error| Error::Setup(format!("cannot listen for signals: {error}"));
    let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
    Ok(async move {
        loop {
            tokio::select! {
                _ = terminate.recv() => stopper.stop(),
                _ = interrupt.recv() => stopper.stop(),
            }
        }
    })
}
