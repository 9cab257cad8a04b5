//! The list of a pack's records, kept beside it, so that a start need not read the pack.
//!
//! A frame is appended only after the records it lists, and the files they stand for, are safe on disk. So
//! what is listed survived a power loss, and what is not is read and checked at the next start. The time of
//! the file is the one when the last sync began: whatever was written before is safe.
//!
//! ```text
//!  0  magic "LBI1"     4  number of headers (u32)     8  end of the last record (u32)
//! 12  CRC-32C of bytes 0 to 11 and of all headers    16  the headers, as they stand in the pack
//! ```

use std::{
    fs,
    io::{self, Read, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    time::SystemTime,
};

use super::{
    pack::FIRST_RECORD_AT,
    record::{HEADER_BYTES, Header, u32_at},
};
use crate::{Error, Result};

const FRAME_HEAD_BYTES: usize = 16;
const MAGIC: [u8; 4] = *b"LBI1";
/// Headers in one frame: bounds what a reader holds in memory.
const MAX_FRAME_HEADERS: usize = 1 << 14;

pub(super) fn path(root: &Path, pack: u32) -> PathBuf {
    root.join("packs").join(format!("{pack:08x}.list"))
}

/// When the sync began that made the listed records safe.
pub(super) fn safe_until(root: &Path, pack: u32) -> Option<SystemTime> {
    fs::metadata(path(root, pack)).and_then(|list| list.modified()).ok()
}

/// Lists further records of a pack, which a sync that began at `synced_at` made safe. A frame that a crash cuts
/// off is ignored, and so is what follows it.
pub(super) fn append(root: &Path, pack: u32, headers: &[Header], synced_at: SystemTime) -> Result<()> {
    let path = path(root, pack);
    let mut file = fs::OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .open(&path)
        .map_err(Error::io("open", &path))?;
    let before = file.metadata().map_err(Error::io("measure", &path))?.len();
    for headers in headers.chunks(MAX_FRAME_HEADERS) {
        if let Err(error) = file.write_all(&encode(headers)) {
            // Half a frame would hide the ones that follow it.
            let _ = file.set_len(before);
            return Err(Error::io("write", &path)(error));
        }
    }
    // Where it cannot be set, the time is a little late, and a file of that moment is not looked into.
    let _ = file.set_modified(synced_at);
    Ok(())
}

/// Shows the listed headers in order, and says up to where in the pack they are complete. What a crash left
/// of a last frame is cut off, so that the next one is found.
pub(super) fn read(root: &Path, pack: u32, mut found: impl FnMut(Header)) -> Result<u64> {
    let path = path(root, pack);
    let mut covered = FIRST_RECORD_AT;
    let mut file = match fs::OpenOptions::new().read(true).write(true).open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(covered),
        Err(error) => return Err(Error::io("open", &path)(error)),
    };
    let mut frame = Vec::new();
    let mut whole_bytes = 0;
    while read_frame(&mut file, &mut frame).map_err(Error::io("read", &path))? {
        let Some((end, headers)) = decode(&frame, pack, covered) else { break };
        headers.into_iter().for_each(&mut found);
        covered = end;
        whole_bytes += frame.len() as u64;
    }
    let found = file.metadata().map_err(Error::io("measure", &path))?;
    if found.len() > whole_bytes {
        file.set_len(whole_bytes).map_err(Error::io("shorten", &path))?;
        // Nothing has become safer by this.
        let _ = found.modified().and_then(|time| file.set_modified(time));
    }
    Ok(covered)
}

fn encode(headers: &[Header]) -> Vec<u8> {
    let mut frame = Vec::with_capacity(FRAME_HEAD_BYTES + headers.len() * HEADER_BYTES);
    frame.extend_from_slice(&MAGIC);
    frame.extend_from_slice(&(headers.len() as u32).to_le_bytes());
    frame.extend_from_slice(&(headers.last().map_or(0, Header::end) as u32).to_le_bytes());
    frame.extend_from_slice(&[0; 4]);
    headers.iter().for_each(|header| frame.extend_from_slice(&header.encode()));
    let crc = checksum(&frame);
    frame[12..16].copy_from_slice(&crc.to_le_bytes());
    frame
}

