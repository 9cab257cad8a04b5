//! N12: peers that abuse HTTP/2 lose their connection, and the others are served.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

use server::Limits;

use crate::support::Served;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
/// GET http://x/ in HPACK, from its static table but for the authority.
const GET: &[u8] = &[0x82, 0x86, 0x84, 0x41, 1, b'x'];

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut frame = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    frame.extend_from_slice(&[kind, flags]);
    frame.extend_from_slice(&stream.to_be_bytes());
    frame.extend_from_slice(payload);
    frame
}

/// Sends a flood until the server closes, which it must.
async fn flood(served: &Served, pieces: impl Iterator<Item = Vec<u8>>) {
    let mut stream = TcpStream::connect(served.address).await.unwrap();
    stream.write_all(PREFACE).await.unwrap();
    stream.write_all(&frame(SETTINGS, 0, 0, &[])).await.unwrap();
    let (mut from, mut to) = stream.into_split();
    let read = tokio::spawn(async move {
        let mut answer = Vec::new();
        let _ = from.read_to_end(&mut answer).await;
    });
    for piece in pieces {
        if to.write_all(&piece).await.is_err() {
            break;
        }
    }
    timeout(Duration::from_secs(30), read).await.expect("the flood is cut off").unwrap();
    assert_eq!(served.get("/healthz").await.status, 200);
}

#[tokio::test]
async fn n12_a_rapid_reset_is_cut_off() {
    let served = Served::start().await;
    let pieces = (0..100).map(|hundred| {
        let streams = (0..100).map(|n| 2 * (100 * hundred + n) + 1);
        let opened_and_reset = |stream| {
            let open = frame(HEADERS, END_STREAM | END_HEADERS, stream, GET);
            [open, frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes())].concat()
        };
        streams.flat_map(opened_and_reset).collect()
    });
    flood(&served, pieces).await;
}

#[tokio::test]
async fn n12_endless_headers_are_cut_off() {
    let served = Served::start().await;
    let header = [&[0, 1, b'x', 100][..], &[b'y'; 100]].concat();
    let many = header.repeat(100);
    let begin = frame(HEADERS, END_STREAM, 1, GET);
    let more = std::iter::repeat_n(frame(CONTINUATION, 0, 1, &many), 10_000);
    flood(&served, std::iter::once(begin).chain(more)).await;
}

/// A peer that asks without end and reads no answer. Each answer is written before the next frame is read, so that nothing
/// piles up; when the peer takes none, it is cut off.
async fn flood_without_reading(piece: Vec<u8>) {
    let limits = Limits { max_write_stall: Duration::from_millis(500), ..Limits::default() };
    let served = Served::start_with(limits).await;
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4_096).unwrap();
    let mut stream = socket.connect(served.address).await.unwrap();
    stream.write_all(PREFACE).await.unwrap();
    stream.write_all(&frame(SETTINGS, 0, 0, &[])).await.unwrap();
    let pieces = piece.repeat(1_000);
    let flooding = tokio::spawn(async move { while stream.write_all(&pieces).await.is_ok() {} });
    while !flooding.is_finished() {
        assert_eq!(served.get("/healthz").await.status, 200, "others are served meanwhile");
    }
    flooding.await.unwrap();
}

#[tokio::test]
async fn n12_a_flood_of_pings_is_cut_off() {
    let flood = flood_without_reading(frame(PING, 0, 0, b"12345678"));
    timeout(Duration::from_secs(60), flood).await.expect("the flood is cut off");
}

#[tokio::test]
async fn n12_a_flood_of_settings_is_cut_off() {
    // SETTINGS_MAX_CONCURRENT_STREAMS, another value each time.
    let settings = (1..=10_u8).flat_map(|value| frame(SETTINGS, 0, 0, &[0, 3, 0, 0, 0, value]));
    let flood = flood_without_reading(settings.collect());
    timeout(Duration::from_secs(60), flood).await.expect("the flood is cut off");
}
