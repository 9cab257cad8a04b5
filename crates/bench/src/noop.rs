//! Measures the limit of the network stack: requests that do nothing, with the same server and client.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::http::Server;
use super::load::{LoadGenerator, Rate};
use super::percentiles::Percentiles;

pub(crate) async fn measure(server: &Server, clients: usize, time: Duration) -> Result<Rate> {
    let mut load = LoadGenerator::new(clients);
    for _ in 0..clients {
        let (mut client, done) = (server.connect().await?, load.done.clone());
        load.clients.spawn(async move {
            loop {
                client.get("/healthz").await?;
                done.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    load.measure(Some(server), time).await
}

/// The median time of one no-op request from one client, in milliseconds.
pub(crate) async fn p50_ms(server: &Server, requests: usize) -> Result<f64> {
    let mut client = server.connect().await?;
    let mut times = Vec::with_capacity(requests);
    for _ in 0..requests {
        let began = Instant::now();
        client.get("/healthz").await?;
        times.push(began.elapsed());
    }
    Ok(Percentiles::of(times).at_ms(50.0))
}
