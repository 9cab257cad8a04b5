//! Telling a worker to stop: by signal, or by whoever holds its stopper.

use tokio::sync::watch;

use crate::Error;

/// Stops a worker from anywhere; a clone stops the same worker.
#[derive(Clone, Debug)]
pub struct Stopper(watch::Sender<u32>);

impl Stopper {
    pub(crate) fn new() -> Stopper {
        Stopper(watch::Sender::new(0))
    }

    /// Tells the worker to drain; a second call ends the grace.
    pub fn stop(&self) {
        self.0.send_modify(|times| *times = times.saturating_add(1));
    }

    /// Returns once it was told so often.
    pub(crate) async fn told(&self, times: u32) {
        let mut told = self.0.subscribe();
        // The sender lives as long as `self`.
        let _ = told.wait_for(|told| *told >= times).await;
    }
}

/// Passes SIGTERM and SIGINT on to the stopper, for ever.
#[cfg(unix)]
pub fn hear_signals(stopper: Stopper) -> Result<impl Future<Output = ()>, Error> {
    use tokio::signal::unix::{SignalKind, signal};

    let failed = |error: std::io::Error| Error::Setup(format!("signals cannot be heard: {error}"));
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

/// Passes Ctrl-C on to the stopper, for ever.
#[cfg(not(unix))]
pub fn hear_signals(stopper: Stopper) -> Result<impl Future<Output = ()>, Error> {
    Ok(async move {
        while tokio::signal::ctrl_c().await.is_ok() {
            stopper.stop();
        }
        std::future::pending().await
    })
}
