//! Submits many tasks from JSON lines, in requests of bounded size. Each line stands for itself: some may be refused
//! while others are accepted.

use std::fs::File;
use std::io::{BufRead, BufReader, IsTerminal, Write};
use std::process::ExitCode;

use anyhow::{Context, Result};
use serde::Deserialize;
use serde_json::value::RawValue;
use wire::{BatchItem, MAX_BATCH_TASKS, SubmitBatch, SubmitTask};

use super::dedup;
use crate::client::Error;
use crate::client::connection::Connection;
use crate::client::error::describe;
use crate::client::http::Client;
use crate::client::show::text::counted;
use crate::client::show::{Output, note};
use crate::exit;

/// A request is sent when its lines have this many bytes, whatever their number, so that large payloads do not make
/// a request that no server takes.
const MAX_REQUEST_BYTES: usize = 4 * 1024 * 1024;

pub(super) async fn run(source: &str, connection: &Connection) -> Result<ExitCode> {
    let mut lines = Lines::open(source)?;
    let mut progress = Progress::new(connection.json);
    let client = Client::new(connection)?;
    loop {
        let chunk = lines.next_chunk().with_context(|| format!("{}, nothing after that", progress.so_far()));
        let chunk = match chunk {
            Ok(chunk) => chunk,
            Err(error) => return progress.stop(error),
        };
        if chunk.tasks.is_empty() {
            break;
        }
        let sent = submit(&client, &chunk)
            .await
            .with_context(|| format!("{}, perhaps also lines {}", progress.so_far(), chunk.range()));
        match sent {
            Ok(items) => progress.add(&chunk, items)?,
            Err(error) => return progress.stop(error),
        }
    }
    progress.finish()
}

/// Sends one request, and makes sure that there is an answer for each of its tasks.
async fn submit(client: &Client, chunk: &Chunk) -> Result<Vec<Box<RawValue>>> {
    #[derive(Deserialize)]
    struct Items {
        tasks: Vec<Box<RawValue>>,
    }
    let body = SubmitBatch { tasks: chunk.tasks.clone() };
    let items: Items = client.post(&["tasks", "batch"], &body).await?.parse()?;
    anyhow::ensure!(
        items.tasks.len() == chunk.tasks.len(),
        "the server answered for {} tasks, but {} were sent",
        items.tasks.len(),
        chunk.tasks.len()
    );
    Ok(items.tasks)
}

/// The tasks of one request, each with the number of its line.
#[derive(Default)]
pub(crate) struct Chunk {
    pub tasks: Vec<SubmitTask>,
    pub lines: Vec<usize>,
    bytes: usize,
}

impl Chunk {
    fn range(&self) -> String {
        let line = |number: Option<&usize>| number.map_or(0, |number| *number);
        format!("{} to {}", line(self.lines.first()), line(self.lines.last()))
    }
}

pub(crate) struct Lines {
    pub name: String,
    pub from: Box<dyn BufRead>,
    pub number: usize,
}

impl Lines {
    fn open(source: &str) -> Result<Lines, Error> {
        if source == "-" {
            let from = Box::new(BufReader::new(std::io::stdin()));
            return Ok(Lines { name: "standard input".to_owned(), from, number: 0 });
        }
        let file =
            File::open(source).map_err(|error| Error::Usage(format!("cannot read {source}: {error}")))?;
        Ok(Lines { name: source.to_owned(), from: Box::new(BufReader::new(file)), number: 0 })
    }

    /// The next tasks, none at the end. Blank lines are passed over.
    pub(crate) fn next_chunk(&mut self) -> Result<Chunk> {
        let mut chunk = Chunk::default();
        let mut line = String::new();
        while chunk.tasks.len() < MAX_BATCH_TASKS && chunk.bytes < MAX_REQUEST_BYTES {
            line.clear();
            let at = format!("{}, line {}", self.name, self.number + 1);
            let read = self.from.read_line(&mut line);
            if read.map_err(|error| Error::Usage(format!("{at}: cannot be read: {error}")))? == 0 {
                break;
            }
            self.number += 1;
            if line.trim().is_empty() {
                continue;
            }
            let mut task: SubmitTask = serde_json::from_str(&line).map_err(|error| {
                Error::Usage(format!("{at}: not a task as JSON: {}", describe_json(&error)))
            })?;
            dedup::ensure(&mut task)?;
            chunk.bytes += line.len();
            chunk.tasks.push(task);
            chunk.lines.push(self.number);
        }
        Ok(chunk)
    }
}

/// The line is named already, so that only the column is left to tell.
fn describe_json(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let words = text.rsplit_once(" at line ").map_or(text.as_str(), |(words, _)| words);
    format!("{words}, at column {}", error.column())
}

/// What has been answered so far. With `--json` the items go out as they come, so that a long input needs no memory.
struct Progress {
    output: Output,
    json: bool,
    is_terminal: bool,
    accepted: usize,
    refused: usize,
    last_line: usize,
}

impl Progress {
    fn new(json: bool) -> Progress {
        let is_terminal = std::io::stderr().is_terminal();
        Progress { output: Output::new(), json, is_terminal, accepted: 0, refused: 0, last_line: 0 }
    }

    fn add(&mut self, chunk: &Chunk, items: Vec<Box<RawValue>>) -> Result<()> {
        for (line, raw) in chunk.lines.iter().zip(items) {
            if self.json {
                let opening = if self.accepted + self.refused == 0 { "{\"tasks\":[" } else { "," };
                self.output.print(format_args!("{opening}{raw}"))?;
            }
            let item: BatchItem =
                serde_json::from_str(raw.get()).context("the server's answer cannot be read")?;
            match item.error {
                None => self.accepted += 1,
                Some(problem) => {
                    self.refused += 1;
                    note(format_args!("line {line}: {}", describe(&problem)));
                }
            }
            self.last_line = *line;
        }
        if self.is_terminal {
            let mut stderr = std::io::stderr();
            let _ = write!(stderr, "\r{}", self.count()).and_then(|()| stderr.flush());
        }
        Ok(())
    }

    fn count(&self) -> String {
        format!("{} submitted", counted(self.accepted, "task"))
    }

    fn refusals(&self) -> String {
        match self.refused {
            0 => String::new(),
            refused => format!(", {refused} refused"),
        }
    }

    fn so_far(&self) -> String {
        format!("{}{} up to line {}", self.count(), self.refusals(), self.last_line)
    }

    /// Shows what was done before the error.
    fn stop(mut self, error: anyhow::Error) -> Result<ExitCode> {
        self.close()?;
        Err(error)
    }

    fn finish(mut self) -> Result<ExitCode> {
        self.close()?;
        if !self.json {
            self.output.line(format_args!("{}{}.", self.count(), self.refusals()))?;
        }
        Ok(if self.refused == 0 { ExitCode::SUCCESS } else { ExitCode::from(exit::FAILED) })
    }

    fn close(&mut self) -> Result<()> {
        if self.is_terminal {
            note("");
        }
        if self.json {
            let opening = if self.accepted + self.refused == 0 { "{\"tasks\":[" } else { "" };
            self.output.line(format_args!("{opening}]}}"))?;
        }
        Ok(())
    }
}
