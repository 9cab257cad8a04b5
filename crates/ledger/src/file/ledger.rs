//! The writer: appends batches to the active segment, and rotates to the next segment when it is full.
//!
//! One write and one sync make a batch durable. After a failed write or sync the handle is poisoned: what is on disk is
//! then unknown until the next start.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::Ordering};

use authority::Time;
use disk::{File, is_full, write_all_at};

use super::{
    atomic,
    error::Fault,
    frame::{self, Header, SECTOR_BYTES},
    names,
    options::Options,
    reader::FileReader,
    replay,
    reserve::{ReserveJob, ReserveState},
    rules,
    segment::{Seal, SegmentHeader},
    shared::{Index, Segment, Shared},
    snapshot_writer::SnapshotWriter,
    trim::TrimJob,
};
use crate::{
    AppendError, Batch, DiskSpace, Job, Ledger, Position, Reader, Refusal, SnapshotError, SnapshotSink, Visit,
};

/// An append is acknowledged at once while this much is free beyond [`Options::min_free_bytes`]. With less, it first
/// becomes known whether there is a next segment: without one, the rest belongs to running work.
const FINISH_BYTES: u64 = 8 << 20;

/// The ledger in a directory. There is one for each directory, and it has one owner.
pub struct FileLedger {
    pub(super) shared: Arc<Shared>,
    pub(super) options: Options,
    pub(super) active: Arc<Segment>,
    /// Where the next frame goes.
    pub(super) offset: u64,
    pub(super) next: Position,
    pub(super) chain: u32,
    /// The last frame of the active segment holds records. Only then is an empty frame after it of any use.
    pub(super) vouchable: bool,
    pub(super) reserve: Arc<Mutex<ReserveState>>,
    /// The frame of the batch that is being appended. Its memory is used again.
    pub(super) frame: Vec<u8>,
    pub(super) poison: Option<String>,
    /// Held for as long as the ledger lives (P10).
    pub(super) _lock: Box<dyn Send + Sync>,
}

impl FileLedger {
    pub fn reader(&self) -> FileReader {
        FileReader::new(self.shared.clone())
    }

    /// Work for a background thread: preparing the next segment. `None` when the segment is ready or being prepared.
    /// After a failure the caller decides when to try again.
    pub fn reserve_job(&mut self) -> Option<ReserveJob> {
        let mut reserve = self.reserve();
        if reserve.ready.is_some() || reserve.in_progress || self.poison.is_some() {
            return None;
        }
        reserve.in_progress = true;
        Some(ReserveJob {
            disk: self.shared.disk.clone(),
            segment_bytes: self.options.segment_bytes,
            preallocate_bytes: self.options.preallocate_bytes,
            state: self.reserve.clone(),
            has_ended: false,
        })
    }

    /// Bytes left for frames in the active segment.
    pub fn free_bytes(&self) -> u64 {
        self.active.frames_end() - self.offset
    }

    fn reserve(&self) -> MutexGuard<'_, ReserveState> {
        // Every change is one step, so the state is whole also after a panic.
        self.reserve.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Work for a background thread: files that can be removed. `now_ms` is on the clock of the batches.
    pub fn trim_job(&self, now_ms: u64) -> Option<TrimJob> {
        TrimJob::plan(&self.shared, &self.options, now_ms)
    }

    /// Goes on to the next segment. Only a lack of space leaves the ledger usable: then nothing happened.
    fn rotate(&mut self, time_ms: u64) -> Result<(), AppendError> {
        let ready = self.reserve().ready.take();
        let (file, from) = match ready {
            Some(file) => (file, names::RESERVE),
            None => {
                let (disk, options) = (&*self.shared.disk, &self.options);
                let (bytes, preallocate) = (options.segment_bytes, options.preallocate_bytes);
                match atomic::prepare(disk, names::SEGMENT_TEMP, bytes, preallocate) {
                    Ok(file) => (file, names::SEGMENT_TEMP),
                    Err(fault) if is_full(&fault.source) => {
                        let mut reserve = self.reserve();
                        // The job that prepares the reserve may have taken the last space and ended meanwhile.
                        let Some(file) = reserve.ready.take() else {
                            (reserve.failed, reserve.batch_refused) = (true, true);
                            return Err(Refusal::NoSpace.into());
                        };
                        (file, names::RESERVE)
                    }
                    Err(fault) => return Err(self.poison(fault)),
                }
            }
        };
        match self.begin_segment(file, from, time_ms) {
            Ok(segment) => {
                self.shared.add_segment(segment.clone());
                self.vouchable = false;
                self.active = segment;
                self.offset = SECTOR_BYTES as u64;
                self.reserve().batch_refused = false;
                Ok(())
            }
            Err(fault) => Err(self.poison(fault)),
        }
    }

