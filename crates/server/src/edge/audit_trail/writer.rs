//! Writes the audit trail, in a thread of its own behind a bounded channel: no request waits for the disk. Lines that the
//! channel or the disk does not take are counted in the next line. A disk that fails or is full is reported and never fatal.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::mem::take;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant};

use blake3::Hash;
use jiff::Timestamp;

use super::chain::{self, ChainKey, GENESIS};
use super::files::{self, MAX_FILE_BYTES, MAX_FILES};
use super::line::AuditLine;

/// Most lines that wait for the disk.
const MAX_WAITING_LINES: usize = 4_096;
/// A power loss takes at most the lines of this time.
const SYNC_INTERVAL: Duration = Duration::from_millis(200);
/// Longest wait for the writer at the end.
const MAX_FLUSH: Duration = Duration::from_secs(5);
/// A disk that stays full is reported this often.
const REPORT_INTERVAL: Duration = Duration::from_secs(60);

/// The end of the trail where lines come in. A clone shares it.
#[derive(Clone, Debug)]
pub struct AuditTrail(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    sender: SyncSender<Message>,
    dropped: Arc<AtomicU64>,
}

#[derive(Debug)]
enum Message {
    Line(Box<AuditLine>),
    Flush(SyncSender<()>),
    Close(SyncSender<()>),
}

impl AuditTrail {
    /// Starts the writer. The directory is created with the first line.
    pub fn start(directory: PathBuf, lease_key: &[u8; 32]) -> io::Result<AuditTrail> {
        AuditTrail::start_with(directory, lease_key, MAX_FILE_BYTES, MAX_FILES)
    }

    pub(super) fn start_with(
        directory: PathBuf,
        lease_key: &[u8; 32],
        max_file_bytes: u64,
        max_files: usize,
    ) -> io::Result<AuditTrail> {
        let (sender, receiver) = sync_channel(MAX_WAITING_LINES);
        let writer = Writer::new(directory, lease_key, max_file_bytes, max_files);
        let dropped = writer.dropped.clone();
        std::thread::Builder::new().name("lessor-audit".into()).spawn(move || writer.run(&receiver))?;
        Ok(AuditTrail(Arc::new(Inner { sender, dropped })))
    }

    /// Hands a line to the writer, or counts it if too many wait.
    pub(crate) fn append(&self, line: AuditLine) {
        let lines = 1 + line.suppressed.unwrap_or(0);
        if self.0.sender.try_send(Message::Line(Box::new(line))).is_err() {
            self.0.dropped.fetch_add(lines, Ordering::Relaxed);
        }
    }

    /// Waits until what was appended is on disk. Returns whether it is.
    pub fn flush(&self) -> bool {
        self.ask(Message::Flush)
    }

    /// Ends the trail with a line that says so. Lines that follow are not written.
    pub fn close(&self) -> bool {
        self.ask(Message::Close)
    }

    fn ask(&self, message: impl FnOnce(SyncSender<()>) -> Message) -> bool {
        let (done, wait) = sync_channel(1);
        match self.0.sender.try_send(message(done)) {
            Ok(()) => wait.recv_timeout(MAX_FLUSH).is_ok(),
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => false,
        }
    }
}

struct Writer {
    directory: PathBuf,
    key: ChainKey,
    max_file_bytes: u64,
    max_files: usize,
    /// None until the first line, and after a failure to open it.
    tail: Option<Tail>,
    dropped: Arc<AtomicU64>,
    /// Lines that the disk did not take.
    lost: u64,
    reported: Option<Instant>,
    synced: Instant,
    is_unsynced: bool,
}

/// The end of the newest file.
struct Tail {
    file: File,
    /// How much of the file is whole lines.
    bytes: u64,
    /// Whether a part of a line may follow them.
    is_torn: bool,
    next: u64,
    prev: Hash,
    position: u64,
}

