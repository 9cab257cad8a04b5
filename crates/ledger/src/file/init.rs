//! Initialises a directory, and distinguishes an empty directory from a foreign one. The identity file says which cluster a
//! directory belongs to.
//!
//! The first segment gets its name before the identity does, and the identity never changes. So a directory with an
//! identity had a segment once, and a directory without one never held a record (D26): the only thing that an interrupted
//! initialisation leaves is a first segment without frames.

use std::sync::Arc;

use disk::{Disk, read_exact_at, read_up_to};
use files::Identity;

use super::{
    atomic,
    error::{Error, Fault},
    frame::{FORMAT_VERSION, SECTOR_BYTES, is_blank},
    names::{self, Name},
    options::Options,
    segment::{SegmentHeader, first_chain},
};
use crate::{ClusterId, Damage, Position};

const FIRST: Position = Position(1);
const IDENTITY_MAGIC: [u8; 8] = *b"LESSOR-L";

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
    let (chain, previous, first) = (first_chain(cluster), Position(0), options.first);
    let header = SegmentHeader { cluster, first, previous, time_ms: 0, chain };
    let identity = Identity { magic: IDENTITY_MAGIC, version: FORMAT_VERSION.into(), id: cluster.0 }.encode();
    let segment = names::segment(first);
    for (temp, name, bytes, content) in [
        (names::SEGMENT_TEMP, &*segment, options.segment_bytes, &header.encode()[..]),
        (names::IDENTITY_TEMP, names::IDENTITY, identity.len() as u64, &identity),
    ] {
        let file = atomic::prepare(&**disk, temp, bytes, options.preallocate_bytes)?;
        atomic::write_synced(&*file, temp, content)?;
        atomic::publish(&**disk, temp, name)?;
    }
    Ok(true)
}

/// The cluster that a directory belongs to.
pub(super) fn read_identity(disk: &dyn Disk) -> Result<ClusterId, Error> {
    let file = disk.open(names::IDENTITY).map_err(Fault::of("open", names::IDENTITY))?;
    // One byte more than there should be, so that a longer file is noticed.
    let mut bytes = [0; files::IDENTITY_BYTES + 1];
    let length = read_up_to(&*file, &mut bytes, 0).map_err(Fault::of("read", names::IDENTITY))?;
    decode_identity(&bytes[..length])
}

/// Decodes the whole content of an identity file.
pub(super) fn decode_identity(bytes: &[u8]) -> Result<ClusterId, Error> {
    let damaged = || Damage::new(names::IDENTITY, 0, "the identity is damaged", FIRST, None);
    let identity = Identity::decode(IDENTITY_MAGIC, bytes).ok_or_else(damaged)?;
    if identity.version > FORMAT_VERSION.into() {
        let found = u16::try_from(identity.version).unwrap_or(u16::MAX);
        return Err(Error::NewerVersion { file: names::IDENTITY.to_owned(), found });
    }
    Ok(ClusterId(identity.id))
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
