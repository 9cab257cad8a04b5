//! Measures a store in a directory of its own and prints one JSON object for each figure.
//!
//!     cargo run --profile dist -p blobs --example figures -- [DIRECTORY] [BLOBS]
//!
//! BLOBS (default 1,000,000) is the number of small blobs for the start of a large store.

use std::{
    path::{Path, PathBuf},
    time::Instant,
};

use blobs::{
    ActionKey, Blobs, Digest, DigestFunction, Expect, Local, Options, Origin, Serve, Store, Tenant,
    UploadRequest,
};
use bytes::Bytes;

const BATCH: usize = 1000;
const LARGE_BYTES: usize = 64 << 20;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let root = arguments.next().map_or_else(std::env::temp_dir, PathBuf::from).join("lessor-blobs-figures");
    let count = arguments.next().and_then(|count| count.parse().ok()).unwrap_or(1_000_000);
    let _ = std::fs::remove_dir_all(&root);
    let tenant = Tenant::new("figures").expect("a good name");
    // A directory for each, all removed at the end: where many files were just deleted, making new ones is slow.
    small(&root.join("small"), &tenant);
    hops(&root.join("hops"), &tenant);
    large(&root.join("large"), &tenant);
    start(&root.join("start"), &tenant, count);
    std::fs::remove_dir_all(&root).expect("the directory can be removed");
}

/// Wall time and the processor's, which another process on the machine does not lengthen.
struct Clock {
    began: Instant,
    cpu_s: f64,
}

impl Clock {
    fn start() -> Clock {
        Clock { began: Instant::now(), cpu_s: cpu_s() }
    }

    /// So many things a second, by both clocks.
    fn rates(&self, count: f64) -> (f64, f64) {
        (count / self.began.elapsed().as_secs_f64(), count / (cpu_s() - self.cpu_s))
    }
}

fn cpu_s() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn open(root: &Path) -> Store {
    let options = Options { keep_free_bytes: 0, ..Options::default() };
    Store::open(root, options).expect("the store opens")
}

fn small_blobs(count: usize, bytes: usize, seed: u64) -> Vec<(Digest, Bytes)> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut blob = || {
        let mut content = vec![0; bytes];
        random.fill(&mut content);
        (Digest::of(DigestFunction::Sha256, &content), Bytes::from(content))
    };
    (0..count).map(|_| blob()).collect()
}

/// Writes and reads of blobs between the sizes that matter, one thread; and where packs stop paying.
fn small(root: &Path, tenant: &Tenant) {
    for bytes in [200, 2 << 10, 4 << 10, 16 << 10, 64 << 10] {
        let count = (64 << 20) / bytes.max(4 << 10);
        let blobs = small_blobs(count, bytes, bytes as u64);
        let digests: Vec<Digest> = blobs.iter().map(|(digest, _)| *digest).collect();
        for small_blob_bytes in [1 << 20, 0] {
            let options = Options { small_blob_bytes, keep_free_bytes: 0, ..Options::default() };
            let root = root.join(format!("{bytes}-{small_blob_bytes}"));
            let store = Store::open(root, options).expect("the store opens");
            let batch = (2 << 20) / bytes;
            let clock = Clock::start();
            for batch in blobs.chunks(batch) {
                assert!(store.put_many(tenant, batch).iter().all(Result::is_ok));
            }
            let (writes, writes_cpu) = clock.rates(count as f64);
            let clock = Clock::start();
            for batch in digests.chunks(batch) {
                assert!(store.get_many(tenant, batch).iter().all(Result::is_ok));
            }
            let (reads, reads_cpu) = clock.rates(count as f64);
            let place = if small_blob_bytes == 0 { "file" } else { "pack" };
            println!(
                r#"{{"bench":"small","place":"{place}","bytes":{bytes},"writes_per_s":{writes:.0},"writes_per_cpu_s":{writes_cpu:.0},"reads_per_s":{reads:.0},"reads_per_cpu_s":{reads_cpu:.0}}}"#
            );
        }
    }
}