impl Writer {
    fn new(directory: PathBuf, lease_key: &[u8; 32], max_file_bytes: u64, max_files: usize) -> Writer {
        Writer {
            directory,
            key: ChainKey::new(lease_key),
            max_file_bytes,
            max_files,
            tail: None,
            dropped: Arc::default(),
            lost: 0,
            reported: None,
            synced: Instant::now(),
            is_unsynced: false,
        }
    }

    fn run(mut self, receiver: &Receiver<Message>) {
        loop {
            let message = if self.is_unsynced {
                receiver.recv_timeout(SYNC_INTERVAL)
            } else {
                receiver.recv().map_err(|_| RecvTimeoutError::Disconnected)
            };
            match message {
                Ok(Message::Line(line)) => {
                    self.write(*line);
                    if self.synced.elapsed() >= SYNC_INTERVAL {
                        self.sync();
                    }
                }
                Ok(Message::Flush(done)) => {
                    self.sync();
                    let _ = done.send(());
                }
                Ok(Message::Close(done)) => {
                    if self.tail.is_some() {
                        let position = self.tail.as_ref().map_or(0, |tail| tail.position);
                        self.write(own_line("closed", position, None));
                    }
                    self.sync();
                    let _ = done.send(());
                    return;
                }
                Err(RecvTimeoutError::Timeout) => self.sync(),
                Err(RecvTimeoutError::Disconnected) => return self.sync(),
            }
        }
    }

    fn write(&mut self, mut line: AuditLine) {
        let missing = take(&mut self.lost) + self.dropped.swap(0, Ordering::Relaxed);
        let suppressed = line.suppressed.unwrap_or(0) + missing;
        line.suppressed = (suppressed > 0).then_some(suppressed);
        if let Err(error) = self.try_write(line) {
            self.lost = suppressed + 1;
            self.report("a line of the audit trail could not be written", &error);
        }
    }

    fn try_write(&mut self, line: AuditLine) -> io::Result<()> {
        if self.tail.is_none() {
            let (tail, note) = self.open()?;
            self.tail = Some(tail);
            self.append(own_line("opened", line.position, note))?;
        }
        self.append(line)
    }

    fn append(&mut self, mut line: AuditLine) -> io::Result<()> {
        let Some(tail) = &mut self.tail else { return Ok(()) };
        // Lines come from many threads.
        line.position = line.position.max(tail.position);
        (line.seq, line.prev) = (tail.next, tail.prev.to_string());
        let (text, hash) = self.key.seal(&line)?;
        // Before another file begins: a torn line in the middle of the trail would look like tampering.
        if tail.is_torn {
            tail.file.set_len(tail.bytes)?;
            tail.is_torn = false;
        }
        if tail.bytes > 0 && tail.bytes + text.len() as u64 > self.max_file_bytes {
            tail.file.sync_data()?;
            (tail.file, tail.bytes) = (files::create(&self.directory, tail.next)?, 0);
            remove_oldest(&self.directory, self.max_files)?;
        }
        tail.is_torn = true;
        tail.file.write_all(text.as_bytes())?;
        (tail.is_torn, self.is_unsynced) = (false, true);
        tail.bytes += text.len() as u64;
        (tail.next, tail.prev, tail.position) = (tail.next + 1, hash, line.position);
        Ok(())
    }

    fn sync(&mut self) {
        (self.synced, self.is_unsynced) = (Instant::now(), false);
        let Some(tail) = &mut self.tail else { return };
        let synced = tail.file.sync_data().and_then(|()| {
            // Somebody removed the file: its lines are gone, and what follows begins another one.
            if tail.file.metadata()?.nlink() == 0 {
                files::create_directory(&self.directory)?;
                (tail.file, tail.bytes, tail.is_torn) =
                    (files::create(&self.directory, tail.next)?, 0, false);
                return Err(io::Error::other("the file of the audit trail was removed"));
            }
            Ok(())
        });
        if let Err(error) = synced {
            self.report("the audit trail may not be durable", &error);
        }
    }

