//! The way to the coordinator, whether it is there at the moment or not: it is made again, with growing pauses, for as
//! long as somebody waits on it.

use std::pin::Pin;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};
use tonic::Status;
use wire::grpc::{WorkRequest, WorkResponse};

use super::connection::{Connection, Connector, NoConnection};
use super::backoff::Backoff;
use crate::Error;

pub struct ReconnectingStream {
    connector: Connector,
    state: State,
    backoff: Backoff,
    was_up: bool,
}

enum State {
    Down(Instant),
    Connecting(Pin<Box<dyn Future<Output = Result<Connection, NoConnection>> + Send>>),
    Up(Box<Connection>),
}

/// What happens on the way.
pub enum ConnectionEvent {
    /// A connection was made. Its welcome and what is held are in it.
    Up,
    SendState(Box<WorkResponse>),
    /// The connection is gone; another is being made.
    Down,
    Final(Error),
}

impl ReconnectingStream {
    pub fn new(connector: Connector) -> ReconnectingStream {
        ReconnectingStream { connector, state: State::Down(Instant::now()), backoff: Backoff::new(), was_up: false }
    }

    pub fn connection(&mut self) -> Option<&mut Connection> {
        match &mut self.state {
            State::Up(connection) => Some(connection),
            _ => None,
        }
    }

    /// Where to send, while there is a connection.
    pub fn to(&self) -> Option<mpsc::Sender<WorkRequest>> {
        match &self.state {
            State::Up(connection) => Some(connection.to.clone()),
            _ => None,
        }
    }

    /// Waits for the next news. Nothing is lost when this is dropped.
    pub async fn next_event(&mut self) -> ConnectionEvent {
        loop {
            match &mut self.state {
                State::Down(until) => {
                    sleep_until(*until).await;
                    let connecting = self.connector.clone().connect(self.was_up);
                    self.state = State::Connecting(Box::pin(connecting));
                }
                State::Connecting(connecting) => match connecting.await {
                    Ok(connection) => {
                        tracing::info!("connected to the coordinator");
                        self.was_up = true;
                        self.state = State::Up(Box::new(connection));
                        return ConnectionEvent::Connected;
                    }
                    Err(NoConnection::Final(error)) => return ConnectionEvent::Fatal(error),
                    Err(NoConnection::Fault(why)) => self.pause(&why),
                },
                State::Up(connection) => {
                    let end = match connection.from.message().await {
                        Ok(Some(message)) => {
                            // Only a server that talks is worth coming back to at once.
                            self.backoff.after_success();
                            return ConnectionEvent::Message(Box::new(message));
                        }
                        Ok(None) => Status::unavailable("the coordinator ended the stream"),
                        Err(status) => status,
                    };
                    return match self.connector.read_end(&end) {
                        NoConnection::Final(error) => ConnectionEvent::Fatal(error),
                        NoConnection::Fault(why) => self.down(&why),
                    };
                }
            }
        }
    }

    /// Gives the connection up.
    pub fn down(&mut self, why: &str) -> ConnectionEvent {
        self.pause(why);
        ConnectionEvent::Disconnected
    }

    fn pause(&mut self, why: &str) {
        let pause: Duration = self.backoff.after_failure();
        tracing::warn!(why, pause_ms = pause.as_millis() as u64, "no connection to the coordinator");
        self.state = State::Down(Instant::now() + pause);
    }
}
