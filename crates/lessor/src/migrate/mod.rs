//! `lessor migrate`: moves a ledger between a data directory and PostgreSQL.
//!
//! Batches keep their positions, records and times. The target becomes a ledger only at the very end, after it was read
//! back and found equal: what a migration that was cut off has left is refused everywhere, except by the next migration.

mod batches;
mod from;
mod proof;
mod to;

use std::path::PathBuf;

use anyhow::{Context, Result, anyhow, bail, ensure};
use ledger::{ClusterId, Position, Reader, SnapshotInfo, SnapshotSource};
use serde_json::json;

use crate::client::show::{Output, note};
use crate::cluster_key::ClusterKey;
use crate::ledger_backend::Place;
use crate::log::progress::Progress;
use from::Source;
use proof::{Chain, Facts};
use to::Target;

#[derive(clap::Args)]
#[command(after_help = "\
Stop the server or all nodes first; a source that is in use is refused, and so is a target that is not empty. The source is \
not changed. Records, their positions and times, snapshots and the progress of projections are copied as they are. At the \
end the target is read back: the hash chain over all batches and a digest of all tasks must be equal on both sides. A \
migration that was cut off leaves a target that is refused; run it again and it starts over.

To PostgreSQL, the key file is created with the lease key of the directory, so that all leases and tokens stay valid. From \
PostgreSQL, the key file becomes the lease key. Content and audit trail stay where they are: keep using the data directory, \
after its old ledger was moved away.

Examples:
  lessor migrate --from file:.lessor --to postgres:postgres://lessor@db.example.com/lessor --key-file cluster.key
  lessor migrate --from postgres: --to file:restored --key-file cluster.key    # the URL is in LESSOR_POSTGRES_URL

Exit codes: 0 migrated, 1 failed, 3 source or target refused.")]
pub(crate) struct Options {
    /// The ledger to copy: file:DIR or postgres:URL
    #[arg(long, value_name = "LEDGER")]
    from: String,

    /// Where to: an empty or missing directory as file:DIR, or an empty database as postgres:URL
    #[arg(long, value_name = "LEDGER")]
    to: String,

    /// The file of the cluster key
    #[arg(long, value_name = "FILE")]
    key_file: PathBuf,

    /// Use a server with fsync off, which loses everything with the machine; for tests
    #[arg(long)]
    unsafe_no_sync: bool,

    /// Print JSON for scripts
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let place = |flag: &str, text: &str| Place::parse(text).map_err(|fault| anyhow!("--{flag}: {fault}"));
    let (from, to) = (place("from", &options.from)?, place("to", &options.to)?);
    ensure!(
        matches!((&from, &to), (Place::File(_), Place::Postgres(_)) | (Place::Postgres(_), Place::File(_))),
        "a migration goes from a directory to a database or back; a directory is copied with cp, a database with pg_dump"
    );
    let found = ClusterKey::find(&options.key_file)?;
    let source = Source::open(&from, options.unsafe_no_sync)?;
    let key = source.key(found.as_ref(), &options.key_file)?;
    let mut target =
        Target::begin(&to, source.cluster, source.reader.first()?, &key, options.unsafe_no_sync)?;
    let facts = copy(&source, &mut target)?;
    if found.is_none() {
        key.create(&options.key_file)?;
    }
    target.finish(&key)?;
    report(options, source.cluster, &facts)
}

/// Copies everything, reads the copy back and compares it.
fn copy(source: &Source, target: &mut Target) -> Result<Facts> {
    let reader = &*source.reader;
    let progress = Progress::new("Copying", reader.stored_bytes());
    let mut chain = Chain::new(source.cluster);
    batches::for_each(reader, &mut |batch, bytes| {
        progress.at(bytes);
        chain.add(&batch);
        target.append(&batch)
    })?;
    target.flush()?;
    drop(progress);
    let snapshots = reader.snapshots()?;
    for info in &snapshots {
        if let Err(error) = copy_snapshot(reader, info, target) {
            // Without its snapshots a trimmed history has no beginning. The proof finds that out.
            note(format_args!("Snapshot {} was not copied: {error:#}", info.name));
        }
    }
    for (projection, at) in &source.offsets {
        target.save_offset(projection, *at)?;
    }
    let last = history::time_travel::last(reader)?;
    ensure!(
        Position(last.0 + 1) == chain.next(reader.first()?),
        "the source was written to while it was copied; stop every node and run the migration again"
    );
    let expected = Facts::of(reader, chain)?;
    let copied = target.reader()?;
    let progress = Progress::new("Comparing", copied.stored_bytes());
    let mut chain = Chain::new(source.cluster);
    batches::for_each(&*copied, &mut |batch, bytes| {
        progress.at(bytes);
        chain.add(&batch);
        Ok(())
    })?;
    drop(progress);
    let found = Facts::of(&*copied, chain)?;
    if found != expected {
        bail!("the copy is not equal to the source: {found} instead of {expected}; the target is not used");
    }
    Ok(found)
}

fn copy_snapshot(reader: &dyn Reader, info: &SnapshotInfo, target: &mut Target) -> Result<()> {
    let mut source: Box<dyn SnapshotSource> = reader.load_snapshot(info)?;
    let mut sink = target.begin_snapshot(info.begin)?;
    let mut block = Vec::new();
    while source.next_block(&mut block)? {
        sink.write_block(&block)?;
    }
    sink.finish(info.end)?;
    Ok(())
}

fn report(options: &Options, cluster: ClusterId, facts: &Facts) -> Result<()> {
    if options.json {
        return Output::new().line(json!({
            "cluster": cluster.to_string(),
            "batches": facts.chain.batches,
            "records": facts.chain.records,
            "lastPosition": facts.position.0,
            "link": facts.chain.link.to_string(),
            "digest": facts.digest.to_string(),
        }));
    }
    Output::new()
        .line(format_args!("Migrated and compared: {facts}."))
        .context("the migration is complete, but could not be reported")
}

#[cfg(test)]
mod tests;
