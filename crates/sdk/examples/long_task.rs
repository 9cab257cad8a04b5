//! A handler that takes its time: it tells its progress, stops when it should, and says what kind of error it met.

use std::time::Duration;

use lessor_sdk::{Error, Failure, Task, Worker};
use serde_json::{Value, json};

async fn report(task: Task) -> Result<Value, Failure> {
    let payload: Value = task.payload()?;
    let pages = payload["pages"].as_u64();
    let pages = pages.ok_or_else(|| Failure::data_quality("pages: must be a whole number"))?;
    for page in 0..pages {
        task.checkpoint()?;
        task.progress(100.0 * page as f64 / pages as f64, format!("page {} of {pages}", page + 1));
        tracing::info!(page, "at it");
    }
    // A store that remembers the highest token it has seen refuses whoever comes late.
    Ok(json!({"pages": pages, "fence": task.fencing_token()}))
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let worker = Worker::new().property("os", "linux").grace(Duration::from_secs(10));
    worker.handler("reports", report).run().await
}
