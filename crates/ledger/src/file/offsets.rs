//! Projection offsets in a directory: one small file for each projection, with a line such as `crc32c:b2c3d4e5 1234567`.
//!
//! The checksum is that of the digits. Earlier versions wrote the digits alone.

use std::{io, path::Path, sync::Arc};

use disk::{Disk, RealDisk, read_up_to};

use super::{
    atomic,
    error::{Error, Fault},
};
use crate::{Position, ProjectionOffsets};

/// A position and its checksum take no more than this in their file.
const MAX_OFFSET_BYTES: usize = 64;
/// Stands before the checksum, so that no part of a line can be taken for a line without a checksum.
const CHECKSUM: &str = "crc32c:";

/// Ends the name of a file that is being written.
const TEMP: &str = ".tmp";

pub struct OffsetFiles {
    disk: Arc<dyn Disk>,
}

impl OffsetFiles {
    /// Keeps the offsets in a directory of the operating system, which is created if it is missing.
    pub fn open_dir(path: &Path) -> Result<OffsetFiles, Error> {
        let disk = RealDisk::create(path).map_err(Fault::of("open", &path.to_string_lossy()))?;
        Ok(OffsetFiles::new(Arc::new(disk)))
    }

    pub fn new(disk: Arc<dyn Disk>) -> OffsetFiles {
        OffsetFiles { disk }
    }

    /// All offsets, by the names of their projections.
    pub fn list(&self) -> Result<Vec<(String, Position)>, crate::Error> {
        let mut names = self.disk.list().map_err(Fault::of("list", "the projection offsets"))?;
        // What a crash left of a replacement.
        names.retain(|name| !name.ends_with(TEMP));
        names.sort();
        let load = |name: String| Ok(self.load(&name)?.map(|position| (name, position)));
        names.into_iter().map(load).filter_map(Result::transpose).collect()
    }
}

impl ProjectionOffsets for OffsetFiles {
    fn load(&self, projection: &str) -> Result<Option<Position>, crate::Error> {
        let file = match self.disk.open(projection) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened.map_err(Fault::of("open", projection))?,
        };
        let mut bytes = [0; MAX_OFFSET_BYTES];
        let length = read_up_to(&*file, &mut bytes, 0).map_err(Fault::of("read", projection))?;
        match decode(&bytes[..length]) {
            Some(position) => Ok(Some(position)),
            None => {
                let what = format!("{projection} does not hold a position; restore or remove it");
                Err(crate::Error::new(crate::ErrorKind::Damaged, what))
            }
        }
    }

    /// Replaces the whole file, so that a power loss never leaves half an offset.
    fn save(&self, projection: &str, applied_up_to: Position, _epoch: u64) -> Result<(), crate::Error> {
        let temp = format!("{projection}{TEMP}");
        let file = atomic::create(&*self.disk, &temp)?;
        atomic::write_synced(&*file, &temp, encode(applied_up_to).as_bytes())?;
        Ok(atomic::publish(&*self.disk, &temp, projection)?)
    }
}

fn encode(position: Position) -> String {
    let digits = position.to_string();
    format!("{CHECKSUM}{:08x} {digits}\n", crc32c::crc32c(digits.as_bytes()))
}

/// `None` if the content is damaged.
fn decode(content: &[u8]) -> Option<Position> {
    let line = str::from_utf8(content).ok()?.trim();
    let digits = match line.strip_prefix(CHECKSUM) {
        Some(rest) => {
            let (checksum, digits) = rest.split_once(' ')?;
            let checksum = u32::from_str_radix(checksum, 16).ok()?;
            (checksum == crc32c::crc32c(digits.as_bytes())).then_some(digits)?
        }
        None => line,
    };
    digits.parse().ok().map(Position)
}
