//! Projection offsets in a directory: one small file for each projection.

use std::{io, path::Path, sync::Arc};

use disk::{Disk, RealDisk, read_up_to};

use super::{
    atomic,
    error::{Error, Fault},
};
use crate::{Position, ProjectionOffsets};

/// A position takes no more than this in its file.
const MAX_OFFSET_BYTES: usize = 64;

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
}

impl ProjectionOffsets for OffsetFiles {
    fn load(&self, projection: &str) -> Result<Option<Position>, crate::Error> {
        let file = match self.disk.open(projection) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened.map_err(Fault::of("open", projection))?,
        };
        let mut bytes = [0; MAX_OFFSET_BYTES];
        let length = read_up_to(&*file, &mut bytes, 0).map_err(Fault::of("read", projection))?;
        let text = str::from_utf8(&bytes[..length]).ok();
        match text.and_then(|text| text.trim().parse().ok()) {
            Some(position) => Ok(Some(Position(position))),
            None => {
                let what = format!("{projection} does not hold a position; restore or remove it");
                Err(crate::Error::new(crate::ErrorKind::Damaged, what))
            }
        }
    }

    /// Replaces the whole file, so that a power loss never leaves half an offset.
    fn save(&self, projection: &str, applied_up_to: Position) -> Result<(), crate::Error> {
        let temp = format!("{projection}.tmp");
        let file = atomic::create(&*self.disk, &temp)?;
        atomic::write_synced(&*file, &temp, format!("{applied_up_to}\n").as_bytes())?;
        Ok(atomic::publish(&*self.disk, &temp, projection)?)
    }
}
