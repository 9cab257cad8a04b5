//! Opens a store: reads the lists of the packs, checks unlisted records, and removes files that are no blobs.
//!
//! Almost all of the time goes into putting names into the index; the lists are read at the speed of the
//! disk, files are measured, and neither packs nor files are looked into unless they were written since the
//! last checkpoint.

use std::{
    collections::HashMap,
    fs::{self, File},
    path::Path,
    sync::{Arc, Mutex, RwLock, atomic::AtomicU64},
    time::{Duration, SystemTime},
};

use foldhash::fast::RandomState;

use super::{
    checkpoint,
    checksums::is_chunk,
    eviction::Totals,
    identity::{FILES, PACKS, StoreDir, TEMP},
    index::{Index, Key},
    inner::{Inner, file_path},
    options::{CHUNK_BYTES, Options},
    pack::{FIRST_RECORD_AT, Pack, PackState, read_at},
    record::{HEADER_BYTES, Header, Placement, Space},
    tenant_quota::UploadingBytes,
    uploads::Uploads,
    writer::Writer,
};
use crate::{DigestFunction, Error, Hash, Result};

/// The time of a file may be behind the clock by so much: kernels count in ticks, some file systems in seconds.
const TIME_LAG: Duration = Duration::from_secs(1);

/// The name of a file: tenant, space and hash.
type FileName = ([u8; 16], Space, [u8; 32]);

#[derive(Clone, Copy)]
struct FileState {
    bytes: u64,
    /// Whether it may have been written after the last checkpoint.
    is_recent: bool,
}

type Files = HashMap<FileName, FileState, RandomState>;

pub(super) fn open(root: &Path, options: Options, store_dir: StoreDir) -> Result<Inner> {
    clear(&root.join(TEMP))?;
    let numbers = list_packs(root)?;
    let safe_until = numbers.iter().filter_map(|number| checkpoint::safe_until(root, *number)).max();
    let files = list_files(root, safe_until)?;
    let mut recovery = Recovery { root, files, index: Index::new(), unlisted: Vec::new() };
    recovery.reserve(&numbers);
    let mut newest = None;
    for number in numbers {
        newest = recovery.pack(number, store_dir.id)?.or(newest);
    }
    recovery.remove_orphans();
    let Recovery { mut index, unlisted, .. } = recovery;
    let totals = Totals::default();
    totals.add_file_bytes(index.in_files().map(|(_, size)| size).sum());
    let (pack, end) = match newest {
        Some((pack, end)) if end < options.pack_bytes && pack.file.set_len(end).is_ok() => (pack, end),
        newest => {
            let number = newest.map_or(1, |(pack, _)| pack.number + 1);
            let pack = Arc::new(Pack::create(root, number, store_dir.id)?);
            index.packs.insert(number, PackState::new(pack.clone(), FIRST_RECORD_AT));
            (pack, FIRST_RECORD_AT)
        }
    };
    if let Some(state) = index.packs.get_mut(&pack.number) {
        state.bytes = end;
    }
    totals.add_pack_bytes(index.packs.values().map(|state| state.bytes).sum());
    let mut writer = Writer::new(pack, end);
    writer.pending = unlisted;
    Ok(Inner {
        root: root.to_path_buf(),
        options,
        store_dir,
        totals,
        uploads: Uploads::default(),
        uploading: UploadingBytes::default(),
        signal: Arc::default(),
        housekeeping: Mutex::new(()),
        writer: Mutex::new(writer),
        index: RwLock::new(index),
        next_temp: AtomicU64::new(0),
    })
}

struct Recovery<'a> {
    root: &'a Path,
    files: Files,
    index: Index,
    /// Records that no list has, in the order of the packs.
    unlisted: Vec<Header>,
}

