//! A fake server with scripted answers, also such as no real server should give.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread::JoinHandle;

use serde_json::Value;

/// What to do with one connection.
pub(crate) enum Reply {
    /// Read the request and hang up.
    Lose,
    /// Answer with a status, one more header line and a body.
    Answer(u16, &'static str, String),
}

/// Takes as many connections as there are replies, then listens no more.
pub(crate) struct Fake {
    pub url: String,
    serving: JoinHandle<Vec<Value>>,
}

impl Fake {
    pub(crate) fn start(replies: Vec<Reply>) -> Fake {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let serving = std::thread::spawn(move || {
            replies.into_iter().map(|reply| serve(listener.accept().unwrap().0, reply)).collect()
        });
        Fake { url, serving }
    }

    /// The bodies of the requests, once all of them have come.
    pub(crate) fn requests(self) -> Vec<Value> {
        self.serving.join().unwrap()
    }
}

fn serve(stream: TcpStream, reply: Reply) -> Value {
    let mut reader = BufReader::new(&stream);
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        if line.trim().is_empty() {
            break;
        }
        if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    if let Reply::Answer(status, header, text) = reply {
        let head =
            format!("HTTP/1.1 {status} x\r\n{header}\r\nconnection: close\r\ncontent-length: {}", text.len());
        (&stream).write_all(format!("{head}\r\n\r\n{text}").as_bytes()).unwrap();
    }
    if body.is_empty() { Value::Null } else { serde_json::from_slice(&body).unwrap() }
}
