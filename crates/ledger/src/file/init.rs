//! Initialising a directory, and telling an empty one from somebody else's.
//!
//! The first segment gets its name before the identity does. So a directory with an identity had a segment
//! once, and one without never held a record: the only thing that an interrupted initialisation leaves is
//! a first segment without frames.

use std::sync::Arc;

use super::{
    error::{Error, Fault},
    frame::{SECTOR_BYTES, is_blank},
    identity,
    names::{self, Name},
    options::Options,
    reserve::prepare,
    segment::{SegmentHeader, first_chain},
};
use crate::{
    ClusterId, Position,
    disk::{Disk, read_exact_at, write_all_at},
};

const FIRST: Position = Position(1);

/// Refuses a directory that holds something else, or nothing when nothing may be made of it (D26). Changes
/// nothing.
pub(super) fn check_ours(disk: &dyn Disk, options: &Options) -> Result<(), Error> {
    let names = disk.list().map_err(Fault::of("list", "the data directory"))?;
    if names.iter().any(|name| Name::parse(name) == Name::Identity) {
        return Ok(());
    }
    for name in names {
        match Name::parse(&name) {
            Name::Lock | Name::Temp | Name::Ignored => {}
            Name::Segment(FIRST) if has_no_frames(disk, &name)? => {}
            _ => return Err(Error::Foreign { name }),
        }
    }
    if options.create.is_some() { Ok(()) } else { Err(Error::NotInitialised) }
}

/// Makes the first segment and the identity, unless the identity is there. Needs the lock.
pub(super) fn initialise(disk: &Arc<dyn Disk>, options: &Options) -> Result<bool, Error> {
    if disk.exists(names::IDENTITY).map_err(Fault::of("look for", names::IDENTITY))? {
        return Ok(false);
    }
    // Another process may have changed the directory before the lock was taken.
    check_ours(&**disk, options)?;
    let Some(cluster) = options.create else { return Err(Error::NotInitialised) };
    make_segment(&**disk, cluster, options.segment_bytes)?;
    make_identity(&**disk, cluster)?;
    Ok(true)
}

fn make_segment(disk: &dyn Disk, cluster: ClusterId, bytes: u64) -> Result<(), Fault> {
    let file = prepare(disk, names::SEGMENT_TEMP, bytes)?;
    let header = SegmentHeader {
        cluster,
        first: FIRST,
        previous: Position(0),
        time_ms: 0,
        chain: first_chain(cluster),
    };
    write_all_at(&*file, &header.encode(), 0).map_err(Fault::of("write", names::SEGMENT_TEMP))?;
    file.sync_data().map_err(Fault::of("sync", names::SEGMENT_TEMP))?;
    let name = names::segment(FIRST);
    disk.rename(names::SEGMENT_TEMP, &name).map_err(Fault::of("rename", names::SEGMENT_TEMP))?;
    disk.sync_dir().map_err(Fault::of("sync the directory of", &name))
}

fn make_identity(disk: &dyn Disk, cluster: ClusterId) -> Result<(), Fault> {
    let bytes = identity::encode(cluster);
    let file = prepare(disk, names::IDENTITY_TEMP, bytes.len() as u64)?;
    write_all_at(&*file, &bytes, 0).map_err(Fault::of("write", names::IDENTITY_TEMP))?;
    file.sync_data().map_err(Fault::of("sync", names::IDENTITY_TEMP))?;
    disk.rename(names::IDENTITY_TEMP, names::IDENTITY).map_err(Fault::of("rename", names::IDENTITY_TEMP))?;
    disk.sync_dir().map_err(Fault::of("sync the directory of", names::IDENTITY))
}

fn has_no_frames(disk: &dyn Disk, name: &str) -> Result<bool, Error> {
    let file = disk.open(name).map_err(Fault::of("open", name))?;
    let end = file.len().map_err(Fault::of("measure", name))?;
    let mut sector = [0; SECTOR_BYTES];
    let mut offset = SECTOR_BYTES as u64;
    while offset + SECTOR_BYTES as u64 <= end {
        read_exact_at(&*file, &mut sector, offset).map_err(Fault::of("read", name))?;
        if !is_blank(&sector) {
            return Ok(false);
        }
        offset += SECTOR_BYTES as u64;
    }
    Ok(true)
}