    /// The header is durable before the segment has its name, the name before the first frame is written,
    /// and the old segment is sealed only when its successor cannot vanish any more.
    fn begin_segment(
        &self,
        file: Arc<dyn File>,
        from: &'static str,
        time_ms: u64,
    ) -> Result<Arc<Segment>, Fault> {
        let (disk, cluster, old) = (&self.shared.disk, self.shared.cluster, &self.active);
        let (first, chain) = (self.next, self.chain);
        // A segment that was too short for even its first frame has this first position too: it is replaced.
        let previous = if old.header.first == first { old.header.previous } else { old.header.first };
        let header = SegmentHeader { cluster, first, previous, time_ms, chain };
        let name = names::segment(first);
        atomic::write_synced(&*file, from, &header.encode())?;
        atomic::publish(&**disk, from, &name)?;
        let seal = Seal { cluster, first: old.header.first, next: first, chain };
        write_all_at(&*old.file, &seal.encode(), old.frames_end()).map_err(Fault::of("seal", &old.name))?;
        old.file.sync_data().map_err(Fault::of("sync", &old.name))?;
        let bytes = self.options.segment_bytes;
        Ok(Arc::new(Segment::new(name, header, file, bytes, Some(Index::default()))))
    }

    fn check_poison(&self) -> Result<(), AppendError> {
        match &self.poison {
            None => Ok(()),
            Some(cause) => {
                let source = std::io::Error::other(format!("an earlier call failed: {cause}"));
                let fault = Fault { action: "use", file: self.active.name.clone(), source };
                Err(AppendError::Unknown(fault.into()))
            }
        }
    }

    fn poison(&mut self, fault: Fault) -> AppendError {
        self.poison = Some(fault.to_string());
        AppendError::Unknown(fault.into())
    }
}

impl Ledger for FileLedger {
    fn next(&self) -> Position {
        self.next
    }

    /// An empty batch writes an empty frame, which vouches for the frame before, or nothing where that is of no use: so
    /// the first frame of a segment always holds records.
    fn append(&mut self, batch: &Batch) -> Result<(), AppendError> {
        self.check_poison()?;
        if batch.first() != self.next {
            return Err(Refusal::Fenced { expected: self.next, found: batch.first() }.into());
        }
        if batch.is_empty() && !self.vouchable {
            return Ok(());
        }
        let bytes = frame::frame_bytes(batch.body_bytes());
        if bytes as u64 > self.options.segment_bytes - 2 * SECTOR_BYTES as u64 {
            return Err(Refusal::TooLarge { bytes }.into());
        }
        if bytes as u64 > self.free_bytes() {
            if batch.is_empty() {
                return Ok(());
            }
            self.rotate(batch.time_ms())?;
        }
        let durable = Position(self.next.0 - 1);
        let checksum = Header::encode(batch, self.chain, durable, &mut self.frame);
        let file = &self.active.file;
        let written = write_all_at(&**file, &self.frame, self.offset)
            .map_err(Fault::of("write", &self.active.name))
            .and_then(|()| rules::sync_once(&**file).map_err(Fault::of("sync", &self.active.name)));
        if let Err(fault) = written {
            return Err(self.poison(fault));
        }
        if let Some(index) = self.active.index().as_mut() {
            index.note(batch.first(), self.offset);
        }
        self.offset += bytes as u64;
        self.chain = checksum;
        self.next = batch.next();
        self.vouchable = !batch.is_empty();
        self.shared.set_next(self.next);
        Ok(())
    }

    fn begin_snapshot(&self, begin: Position) -> Result<Box<dyn SnapshotSink>, SnapshotError> {
        Ok(Box::new(SnapshotWriter::begin(&self.shared, begin)?))
    }

    fn reader(&self) -> Arc<dyn Reader> {
        Arc::new(FileLedger::reader(self))
    }

    fn replay(&self, from: Position, visit: &mut Visit<'_>) -> Result<(), crate::Error> {
        Ok(replay::replay(&self.shared, from, visit)?)
    }

    /// A full disk shows here one whole segment before an append would fail (D4).
    fn space(&self) -> DiskSpace {
        match &*self.reserve() {
            ReserveState { batch_refused: true, .. } => DiskSpace::Nothing,
            ReserveState { ready: None, failed: true, .. } => {
                let has_space = self.free_bytes() >= self.options.min_free_bytes;
                if has_space { DiskSpace::FinishOnly } else { DiskSpace::Nothing }
            }
            _ => DiskSpace::Plenty,
        }
    }

    /// Whether enough is left for running work, or the next segment is known to be ready or impossible.
    fn is_space_known(&self) -> bool {
        let reserve = self.reserve();
        let is_preparing = reserve.in_progress && reserve.ready.is_none();
        !is_preparing || self.free_bytes() >= self.options.min_free_bytes.saturating_add(FINISH_BYTES)
    }

    fn tend(&mut self, now: Time) -> Option<Job> {
        if let Some(job) = self.reserve_job() {
            // The job logs a failure, and the ledger's space shows it.
            return Some(Job::new("lessor-reserve", move || drop(job.run())));
        }
        if !self.shared.trim_due.swap(false, Ordering::AcqRel) {
            return None;
        }
        let job = self.trim_job(now.0)?;
        Some(Job::new("lessor-trim", move || match job.run() {
            Ok(files) => tracing::info!(files, "old history removed"),
            Err(fault) => tracing::error!(%fault, "old history could not be removed"),
        }))
    }
}
