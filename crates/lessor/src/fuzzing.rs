//! The decoders of the files and texts of this crate, for the fuzz targets. Nothing else may use them.

use std::fmt::Debug;
use std::io::Cursor;
use std::path::Path;

use tracing::level_filters::LevelFilter;

use crate::client::duration::{parse_ms, parse_time};
use crate::client::submit::batch::Lines;
use crate::client::submit::payload::Payload;
use crate::config::Config;
use crate::config::file::{self, Document};
use crate::run::selection::{Patterns, Selection};
use crate::worker::file::WorkerFile;
use crate::{address, data_dir, log, logging};

/// Parses the file of a server, and the file of a worker. What is accepted is written and read again without a difference.
pub fn config_file(text: &str) {
    round_trip::<Config>(text);
}

pub fn worker_file(text: &str) {
    round_trip::<WorkerFile>(text);
}

fn round_trip<D: Document + PartialEq + Debug>(text: &str) {
    let parsed = match file::parse::<D>(text) {
        Ok(parsed) => parsed,
        Err(faults) => return assert!(!faults.is_empty(), "a refusal says why"),
    };
    let Ok(written) = toml::to_string(&parsed) else { panic!("a configuration cannot be written") };
    assert_eq!(file::parse::<D>(&written), Ok(parsed), "a configuration changes on its way");
}

/// Parses the file of the lease key. Its key is written and read again without a difference.
pub fn lease_key(bytes: &[u8]) {
    if let Some(key) = data_dir::parse_lease_key(bytes) {
        assert_eq!(data_dir::parse_lease_key(&files::append_checksum(&key)), Some(key));
    }
}

/// Parses a text as each kind of value of the command line and the environment.
pub fn command_line_value(text: &str) {
    if let Ok(ms) = parse_ms(text)
        && let Ok(again) = parse_ms(&format!("{ms}ms"))
    {
        assert_eq!(again, ms, "{text:?}");
    }
    if let Ok(address) = address::parse(text) {
        assert_eq!(address::parse(&address.to_string()), Ok(address));
    }
    let _ = (parse_time(text), log::moment::parse(text), Payload::parse(text));
    let _ = logging::parse(text, LevelFilter::INFO);
}

/// Reads the JSON lines of tasks to submit.
pub fn submit_lines(bytes: &[u8]) {
    let mut lines = Lines { name: "lines".into(), from: Box::new(Cursor::new(bytes.to_vec())), number: 0 };
    while let Ok(chunk) = lines.next_chunk() {
        if chunk.tasks.is_empty() {
            return;
        }
        assert!(chunk.tasks.len() <= wire::MAX_BATCH_TASKS && chunk.tasks.len() == chunk.lines.len());
        assert!(chunk.lines.is_sorted_by(|one, other| one < other), "lines are numbered as they come");
        assert!(chunk.tasks.iter().all(|task| task.dedup_key.is_some()), "a task can be sent again");
    }
}

/// Reads the `.gitignore` of a directory. Whatever it says, `.git` is no input.
pub fn ignore_file(directory: &Path) {
    let selection = Selection { gitignore: true, ..Selection::default() };
    let patterns = selection.enter(directory, Patterns::default());
    assert!(selection.excludes(&directory.join(".git"), true, &patterns), "the repository is no input");
    for name in ["a.o", "src/main.c", "target", "target/x", "x/y/z"] {
        let _ = selection.excludes(&directory.join(name), name == "target", &patterns);
    }
}
