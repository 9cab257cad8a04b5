//! Requests that are refused before their body was read: the answer arrives, and the connection is used again or said to
//! close (N13).

use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::support::Served;

/// Long enough for anything that is not stuck.
const PATIENCE: Duration = Duration::from_secs(30);
/// More than the server reads ahead.
const BODY_BYTES: usize = 300_000;

struct Client(BufReader<TcpStream>);

impl Client {
    async fn connect(served: &Served) -> Client {
        Client(BufReader::new(TcpStream::connect(served.address).await.unwrap()))
    }

    async fn send(&mut self, head: &str, body: &[u8]) {
        let head = format!(
            "{head}\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n",
            BODY_BYTES.min(body.len().max(1))
        );
        self.0.write_all(head.as_bytes()).await.expect("the connection was closed");
        self.0.write_all(body).await.expect("the connection was closed");
    }

    /// The status line and headers of the next answer, in lower case; its body is read over.
    async fn answer(&mut self) -> String {
        let read = async {
            let mut head = String::new();
            while !head.ends_with("\r\n\r\n") {
                let read = self.0.read_line(&mut head).await.expect("the connection was reset");
                assert_ne!(read, 0, "the connection was closed after {head:?}");
            }
            let head = head.to_ascii_lowercase();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            let length: usize = length.map_or(0, |length| length.parse().unwrap());
            self.0.read_exact(&mut vec![0; length]).await.expect("the body is whole");
            head
        };
        timeout(PATIENCE, read).await.expect("it is stuck")
    }
}

/// 29 of 30 requests after an early refusal were lost, because the connection was closed without a word.
#[tokio::test]
async fn a_connection_is_used_again_after_requests_that_were_refused_early() {
    let served = Served::start().await;
    let mut client = Client::connect(&served).await;
    let body = vec![b'x'; BODY_BYTES];
    for _ in 0..10 {
        for (head, status) in [
            ("POST /nothing HTTP/1.1", "404"),
            ("PUT /v1/tasks HTTP/1.1", "405"),
            ("POST /v1/tasks HTTP/1.1\r\ncontent-type: text/plain", "415"),
            ("POST /v1/tasks HTTP/1.1\r\norigin: http://evil.example", "403"),
            ("POST /v1/tasks/x/callbacks/started HTTP/1.1", "40"),
        ] {
            client.send(head, &body).await;
            let answer = client.answer().await;
            assert!(answer.starts_with(&format!("http/1.1 {status}")), "{head}: {answer}");
            assert!(!answer.contains("connection: close"), "{head}: {answer}");
        }
    }
    client.send("GET /healthz HTTP/1.1\r\nx: y", b"x").await;
    assert!(client.answer().await.starts_with("http/1.1 200"));
}

/// The client waits to be told to send its body, and is refused instead.
#[tokio::test]
async fn an_answer_after_which_the_connection_closes_says_so() {
    let served = Served::start().await;
    for head in ["POST /nothing HTTP/1.1", "POST /v1/tasks HTTP/1.1\r\ncontent-type: text/plain"] {
        let mut client = Client::connect(&served).await;
        let head = format!(
            "{head}\r\nhost: localhost\r\nexpect: 100-continue\r\ncontent-length: {BODY_BYTES}\r\n\r\n"
        );
        client.0.write_all(head.as_bytes()).await.unwrap();
        let answer = client.answer().await;
        assert!(answer.starts_with("http/1.1 4") && answer.contains("connection: close"), "{answer}");
        let mut rest = Vec::new();
        timeout(PATIENCE, client.0.read_to_end(&mut rest)).await.expect("it is stuck").unwrap();
        assert!(rest.is_empty());
    }
}
