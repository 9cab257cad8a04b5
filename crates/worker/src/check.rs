//! Checks whether a worker could work here: the coordinator, the content store, the disk and the backend (S3-61).
//!
//! The checks do not register, and leave only the work directory, so that they can run beside a worker.

use blobs::{Digest, DigestFunction};

use crate::agent::probe;
use crate::disk::Disk;
use crate::executors::{self, Check, ExecutorOptions};
use crate::{Cas, Config};

pub async fn check(config: &Config, executor: &ExecutorOptions, cas: &dyn Cas) -> Vec<Check> {
    let mut checks = surroundings(config, cas).await;
    checks.extend(executors::check(executor).await);
    checks
}

/// The checks without the backend.
pub async fn surroundings(config: &Config, cas: &dyn Cas) -> Vec<Check> {
    let instance = config.workspace.as_deref().unwrap_or_default();
    let (server, store) = tokio::join!(probe(config), store(cas, instance));
    vec![
        Check { name: "server", result: server },
        Check { name: "content store", result: store },
        Check { name: "disk", result: disk(config) },
    ]
}

async fn store(cas: &dyn Cas, instance: &str) -> Result<String, String> {
    let empty = Digest::of(DigestFunction::Sha256, b"");
    match cas.find_missing(instance, &[empty]).await {
        Ok(_) => Ok("it answers".to_owned()),
        Err(error) => Err(format!("{error}; is --cas-url right?")),
    }
}

fn disk(config: &Config) -> Result<String, String> {
    // Before the first start, the nearest existing directory is on the same disk.
    let work_dir = &config.actions.work_dir;
    let there = work_dir.ancestors().find(|directory| directory.is_dir()).unwrap_or(work_dir);
    match Disk::new(there, config.actions.disk_reserve_bytes).usable_bytes() {
        Ok(bytes) => Ok(format!("{} MiB can be used at {}", bytes >> 20, there.display())),
        Err(why) => Err(format!("{why}: make room, or choose another --work-dir")),
    }
}
