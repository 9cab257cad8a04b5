//! The same cycle on another queue, run by a program of that queue's own library.
//!
//! The program finds `CLIENTS`, `SECONDS`, `PAYLOAD_BYTES` and `DATABASE_URL`, an empty database, in its environment, and
//! prints one JSON object with `queue` and `cyclesPerSecond`.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use tokio::process::Command;
use url::Url;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PeerRate {
    pub queue: String,
    pub cycles_per_second: f64,
}

pub(crate) async fn measure(
    command: &str,
    database: &Url,
    clients: usize,
    payload_bytes: usize,
    time: Duration,
) -> Result<PeerRate> {
    let ran = Command::new("sh")
        .args(["-c", command])
        .env("DATABASE_URL", database.as_str())
        .env("CLIENTS", clients.to_string())
        .env("PAYLOAD_BYTES", payload_bytes.to_string())
        .env("SECONDS", time.as_secs().to_string())
        .kill_on_drop(true)
        .output()
        .await
        .with_context(|| format!("cannot run {command}"))?;
    ensure!(ran.status.success(), "{command} failed: {}", String::from_utf8_lossy(&ran.stderr));
    serde_json::from_slice(&ran.stdout)
        .with_context(|| format!("{command} printed {}, not its rate", String::from_utf8_lossy(&ran.stdout)))
}
