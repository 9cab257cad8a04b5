//! The signals that stop the server, counted from the moment of listening, so that none is lost before it is awaited.

use anyhow::{Context, Result};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

pub(crate) struct StopSignals(watch::Receiver<Received>);

/// How many signals came, and the name of the last one.
type Received = (u32, &'static str);

impl StopSignals {
    /// From now on SIGTERM and SIGINT no longer end the process by themselves.
    pub(crate) fn listen() -> Result<StopSignals> {
        let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
        let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for Ctrl-C")?;
        let (sender, receiver) = watch::channel((0_u32, ""));
        tokio::spawn(async move {
            loop {
                let name = tokio::select! {
                    _ = terminate.recv() => "SIGTERM",
                    _ = interrupt.recv() => "SIGINT",
                };
                sender.send_modify(|(count, last)| (*count, *last) = (count.saturating_add(1), name));
            }
        });
        Ok(StopSignals(receiver))
    }

    pub(crate) fn count(&self) -> u32 {
        self.0.borrow().0
    }

    /// Resolves once this many signals came, with the name of the last one.
    pub(crate) async fn received(&self, count: u32) -> &'static str {
        let mut receiver = self.0.clone();
        let last = receiver.wait_for(|(received, _)| *received >= count).await.map(|received| received.1);
        match last {
            Ok(name) => name,
            // The task that counts ends with the runtime only.
            Err(_) => std::future::pending().await,
        }
    }
}
