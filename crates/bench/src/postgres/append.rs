//! Measures appends to a ledger in PostgreSQL beside syncs of the disk: alone, and after another client has held a
//! snapshot, as a dump or a forgotten transaction does.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use ledger::postgres::Tables;
use ledger::{BatchBuilder, Ledger, Position};
use url::Url;

use super::append_content::{Batches, Content};
use super::{PostgresServer, parse_url};
use crate::fdatasync;
use crate::fixture::directory;
use crate::percentiles::Percentiles;
use crate::report::{Line, Report};

/// The time to measure the syncs of the disk.
const LIMIT_TIME: Duration = Duration::from_secs(3);

#[derive(clap::Args)]
pub(crate) struct Options {
    /// A server in which databases are created and dropped; its data should be on the disk of --dir
    #[arg(long, value_name = "postgres:URL", value_parser = parse_url)]
    ledger: Url,

    /// Bytes of a batch
    #[arg(long, default_value_t = 16_384)]
    bytes: usize,

    /// Content of the batches
    #[arg(long, value_enum, value_delimiter = ',', default_values = ["records", "random"])]
    content: Vec<Content>,

    /// Seconds for each measurement
    #[arg(long, default_value_t = 5)]
    seconds: u64,

    /// Seconds for which another client holds a snapshot before the second measurement
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    old_snapshot: u64,

    #[arg(long, default_value_t = 1)]
    rounds: u32,
}

pub(crate) async fn run(options: &Options, below: &Path, report: &Report) -> Result<()> {
    let server = PostgresServer::connect(&options.ledger).await?;
    for _ in 0..options.rounds {
        for content in &options.content {
            measure(*content, options, &server, below, report).await?;
        }
    }
    Ok(())
}

async fn measure(
    content: Content,
    options: &Options,
    server: &PostgresServer,
    below: &Path,
    report: &Report,
) -> Result<()> {
    let directory = directory(below)?;
    let batches = content.batches(options.bytes, directory.path()).await?;
    let database = server.create_database().await?;
    let ledger = database.open_ledger(Tables::Off).await?.ledger;
    let mut appender = Some(Appender { ledger, batches, time_ms: 0 });
    let observer = database.client().await?;
    let mut alone = None;
    for held_s in [0, options.old_snapshot] {
        let mut other = database.client().await?;
        let _snapshot = match held_s {
            0 => None,
            _ => {
                report.note(&format!("another client holds a snapshot for {held_s} s …"));
                let transaction = other
                    .build_transaction()
                    .isolation_level(tokio_postgres::IsolationLevel::RepeatableRead)
                    .start()
                    .await?;
                transaction.query_one("SELECT count(*) FROM lessor.batch", &[]).await?;
                appender = Some(run_for(appender, Duration::from_secs(held_s)).await?.0);
                Some(transaction)
            }
        };
        let syncs = fdatasync::measure(directory.path(), LIMIT_TIME)?;
        let (back, times) = run_for(appender, Duration::from_secs(options.seconds)).await?;
        appender = Some(back);
        let stored_bytes = stored_bytes(&observer).await?;
        let per_s = times.len() as f64 / times.iter().sum::<Duration>().as_secs_f64();
        let line = Line::new("append")
            .with("ledger", "postgres")
            .with("content", content.name())
            .with("bytes", options.bytes)
            .with("stored_bytes", stored_bytes)
            .with("old_snapshot_s", held_s)
            .figure("appends_per_s", per_s)
            .figure("p50_ms", Percentiles::of(times).at_ms(50.0))
            .figure("fdatasync_per_s", syncs.per_s)
            .figure("appends_per_fdatasync", per_s / syncs.per_s);
        let share = per_s / syncs.per_s;
        report.line(match alone {
            None => line,
            Some(alone) => line.figure("share_of_alone", share / alone),
        });
        alone.get_or_insert(share);
    }
    drop((appender, observer));
    server.drop_database(database).await
}

struct Appender {
    ledger: Box<dyn Ledger>,
    batches: Batches,
    time_ms: u64,
}

/// The size of a batch as it is stored, on average.
async fn stored_bytes(client: &tokio_postgres::Client) -> Result<i64> {
    let average = "SELECT avg(length(body))::int8 FROM lessor.batch WHERE length(body) > 0";
    Ok(client.query_one(average, &[]).await?.get(0))
}

/// Appends one batch after the other. Returns how long each took.
async fn run_for(appender: Option<Appender>, time: Duration) -> Result<(Appender, Vec<Duration>)> {
    let mut appender = appender.context("the last measurement returned its ledger")?;
    tokio::task::spawn_blocking(move || {
        let (began, mut times) = (Instant::now(), Vec::new());
        while began.elapsed() < time {
            let at = Instant::now();
            appender.append()?;
            times.push(at.elapsed());
        }
        Ok((appender, times))
    })
    .await?
}

impl Appender {
    fn append(&mut self) -> Result<()> {
        let mut batch = BatchBuilder::new(self.ledger.next());
        for record in self.batches.next() {
            batch.push(record).map_err(|_| anyhow::anyhow!("a batch cannot hold so many bytes"))?;
        }
        self.time_ms += 1;
        let batch = batch.finish(self.time_ms);
        self.ledger.append(&batch).context("an append failed")?;
        let next: Position = self.ledger.next();
        anyhow::ensure!(next == batch.next(), "the ledger ends at {next:?}");
        Ok(())
    }
}
