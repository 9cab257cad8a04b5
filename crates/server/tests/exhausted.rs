//! P9: when files are exhausted, accepting pauses and what is there goes on. Alone in its process, because it takes
//! the whole process to the limit.

#[path = "http/support/mod.rs"]
mod support;

use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::json;
use support::Served;
use tokio::net::TcpStream;
use tokio::time::timeout;

#[tokio::test]
async fn p9_without_files_accepting_pauses_and_existing_work_goes_on() {
    let served = Served::start().await;
    served.submit("q").await;
    let usual = getrlimit(Resource::Nofile);
    let scarce = Rlimit { current: Some(open_files() as u64 + 20), maximum: usual.maximum };
    setrlimit(Resource::Nofile, scarce).unwrap();
    // Each connection takes a file here and one in the server, until neither side gets one.
    let mut held = Vec::new();
    while let Ok(stream) = TcpStream::connect(served.address).await {
        held.push(stream);
    }
    assert!(held.len() >= 10);
    // The client's connection was open before, and the ledger's files are too.
    let told =
        timeout(Duration::from_secs(30), served.post("/v1/tasks", json!({"queue": "q", "payload": 1})));
    assert_eq!(told.await.expect("work goes on").status, 201);
    drop(held);
    setrlimit(Resource::Nofile, usual).unwrap();
    let fresh = reqwest::Client::builder().no_proxy().build().unwrap();
    let ready = fresh.get(format!("http://{}/readyz", served.address)).timeout(Duration::from_secs(30));
    assert_eq!(ready.send().await.expect("it accepts again").status(), 200);
}

fn open_files() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}