/// Whether another frame was there, whole. Its content is not checked yet.
fn read_frame(file: &mut fs::File, frame: &mut Vec<u8>) -> io::Result<bool> {
    frame.clear();
    Read::by_ref(file).take(FRAME_HEAD_BYTES as u64).read_to_end(frame)?;
    if frame.len() < FRAME_HEAD_BYTES || frame[..4] != MAGIC {
        return Ok(false);
    }
    let count = u32_at(frame, 4) as usize;
    if count > MAX_FRAME_HEADERS {
        return Ok(false);
    }
    let bytes = count * HEADER_BYTES;
    frame.reserve_exact(bytes);
    Read::by_ref(file).take(bytes as u64).read_to_end(frame)?;
    Ok(frame.len() == FRAME_HEAD_BYTES + bytes)
}

/// The headers of a frame that continues at `start`, in order and without overlap.
fn decode(frame: &[u8], pack: u32, start: u64) -> Option<(u64, Vec<Header>)> {
    if checksum(frame) != u32_at(frame, 12) {
        return None;
    }
    let mut end = start;
    let mut headers = Vec::with_capacity(frame.len() / HEADER_BYTES);
    for bytes in frame[FRAME_HEAD_BYTES..].chunks_exact(HEADER_BYTES) {
        let header = Header::decode(bytes)?;
        if header.pack != pack || u64::from(header.offset) < end {
            return None;
        }
        end = header.end();
        headers.push(header);
    }
    (end == u64::from(u32_at(frame, 8))).then_some((end, headers))
}

fn checksum(frame: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&frame[..12]), &frame[FRAME_HEAD_BYTES..])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{
        super::record::{Placement, Space},
        *,
    };

    fn headers(count: u32) -> Vec<Header> {
        (0..count)
            .map(|n| Header {
                space: Space::Sha256,
                placement: Placement::Pack,
                data_bytes: 16,
                data_crc: n,
                size: 16,
                tenant: [1; 16],
                hash: [n as u8; 32],
                pack: 7,
                offset: FIRST_RECORD_AT as u32 + n * 100,
            })
            .collect()
    }

    fn read_all(root: &Path) -> (u64, Vec<Header>) {
        let mut found = Vec::new();
        let end = read(root, 7, |header| found.push(header)).unwrap();
        (end, found)
    }

    #[test]
    fn frames_read_back_in_order() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("packs")).unwrap();
        assert_eq!(read_all(root.path()), (FIRST_RECORD_AT, Vec::new()));
        let all = headers(40_000);
        append(root.path(), 7, &all[..10], SystemTime::now()).unwrap();
        append(root.path(), 7, &all[10..], SystemTime::now()).unwrap();
        assert_eq!(read_all(root.path()), (all[39_999].end(), all));
    }

    proptest! {
        #[test]
        fn damage_cuts_the_list_at_a_frame(cut in 0usize..3000, flip: bool) {
            let root = tempfile::tempdir().unwrap();
            fs::create_dir(root.path().join("packs")).unwrap();
            let all = headers(30);
            for three in all.chunks(3) {
                append(root.path(), 7, three, SystemTime::now()).unwrap();
            }
            let path = path(root.path(), 7);
            let mut bytes = fs::read(&path).unwrap();
            let cut = cut % bytes.len();
            if flip { bytes[cut] ^= 64 } else { bytes.truncate(cut) }
            fs::write(&path, &bytes).unwrap();
            let frames = cut / (FRAME_HEAD_BYTES + 3 * HEADER_BYTES);
            let (end, found) = read_all(root.path());
            prop_assert_eq!(&found[..], &all[..3 * frames]);
            prop_assert_eq!(end, found.last().map_or(FIRST_RECORD_AT, Header::end));
        }
    }
}
