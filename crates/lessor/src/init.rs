//! `lessor init`: creates an admin key in a data directory, offline.

use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::config::Data;
use crate::data_dir::DataDir;
use crate::ledger_backend;
use crate::serving::Start;
use crate::{admin_key, client};

const CREATED_BY: &str = "lessor init";

#[derive(clap::Args)]
#[command(after_help = "\
The server must not run meanwhile. The key is shown once; the ledger has a hash of it only. Who can write to the data directory can \
create a further admin key in the same way, also when all others are lost.

Example:
  export LESSOR_API_KEY=$(lessor init)
  lessor up --auth keys
  lessor key create --name ci --tenant default --role submitter

Exit codes: 0 created, 1 failed, 3 data directory refused.")]
pub(crate) struct Options {
    #[command(flatten)]
    data: Data,

    /// The name of the key
    #[arg(long, value_name = "NAME", default_value = "admin")]
    name: String,

    /// Write the key to a new file that only its owner can read, instead of standard output
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let runtime = tokio::runtime::Runtime::new().context("cannot start the runtime")?;
    let made = runtime.block_on(create(options))?;
    match &options.key_file {
        // Written before the key was recorded.
        Some(path) => client::show::note(format!(
            "The admin key {} is in {}. It is stored nowhere else.",
            options.name,
            path.display()
        )),
        None => {
            client::show::note(format!("The admin key {}. It is shown this once:", options.name));
            client::show::Output::new().line(made.text.expose())?;
        }
    }
    Ok(())
}

async fn create(options: &Options) -> Result<server::NewKey> {
    let data = DataDir::open(&options.data.dir, true)?;
    // A damaged key is refused before anything changes.
    let has_lease_key = (!data.is_new).then(|| data.lease_key()).transpose()?.is_some();
    let start = Start {
        may_create: true,
        drop_unverified_tail: false,
        queues: Vec::new(),
        worker: None,
        insecure: false,
        replaces: false,
    };
    let (path, backend) = (data.path().to_owned(), ledger_backend::file_options(&options.data, &start)?);
    let started = tokio::task::spawn_blocking(move || -> Result<_> {
        let (storage, ..) = ledger_backend::open(&path, backend)?;
        let queue_defaults = server::reapi::queue_defaults();
        let options = coordinator::Options { queue_defaults, ..coordinator::Options::default() };
        Ok(coordinator::start(storage, options)?)
    });
    let running = started
        .await?
        .with_context(|| format!("cannot open the data directory {}", data.path().display()))?;
    if !has_lease_key {
        data.lease_key()?;
    }
    let made = admin_key::generate()?;
    let created = async {
        if let Some(path) = &options.key_file {
            admin_key::write(path, &made)?;
        }
        let created = admin_key::create(&running.handle, &options.name, &made, CREATED_BY).await;
        if let (Err(_), Some(path)) = (&created, &options.key_file) {
            // What it holds is no key.
            let _ = std::fs::remove_file(path);
        }
        created
    };
    let created = created.await;
    running.stop().await?;
    created.map(|()| made)
}