    /// Opens the newest file, or creates the first one. What stands out is noted in the next line.
    fn open(&self) -> io::Result<(Tail, Option<String>)> {
        files::create_directory(&self.directory)?;
        let files = files::list(&self.directory)?;
        let mut found = None;
        for (first, path) in files.iter().rev() {
            let text = fs::read(path)?;
            let bytes = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
            found = Some((*first, path, text, bytes));
            if bytes > 0 {
                break;
            }
        }
        let Some((first, path, text, bytes)) = found else {
            let file = files::create(&self.directory, 1)?;
            return Ok((Tail { file, bytes: 0, is_torn: false, next: 1, prev: GENESIS, position: 0 }, None));
        };
        let whole = String::from_utf8_lossy(&text[..bytes]);
        let last = whole.lines().next_back().and_then(|text| self.key.check(text).and(chain::parse(text)));
        let Some((line, prev)) = last.or((bytes == 0).then(|| before_first(first))) else {
            let next = first.saturating_add(whole.lines().count() as u64);
            let file = files::create(&self.directory, next)?;
            let note = "the line before was changed, or written with another key".to_owned();
            return Ok((
                Tail { file, bytes: 0, is_torn: false, next, prev: GENESIS, position: 0 },
                Some(note),
            ));
        };
        // A file that was begun and has no line yet follows the one with the last line.
        let newest = files.last().map_or(path, |(_, path)| path);
        let file = OpenOptions::new().append(true).open(newest)?;
        let bytes = if newest == path { bytes as u64 } else { 0 };
        let torn = file.metadata()?.len().saturating_sub(bytes);
        let note = (torn > 0).then(|| format!("{torn} bytes of an unfinished line were removed"));
        let tail = Tail { file, bytes, is_torn: torn > 0, next: line.seq + 1, prev, position: line.position };
        Ok((tail, note))
    }

    fn report(&mut self, what: &str, error: &io::Error) {
        if self.reported.is_none_or(|at| at.elapsed() >= REPORT_INTERVAL) {
            self.reported = Some(Instant::now());
            let path = self.directory.display();
            tracing::error!(%path, %error, "{what}; the log still has it, and the server goes on");
        }
    }
}

/// The line before the first one of a trail without any.
fn before_first(first: u64) -> (AuditLine, Hash) {
    (AuditLine { seq: first.saturating_sub(1), ..AuditLine::default() }, GENESIS)
}

/// A line about the trail itself.
fn own_line(audit: &str, position: u64, reason: Option<String>) -> AuditLine {
    AuditLine { at: Timestamp::now(), position, audit: audit.to_owned(), reason, ..AuditLine::default() }
}

fn remove_oldest(directory: &Path, max_files: usize) -> io::Result<()> {
    let files = files::list(directory)?;
    let too_many = files.len().saturating_sub(max_files);
    files.iter().take(too_many).try_for_each(|(_, path)| fs::remove_file(path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::edge::audit_trail::lines;

    /// As while the disk stands still, which must hold up nobody.
    #[test]
    fn lines_beyond_those_that_may_wait_are_counted_in_the_next_one() {
        let data = tempfile::tempdir().unwrap();
        let (sender, receiver) = sync_channel(1);
        let dropped = Arc::new(AtomicU64::new(0));
        let trail = AuditTrail(Arc::new(Inner { sender, dropped: dropped.clone() }));
        (0..10).for_each(|_| trail.append(AuditLine::default()));
        assert!(!trail.flush(), "there is no room for the question");
        drop(trail);
        let mut writer = Writer::new(data.path().to_owned(), &[7; 32], MAX_FILE_BYTES, MAX_FILES);
        writer.dropped = dropped;
        writer.run(&receiver);
        let mut stored = Vec::new();
        lines(data.path(), |_, line| {
            stored.extend(line.map(|line| line.suppressed));
            Ok(true)
        })
        .unwrap();
        assert_eq!(stored, [None, Some(9)]);
    }
}
