//! GET /metrics.

use std::time::Duration;

use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use coordinator::engine::DiskSpace;
use coordinator::{Depth, Status};
use prometheus::{Encoder, TextEncoder};
use tokio::time::timeout;

use super::{Metrics, OTHERS};
use crate::app::App;
use crate::convert::{Code, Problem};

/// How long the coordinator may take to say what waits and runs.
const MAX_WAIT: Duration = Duration::from_secs(5);

/// Everything that is counted, in the text format of Prometheus. Whoever scrapes must not take figures of a coordinator
/// that does not answer for true, so there are none then.
pub(crate) async fn serve(State(app): State<App>) -> Result<Response, Problem> {
    let metrics = &app.metrics;
    let ask = async {
        let depths = app.handle.depths(metrics.0.named.clone()).await?;
        Ok::<_, Problem>((depths, app.handle.status().await?))
    };
    let silent = |_| Problem::new(Code::NotServing, "the coordinator does not answer");
    let (depths, status) = timeout(MAX_WAIT, ask).await.map_err(silent)??;
    let now = app.handle.now();
    let registered = app.handle.registry().registered_count(now);
    metrics.note(&status, &depths, registered, now);
    let encoder = TextEncoder::new();
    let mut text = Vec::new();
    let encoded = encoder.encode(&metrics.0.registry.gather(), &mut text);
    encoded.map_err(|error| {
        tracing::error!(%error, "the metrics cannot be written");
        Problem::new(Code::Internal, "the metrics cannot be written")
    })?;
    Ok(([(CONTENT_TYPE, encoder.format_type().to_owned())], text).into_response())
}

impl Metrics {
    fn note(&self, status: &Status, depths: &[Depth], registered: usize, time: authority::Time) {
        let scraped = &self.0.scraped;
        let sum = |count: fn(&Depth) -> u64| whole(depths.iter().map(count).sum::<u64>());
        scraped.queue_length.set(sum(|depth| depth.waiting));
        scraped.active_tasks.set(sum(|depth| depth.leased));
        scraped.registered_workers.set(whole(registered as u64));
        scraped.tasks.set(whole(status.tasks as u64));
        scraped.state_bytes.set(whole(status.state_bytes as u64));
        scraped.max_state_bytes.set(whole(status.max_state_bytes as u64));
        scraped.polls.set(whole(status.polls as u64));
        scraped.position.set(whole(status.position.0));
        scraped.disk_full.set(i64::from(status.disk_space != DiskSpace::Plenty));
        let names = self.0.named.iter().map(String::as_str).chain([OTHERS]);
        for (name, depth) in names.zip(depths) {
            let age_ms = depth.oldest_waiting.map_or(0, |oldest| time.since_ms(oldest));
            scraped.depth.with_label_values(&[name]).set(whole(depth.waiting));
            scraped.oldest_age.with_label_values(&[name]).set(Duration::from_millis(age_ms).as_secs_f64());
        }
    }
}

fn whole(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
