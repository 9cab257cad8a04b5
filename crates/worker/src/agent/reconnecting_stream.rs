//! The stream to the coordinator, reconnected with backoff for as long as someone waits on it.

use std::pin::Pin;

use lessor_sdk::protocol::Backoff;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};
use tonic::Status;
use wire::grpc::{WorkRequest, WorkResponse};

use super::connection::{ConnectError, Connection, Connector};
use crate::Error;

pub(super) struct ReconnectingStream {
    connector: Connector,
    state: State,
    /// Never ends: a worker without a coordinator has nothing better to do than to come back.
    backoff: Backoff,
    was_connected: bool,
}

enum State {
    Disconnected { retry_at: Instant },
    Connecting(Pin<Box<dyn Future<Output = Result<Connection, ConnectError>> + Send>>),
    Connected(Box<Connection>),
}

pub(super) enum ConnectionEvent {
    /// The connection holds the welcome and the leases that the coordinator knows of.
    Connected,
    Message(Box<WorkResponse>),
    /// The connection is lost, and another one will be made.
    Disconnected,
    Fatal(Error),
}

impl ReconnectingStream {
    pub(super) fn new(connector: Connector) -> ReconnectingStream {
        let state = State::Disconnected { retry_at: Instant::now() };
        ReconnectingStream { connector, state, backoff: Backoff::unlimited(), was_connected: false }
    }

    pub(super) fn connection(&mut self) -> Option<&mut Connection> {
        match &mut self.state {
            State::Connected(connection) => Some(connection),
            _ => None,
        }
    }

    /// The sending half, while there is a connection.
    pub(super) fn sender(&self) -> Option<mpsc::Sender<WorkRequest>> {
        match &self.state {
            State::Connected(connection) => Some(connection.to.clone()),
            _ => None,
        }
    }

    /// Waits for the next event. Cancel-safe.
    pub(super) async fn next_event(&mut self) -> ConnectionEvent {
        loop {
            match &mut self.state {
                State::Disconnected { retry_at } => {
                    sleep_until(*retry_at).await;
                    let connecting = self.connector.clone().connect(self.was_connected);
                    self.state = State::Connecting(Box::pin(connecting));
                }
                State::Connecting(connecting) => match connecting.await {
                    Ok(connection) => {
                        tracing::info!("connected to the coordinator");
                        self.was_connected = true;
                        self.state = State::Connected(Box::new(connection));
                        return ConnectionEvent::Connected;
                    }
                    Err(ConnectError::Fatal(error)) => return ConnectionEvent::Fatal(error),
                    Err(ConnectError::Transient(why)) => self.schedule_retry(&why),
                },
                State::Connected(connection) => {
                    let end = match connection.from.message().await {
                        Ok(Some(message)) => {
                            // Only a message ends the backoff: a server that hangs up after the welcome is not healthy.
                            self.backoff = Backoff::unlimited();
                            return ConnectionEvent::Message(Box::new(message));
                        }
                        Ok(None) => Status::unavailable("the coordinator ended the stream"),
                        Err(status) => status,
                    };
                    return match self.connector.classify_end(end) {
                        ConnectError::Fatal(error) => ConnectionEvent::Fatal(error),
                        ConnectError::Transient(why) => self.disconnect(&why),
                    };
                }
            }
        }
    }

    /// Drops the connection; the next event makes another one.
    pub(super) fn disconnect(&mut self, why: &str) -> ConnectionEvent {
        self.schedule_retry(why);
        ConnectionEvent::Disconnected
    }

    fn schedule_retry(&mut self, why: &str) {
        let delay = self.backoff.next_delay(None).unwrap_or_default();
        tracing::warn!(why, retry_in_ms = delay.as_millis() as u64, "no connection to the coordinator");
        self.state = State::Disconnected { retry_at: Instant::now() + delay };
    }
}