impl Recovery<'_> {
    /// Reserves capacity for all entries at once: a table that grows is filled again.
    fn reserve(&mut self, packs: &[u32]) {
        let bytes =
            |pack: &u32| fs::metadata(checkpoint::path(self.root, *pack)).map_or(0, |list| list.len());
        let listed: u64 = packs.iter().map(bytes).sum();
        self.index.reserve(listed as usize / HEADER_BYTES);
    }

    /// Takes in a pack; the answer is where its last whole record ends.
    fn pack(&mut self, number: u32, store: [u8; 16]) -> Result<Option<(Arc<Pack>, u64)>> {
        let Some(pack) = Pack::open(self.root, number, store)? else {
            tracing::error!(number, "a pack is not readable; its blobs are missing");
            remove(&Pack::path(self.root, number))?;
            let _ = fs::remove_file(checkpoint::path(self.root, number));
            return Ok(None);
        };
        let pack = Arc::new(pack);
        let bytes = pack.bytes()?;
        self.index.packs.insert(number, PackState::new(pack.clone(), bytes));
        let listed_end = checkpoint::read(self.root, number, |header| {
            if header.end() <= bytes && !self.is_outdated(&header, &pack) {
                self.take(&header);
            }
        })?;
        let end = pack.scan(listed_end, |header, data| {
            if header.placement == Placement::File && !self.confirm(&header, data) {
                return Ok(());
            }
            self.take(&header);
            self.unlisted.push(header);
            Ok(())
        })?;
        if end < bytes {
            tracing::info!(number, lost_bytes = bytes - end, "the end of a pack was never written whole");
        }
        Ok(Some((pack, end)))
    }

    fn take(&mut self, header: &Header) {
        match header.placement {
            Placement::Pack => {
                self.index.insert(header);
            }
            Placement::File
                if self.files.get(&name(header)).is_some_and(|file| file.bytes == header.size) =>
            {
                self.index.insert(header);
            }
            // Evicted since, and perhaps uploaded again in part.
            Placement::File => {}
            Placement::Removed => {
                if let Some(state) = self.index.packs.get_mut(&header.pack) {
                    state.removes = true;
                }
                let tenant = self.index.tenant_or_new(header.tenant);
                self.index.remove(&Key { tenant, space: header.space, hash: header.hash });
            }
        }
    }

    /// Whether a listed record no longer speaks of the file under its name. The file was safe when it was
    /// listed; if it was evicted and uploaded again, a power loss may have spoilt the new file and taken the
    /// new record, but then the file is younger than the lists.
    fn is_outdated(&mut self, header: &Header, pack: &Pack) -> bool {
        if header.placement != Placement::File
            || !self.files.get(&name(header)).is_some_and(|file| file.is_recent)
        {
            return false;
        }
        match pack.read(header.offset, header.data_bytes) {
            Ok(Some((_, checksums))) => !self.confirm(header, &checksums),
            // Its first reader will find it damaged.
            _ => false,
        }
    }

    /// Checks a file against its record. One that is wrong goes, and so does what earlier records said of it.
    fn confirm(&mut self, header: &Header, checksums: &[u8]) -> bool {
        let is_intact = self.is_intact(header, checksums);
        if is_intact {
            if let Some(file) = self.files.get_mut(&name(header)) {
                file.is_recent = false;
            }
        } else if self.files.remove(&name(header)).is_some() {
            let tenant = self.index.tenant_or_new(header.tenant);
            self.index.remove(&Key { tenant, space: header.space, hash: header.hash });
            self.remove_file(&name(header));
        }
        is_intact
    }

    /// Whether a file is what it was, after the system may have failed while it was written.
    fn is_intact(&self, header: &Header, checksums: &[u8]) -> bool {
        let path = file_path(self.root, header.tenant, header.space, &header.hash);
        let check = || -> std::io::Result<bool> {
            let file = File::open(&path)?;
            if file.metadata()?.len() != header.size {
                return Ok(false);
            }
            let mut chunk = Vec::new();
            for number in 0..header.size.div_ceil(CHUNK_BYTES as u64) {
                chunk.clear();
                read_at(&file, &mut chunk, CHUNK_BYTES, number * CHUNK_BYTES as u64)?;
                if !is_chunk(checksums, number, &chunk) {
                    return Ok(false);
                }
            }
            Ok(true)
        };
        check().unwrap_or(false)
    }

    /// Removes the files that no record stands for: their uploads never ended, or their records are lost.
    fn remove_orphans(&mut self) {
        for (key, _) in self.index.in_files() {
            self.files.remove(&(self.index.fingerprint(key.tenant), key.space, key.hash));
        }
        self.files.keys().for_each(|name| self.remove_file(name));
    }

    fn remove_file(&self, (tenant, space, hash): &FileName) {
        let path = file_path(self.root, *tenant, *space, hash);
        if let Err(error) = fs::remove_file(&path) {
            tracing::warn!(path = %path.display(), %error, "a file that is no blob could not be removed");
        }
    }
}

