//! A proxy between a ledger and PostgreSQL that loses an append, or the answer to it.
//!
//! It knows as much of the protocol as it needs: which prepared statements append, when one is sent, and when it is answered.

use std::collections::BTreeSet;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

/// What happens to an append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loss {
    /// It does not arrive, and the connection ends.
    Statement,
    /// PostgreSQL has answered, and the connection ends instead of the answer.
    Answer,
    /// PostgreSQL has it, and the connection of the ledger ends at once. The session goes on.
    Connection,
}

pub(crate) struct Proxy {
    /// The address of the database, through the proxy.
    pub url: String,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    seen: Mutex<Seen>,
    changed: Condvar,
}

#[derive(Default)]
struct Seen {
    /// What happens to the next append.
    next: Option<Loss>,
    lost: usize,
    connections: usize,
}

impl Proxy {
    /// To a database on this machine.
    pub(crate) fn to(url: &str) -> Proxy {
        let config: tokio_postgres::Config = url.parse().expect("an address");
        let target = config.get_ports()[0];
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let shared = Arc::new(Shared::default());
        let accepting = shared.clone();
        std::thread::spawn(move || {
            while let Ok((client, _)) = listener.accept() {
                accepting.note(|seen| seen.connections += 1);
                let server = TcpStream::connect(("127.0.0.1", target)).expect("the server is there");
                let connection =
                    Connection { client, server, loss: Mutex::default(), shared: accepting.clone() };
                let connection = Arc::new(connection);
                let answers = connection.clone();
                std::thread::spawn(move || answers.close_after(answers.pass_answers()));
                std::thread::spawn(move || connection.close_after(connection.pass_statements()));
            }
        });
        Proxy { url: url.replace(&format!(":{target}/"), &format!(":{port}/")), shared }
    }

    /// Loses the next append.
    pub(crate) fn lose(&self, loss: Loss) {
        self.shared.note(|seen| seen.next = Some(loss));
    }

    /// How many appends or answers were lost.
    pub(crate) fn lost(&self) -> usize {
        self.shared.lock().lost
    }

    /// How many connections were made.
    pub(crate) fn connections(&self) -> usize {
        self.shared.lock().connections
    }

    /// Waits until so many connections were made.
    pub(crate) fn until_connections(&self, count: usize) {
        let seen = self.shared.lock();
        drop(self.shared.changed.wait_while(seen, |seen| seen.connections < count).expect("no panic"));
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().expect("no panic")
    }

    fn note(&self, change: impl FnOnce(&mut Seen)) {
        change(&mut self.lock());
        self.changed.notify_all();
    }
}

struct Connection {
    client: TcpStream,
    server: TcpStream,
    /// Set when an append was sent whose answer must not arrive.
    loss: Mutex<Option<Loss>>,
    shared: Arc<Shared>,
}

/// What follows on a part of the conversation.
enum Next {
    Close,
    /// The other part goes on until it ends by itself.
    Leave,
}

impl Connection {
    fn close_after(&self, next: io::Result<Next>) {
        let _ = self.client.shutdown(Shutdown::Both);
        if !matches!(next, Ok(Next::Leave)) {
            let _ = self.server.shutdown(Shutdown::Both);
        }
    }

    fn pass_statements(&self) -> io::Result<Next> {
        let (mut client, mut server) = (&self.client, &self.server);
        // The first message has no type.
        server.write_all(&read_rest(&mut client)?)?;
        let (mut appends, mut loss) = (BTreeSet::new(), None);
        loop {
            let (kind, rest) = read_message(&mut client)?;
            // Parse: the name of the statement, and its text. Bind: the name of a portal, and that of the statement.
            let mut texts = rest[4..].split(|byte| *byte == 0).map(<[u8]>::to_vec);
            let (first, second) = (texts.next().unwrap_or_default(), texts.next().unwrap_or_default());
            if kind == b'P' && String::from_utf8_lossy(&second).contains("INSERT INTO lessor.batch") {
                appends.insert(first);
            } else if kind == b'B' && appends.contains(&second) {
                loss = self.shared.lock().next.take();
                if loss == Some(Loss::Statement) {
                    self.shared.note(|seen| seen.lost += 1);
                    return Ok(Next::Close);
                }
                *self.loss.lock().expect("no panic") = loss;
            }
            server.write_all(&[&[kind], &rest[..]].concat())?;
            if kind == b'S' && loss == Some(Loss::Connection) {
                self.shared.note(|seen| seen.lost += 1);
                return Ok(Next::Leave);
            }
        }
    }

    fn pass_answers(&self) -> io::Result<Next> {
        let (mut client, mut server) = (&self.client, &self.server);
        let mut is_answered = false;
        loop {
            let (kind, rest) = read_message(&mut server)?;
            let Some(loss) = *self.loss.lock().expect("no panic") else {
                client.write_all(&[&[kind], &rest[..]].concat())?;
                continue;
            };
            is_answered |= matches!(kind, b'C' | b'E');
            // PostgreSQL is ready for more after it has committed.
            if kind == b'Z' && is_answered {
                if loss == Loss::Answer {
                    self.shared.note(|seen| seen.lost += 1);
                }
                return Ok(Next::Close);
            }
        }
    }
}

/// The type of a message, and the rest of it with its length.
fn read_message(stream: &mut &TcpStream) -> io::Result<(u8, Vec<u8>)> {
    let mut kind = [0];
    stream.read_exact(&mut kind)?;
    Ok((kind[0], read_rest(stream)?))
}

/// A length, which counts itself, and what follows.
fn read_rest(stream: &mut &TcpStream) -> io::Result<Vec<u8>> {
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let mut rest = length.to_vec();
    rest.resize(u32::from_be_bytes(length) as usize, 0);
    stream.read_exact(&mut rest[4..])?;
    Ok(rest)
}
