//! Files that get their name when they are complete: written under a temporary name, synced, renamed.

use std::sync::Arc;

use disk::{Disk, File, remove_if_present, write_all_at};

use super::error::Fault;

/// Makes a file of durable zeros under a temporary name, and leaves nothing behind when it cannot. Only the first
/// `preallocate` bytes are written; the rest is a hole.
pub(super) fn prepare(
    disk: &dyn Disk,
    name: &str,
    bytes: u64,
    preallocate: u64,
) -> Result<Arc<dyn File>, Fault> {
    let file = create(disk, name)?;
    let allocated = file.allocate(bytes.min(preallocate)).and_then(|()| {
        let is_whole = preallocate >= bytes;
        if is_whole { Ok(()) } else { write_all_at(&*file, &[0], bytes - 1) }
    });
    let filled = allocated
        .map_err(Fault::of("allocate", name))
        .and_then(|()| file.sync_data().map_err(Fault::of("sync", name)));
    if let Err(fault) = filled {
        // The first fault is the one to report; a leftover is removed at the next try or start.
        let _ = disk.remove(name);
        return Err(fault);
    }
    Ok(file)
}

/// Creates an empty file in place of what an interrupted call may have left.
pub(super) fn create(disk: &dyn Disk, name: &str) -> Result<Arc<dyn File>, Fault> {
    remove_if_present(disk, name).map_err(Fault::of("remove", name))?;
    disk.create(name).map_err(Fault::of("create", name))
}

/// Writes to the start of a file, durably.
pub(super) fn write_synced(file: &dyn File, name: &str, bytes: &[u8]) -> Result<(), Fault> {
    write_all_at(file, bytes, 0).map_err(Fault::of("write", name))?;
    file.sync_data().map_err(Fault::of("sync", name))
}

/// Gives a file its name, durably. A file that had the name is replaced.
pub(super) fn publish(disk: &dyn Disk, from: &str, to: &str) -> Result<(), Fault> {
    disk.rename(from, to).map_err(Fault::of("rename", from))?;
    disk.sync_dir().map_err(Fault::of("sync the directory of", to))
}
