//! Actions that wait for the test: each calls in when it runs, and ends when it is let through. So a test knows what was
//! committed before a moment and what is running at it, without guessing by time.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Child;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// How often the build is looked at while its action is waited for.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// Longest wait for an action.
const PATIENCE: Duration = Duration::from_secs(120);

pub(crate) struct Gates {
    port: u16,
    arrivals: Receiver<Arrival>,
}

/// An action that waits at its gate. When this is dropped without letting it through, the action fails.
pub(crate) struct Arrival {
    pub gate: usize,
    stream: TcpStream,
}

impl Gates {
    pub(crate) fn open() -> Gates {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (sender, arrivals) = channel();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let stream = stream.unwrap();
                let mut line = String::new();
                BufReader::new(&stream).read_line(&mut line).unwrap();
                let gate = line.trim().parse().unwrap();
                if sender.send(Arrival { gate, stream }).is_err() {
                    return;
                }
            }
        });
        Gates { port, arrivals }
    }

    /// What bash does to wait at a gate. The word that it is let through with is in `pass` then.
    pub(crate) fn script(&self, gate: usize) -> String {
        let port = self.port;
        format!("exec 3<>/dev/tcp/127.0.0.1/{port}; echo {gate} >&3; read -r pass <&3")
    }

    /// The command, for bash in a genrule, of an action that waits at a gate.
    pub(crate) fn command(&self, gate: usize) -> String {
        format!("{}; echo $$pass > $@", self.script(gate))
    }

    /// The next action that is at its gate; none when the build ended before, which it does at its deadline.
    pub(crate) fn next(&self, build: &mut Child) -> Option<Arrival> {
        loop {
            match self.arrivals.recv_timeout(LOOK_INTERVAL) {
                Ok(arrival) => return Some(arrival),
                Err(_) if build.try_wait().unwrap().is_some() => return None,
                Err(_) => {}
            }
        }
    }

    /// The next action that is at its gate.
    pub(crate) fn arrival(&self) -> Arrival {
        self.arrivals.recv_timeout(PATIENCE).expect("no action came to its gate")
    }

    /// Whether an action came to its gate that nobody waited for.
    pub(crate) fn is_quiet(&self) -> bool {
        self.arrivals.try_recv().is_err()
    }
}

impl Arrival {
    pub(crate) fn let_through(mut self) {
        writeln!(self.stream, "pass").unwrap();
    }
}
