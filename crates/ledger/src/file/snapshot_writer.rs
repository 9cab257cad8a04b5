//! Writes a snapshot beside the running ledger.
//!
//! The file gets its name only after it was synced and read back whole. A writer that fails or is dropped
//! removes its temporary file and leaves everything else as it was (D5).

use std::sync::{Arc, atomic::Ordering};

use disk::{File, write_all_at};

use super::{
    atomic,
    error::Fault,
    names,
    shared::Shared,
    snapshot::{self, MAX_BLOCK_BYTES, SnapshotFault, Trailer},
};
use crate::{ErrorKind, Position, SnapshotError, SnapshotInfo, SnapshotSink};

const BUFFER_BYTES: usize = 256 << 10;
/// Synced after this much, so that the appends beside it never wait for one large flush.
const SYNC_STRIDE_BYTES: u64 = 8 << 20;

pub struct SnapshotWriter {
    shared: Arc<Shared>,
    file: Arc<dyn File>,
    begin: Position,
    blocks: u64,
    chain: u32,
    buffer: Vec<u8>,
    written: u64,
    synced: u64,
    named: bool,
}

impl SnapshotWriter {
    pub(super) fn begin(shared: &Arc<Shared>, begin: Position) -> Result<Self, SnapshotError> {
        if shared.snapshot_in_work.swap(true, Ordering::AcqRel) {
            return Err(SnapshotError::InProgress);
        }
        let file = atomic::create(&*shared.disk, names::SNAPSHOT_TEMP)
            .inspect_err(|_| shared.snapshot_in_work.store(false, Ordering::Release))?;
        let (header, chain) = snapshot::encode_header(shared.cluster, begin);
        Ok(Self {
            shared: shared.clone(),
            file,
            begin,
            blocks: 0,
            chain,
            buffer: header.to_vec(),
            written: 0,
            synced: 0,
            named: false,
        })
    }

    fn flush(&mut self) -> Result<(), Fault> {
        write_all_at(&*self.file, &self.buffer, self.written)
            .map_err(Fault::of("write", names::SNAPSHOT_TEMP))?;
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    fn sync(&mut self) -> Result<(), Fault> {
        self.file.sync_data().map_err(Fault::of("sync", names::SNAPSHOT_TEMP))?;
        self.synced = self.written;
        Ok(())
    }
}

impl SnapshotSink for SnapshotWriter {
    fn write_block(&mut self, block: &[u8]) -> Result<(), SnapshotError> {
        if block.len() > MAX_BLOCK_BYTES {
            return Err(SnapshotError::BlockTooLarge(block.len()));
        }
        let (prefix, chain) = snapshot::encode_block_prefix(self.chain, block);
        self.buffer.extend_from_slice(&prefix);
        self.buffer.extend_from_slice(block);
        self.chain = chain;
        self.blocks += 1;
        if self.buffer.len() >= BUFFER_BYTES {
            self.flush()?;
        }
        if self.written - self.synced >= SYNC_STRIDE_BYTES {
            self.sync()?;
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>, end: Position) -> Result<SnapshotInfo, SnapshotError> {
        SnapshotError::check(self.begin, end, self.shared.next())?;
        let trailer = Trailer { begin: self.begin, end, blocks: self.blocks, chain: self.chain };
        self.buffer.extend_from_slice(&trailer.encode());
        self.flush()?;
        self.sync()?;
        let read_back = snapshot::verify(self.file.clone(), names::SNAPSHOT_TEMP, self.shared.cluster);
        if read_back.map_err(not_read_back)? != trailer {
            let what = "the trailer differs";
            return Err(not_read_back(SnapshotFault::Damaged { what, offset: self.written }));
        }
        let name = names::snapshot(self.begin, end);
        atomic::publish(&*self.shared.disk, names::SNAPSHOT_TEMP, &name)?;
        self.named = true;
        let info = SnapshotInfo { begin: self.begin, end, name };
        self.shared.add_snapshot(info.clone());
        Ok(info)
    }
}

impl Drop for SnapshotWriter {
    fn drop(&mut self) {
        if !self.named {
            // What cannot be removed now is removed at the next snapshot or start.
            let _ = self.shared.disk.remove(names::SNAPSHOT_TEMP);
        }
        self.shared.snapshot_in_work.store(false, Ordering::Release);
    }
}

fn not_read_back(fault: SnapshotFault) -> SnapshotError {
    let what = format!("the snapshot could not be read back: {fault}");
    SnapshotError::Storage(crate::Error::new(ErrorKind::Damaged, what))
}