fn name(header: &Header) -> FileName {
    (header.tenant, header.space, header.hash)
}

/// The numbers of the packs, in order. Lists without a pack are removed.
fn list_packs(root: &Path) -> Result<Vec<u32>> {
    let (mut packs, mut lists) = (Vec::new(), Vec::new());
    for name in names(&root.join(PACKS))? {
        let number = |suffix| u32::from_str_radix(name.strip_suffix(suffix)?, 16).ok();
        packs.extend(number(".pack"));
        lists.extend(number(".list"));
    }
    packs.sort_unstable();
    for list in lists.into_iter().filter(|list| packs.binary_search(list).is_err()) {
        remove(&checkpoint::path(root, list))?;
    }
    Ok(packs)
}

/// Every file of a blob, by what its name says. `safe_until` is the time of the last checkpoint.
fn list_files(root: &Path, safe_until: Option<SystemTime>) -> Result<Files> {
    let mut files = HashMap::default();
    let root = root.join(FILES);
    for tenant_name in names(&root)? {
        let Ok(tenant) = u128::from_str_radix(&tenant_name, 16) else { continue };
        for shard in names(&root.join(&tenant_name))? {
            let shard = root.join(&tenant_name).join(&shard);
            for name in names(&shard)? {
                let parsed = name.split_once('-').and_then(|(function, hash)| {
                    Some((DigestFunction::from_name(function)?, Hash::parse(hash).ok()?))
                });
                let Some((function, hash)) = parsed else { continue };
                let path = shard.join(&name);
                let Ok(found) = fs::symlink_metadata(&path).inspect_err(|error| {
                    tracing::error!(path = %path.display(), %error, "a file is not readable; its blob is missing");
                }) else {
                    continue;
                };
                let state =
                    FileState { bytes: found.len(), is_recent: is_recent(found.modified().ok(), safe_until) };
                files.insert((tenant.to_be_bytes(), function.into(), hash.0), state);
            }
        }
    }
    Ok(files)
}

/// Whether something may have been written after a time. What is not known counts as recent.
fn is_recent(modified: Option<SystemTime>, safe_until: Option<SystemTime>) -> bool {
    let age = safe_until.zip(modified).and_then(|(safe, modified)| safe.duration_since(modified).ok());
    age.is_none_or(|age| age <= TIME_LAG)
}

fn clear(directory: &Path) -> Result<()> {
    names(directory)?.iter().try_for_each(|name| remove(&directory.join(name)))
}

fn remove(path: &Path) -> Result<()> {
    fs::remove_file(path).map_err(Error::io("remove", path))
}

fn names(directory: &Path) -> Result<Vec<String>> {
    let io = || Error::io("list", directory);
    let entries = fs::read_dir(directory).map_err(io())?;
    entries.map(|entry| Ok(entry.map_err(io())?.file_name().to_string_lossy().into_owned())).collect()
}
