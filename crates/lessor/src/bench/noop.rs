//! The limit of the network stack: requests that do nothing, over the same server and client.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;

use super::http::Server;
use super::stats::Spread;

/// No-op requests a second from this many clients.
pub async fn per_s(server: &Server, clients: usize, time: Duration) -> Result<f64> {
    let (count, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let mut running = Vec::new();
    for _ in 0..clients {
        let mut client = server.connect().await?;
        let (count, stop) = (count.clone(), stop.clone());
        running.push(tokio::spawn(async move {
            while !stop.load(Ordering::Relaxed) {
                client.get("/healthz").await?;
                count.fetch_add(1, Ordering::Relaxed);
            }
            anyhow::Ok(())
        }));
    }
    let began = Instant::now();
    tokio::time::sleep(time).await;
    stop.store(true, Ordering::Relaxed);
    let per_s = count.load(Ordering::Relaxed) as f64 / began.elapsed().as_secs_f64();
    for client in running {
        client.await??;
    }
    Ok(per_s)
}

/// The median time of one no-op request from one client, in milliseconds.
pub async fn p50_ms(server: &Server, requests: usize) -> Result<f64> {
    let mut client = server.connect().await?;
    let mut times = Vec::with_capacity(requests);
    for _ in 0..requests {
        let began = Instant::now();
        client.get("/healthz").await?;
        times.push(began.elapsed());
    }
    Ok(Spread::of(times).percentile_ms(50.0))
}