/// Measures the cost of a call to a blocking thread, and one upload at a time.
fn hops(root: &Path, tenant: &Tenant) {
    let store = open(root);
    let local = Local::new(store.clone());
    let blobs = small_blobs(40_000, 2 << 10, 77);
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let rate = |name: &str, clock: Clock, count: usize| {
        let (rate, cpu) = clock.rates(count as f64);
        println!(r#"{{"bench":"{name}","per_s":{rate:.0},"per_cpu_s":{cpu:.0}}}"#);
    };
    runtime.block_on(async {
        let clock = Clock::start();
        for _ in 0..40_000 {
            tokio::task::spawn_blocking(|| ()).await.expect("it runs");
        }
        rate("empty_hop", clock, 40_000);
        for (name, batch) in [("put_one_at_a_time", 1), ("put_in_batches_of_100", 100)] {
            let half = if batch == 1 { &blobs[..20_000] } else { &blobs[20_000..] };
            let clock = Clock::start();
            for batch in half.chunks(batch) {
                assert!(local.put_many(tenant, batch.to_vec()).await.iter().all(Result::is_ok));
            }
            rate(name, clock, half.len());
        }
        let clock = Clock::start();
        for (digest, content) in &blobs {
            assert_eq!(local.get_many(tenant, &[*digest]).await[0].as_ref().expect("it is here"), content);
        }
        rate("get_one_at_a_time", clock, blobs.len());
        let fresh = small_blobs(20_000, 2 << 10, 78);
        let clock = Clock::start();
        for (n, (digest, content)) in fresh.iter().enumerate() {
            let request = UploadRequest::named(*digest, &n.to_string(), 0);
            let Ok(blobs::Begun::Writer(mut writer)) = local.write(tenant, request).await else {
                panic!("refused")
            };
            writer.write(0, content.clone()).await.expect("written");
            writer.finish().await.expect("finished");
        }
        rate("small_uploads_one_at_a_time", clock, fresh.len());
    });
    let key = |n: usize| ActionKey { instance: "main".into(), action: blobs[n].0 };
    let clock = Clock::start();
    for (n, (_, content)) in blobs[..20_000].iter().enumerate() {
        store.put_result(tenant, &key(n), Origin::Committed, &content[..500]).expect("stored");
    }
    rate("put_result", clock, 20_000);
    let clock = Clock::start();
    for n in 0..20_000 {
        assert!(store.get_result(tenant, &key(n), Serve::Committed).expect("readable").is_some());
    }
    rate("get_result", clock, 20_000);
}

/// Streams of 64 MiB, in pieces as clients send them.
fn large(root: &Path, tenant: &Tenant) {
    for function in DigestFunction::ALL {
        for (face, piece_bytes) in [("sync", 256 << 10), ("async", 64 << 10), ("async", 16 << 10)] {
            let store = open(&root.join(format!("{}-{face}-{piece_bytes}", function.name())));
            let local = Local::new(store.clone());
            let runtime = tokio::runtime::Runtime::new().expect("a runtime");
            let (mut write, mut read) = ((0.0, 0.0), (0.0, 0.0));
            let rounds = 4;
            for round in 0..rounds {
                let mut content = vec![0; LARGE_BYTES];
                fastrand::Rng::with_seed(round).fill(&mut content);
                let content = Bytes::from(content);
                let digest = Digest::of(function, &content);
                let request = UploadRequest::new(Expect::Digest(digest));
                let pieces =
                    (0..LARGE_BYTES).step_by(piece_bytes).map(|at| (at, content.slice(at..at + piece_bytes)));
                let clock = Clock::start();
                if face == "sync" {
                    let mut upload = store.write(tenant, &request).expect("begun").expect("not here");
                    for (at, piece) in pieces {
                        upload.write(at as u64, &piece).expect("written");
                    }
                    upload.finish().expect("finished");
                } else {
                    runtime.block_on(async {
                        let begun = local.write(tenant, request).await;
                        let Ok(blobs::Begun::Writer(mut writer)) = begun else { panic!("refused") };
                        for (at, piece) in pieces {
                            writer.write(at as u64, piece).await.expect("written");
                        }
                        writer.finish().await.expect("finished");
                    });
                }
                write = add(write, clock.rates(1.0));
                let clock = Clock::start();
                let mut bytes = 0;
                if face == "sync" {
                    let mut reader = store.read(tenant, &digest, 0, None).expect("it is here");
                    while let Some(piece) = reader.next_piece().expect("readable") {
                        bytes += piece.len();
                    }
                } else {
                    runtime.block_on(async {
                        let mut reader = local.read(tenant, digest, 0, None).await.expect("it is here");
                        while let Some(piece) = reader.next().await.expect("readable") {
                            bytes += piece.len();
                        }
                    });
                }
                assert_eq!(bytes, LARGE_BYTES);
                read = add(read, clock.rates(1.0));
            }
            let megabytes = (LARGE_BYTES * rounds as usize) as f64 / 1e6;
            println!(
                r#"{{"bench":"large","function":"{}","face":"{face}","piece_bytes":{piece_bytes},"write_mb_per_s":{:.0},"write_mb_per_cpu_s":{:.0},"read_mb_per_s":{:.0},"read_mb_per_cpu_s":{:.0}}}"#,
                function.name(),
                megabytes / write.0,
                megabytes / write.1,
                megabytes / read.0,
                megabytes / read.1
            );
        }
    }
}

/// Adds the times behind two rates.
fn add(sum: (f64, f64), rates: (f64, f64)) -> (f64, f64) {
    (sum.0 + 1.0 / rates.0, sum.1 + 1.0 / rates.1)
}

/// A large store: looking blobs up, and starting again.
fn start(root: &Path, tenant: &Tenant, count: usize) {
    let store = open(root);
    let mut digests = Vec::with_capacity(count);
    let clock = Clock::start();
    for round in 0..count / BATCH {
        // Numbers are content enough: what costs time here is the number of blobs, not their size.
        let number = |n: usize| Bytes::from(format!("blob {} of a large store", round * BATCH + n));
        let blobs: Vec<_> = (0..BATCH)
            .map(number)
            .map(|content| (Digest::of(DigestFunction::Sha256, &content), content))
            .collect();
        assert!(store.put_many(tenant, &blobs).iter().all(Result::is_ok));
        digests.extend(blobs.iter().map(|(digest, _)| *digest));
    }
    let (writes, writes_cpu) = clock.rates(count as f64);
    println!(r#"{{"bench":"tiny","writes_per_s":{writes:.0},"writes_per_cpu_s":{writes_cpu:.0}}}"#);
    fastrand::Rng::with_seed(1).shuffle(&mut digests);
    let clock = Clock::start();
    for batch in digests.chunks(BATCH) {
        assert_eq!(store.find_missing(tenant, batch), []);
    }
    let (present, present_cpu) = clock.rates(count as f64);
    let missing: Vec<Digest> =
        digests.iter().map(|digest| Digest { function: DigestFunction::Blake3, ..*digest }).collect();
    let clock = Clock::start();
    for batch in missing.chunks(BATCH) {
        assert_eq!(store.find_missing(tenant, batch).len(), BATCH);
    }
    let (absent, absent_cpu) = clock.rates(count as f64);
    println!(
        r#"{{"bench":"find_missing","blobs":{count},"present_per_s":{present:.0},"present_per_cpu_s":{present_cpu:.0},"absent_per_s":{absent:.0},"absent_per_cpu_s":{absent_cpu:.0}}}"#
    );
    store.clone().close().expect("it closes");
    drop(store);
    for round in ["listed", "again"] {
        let clock = Clock::start();
        let store = open(root);
        let (rate, cpu) = clock.rates(1.0);
        let (seconds, cpu) = (1.0 / rate, 1.0 / cpu);
        assert_eq!(store.usage().blobs, count);
        println!(
            r#"{{"bench":"start","blobs":{count},"round":"{round}","seconds":{seconds:.3},"cpu_seconds":{cpu:.3}}}"#
        );
    }
    for entry in std::fs::read_dir(root.join("packs")).expect("readable").flatten() {
        if entry.path().extension().is_some_and(|extension| extension == "list") {
            std::fs::remove_file(entry.path()).expect("it can be removed");
        }
    }
    let clock = Clock::start();
    let store = open(root);
    let (rate, cpu) = clock.rates(1.0);
    let (seconds, cpu) = (1.0 / rate, 1.0 / cpu);
    println!(
        r#"{{"bench":"start","blobs":{count},"round":"without lists","seconds":{seconds:.3},"cpu_seconds":{cpu:.3}}}"#
    );
    assert_eq!(store.usage().blobs, count);
}
