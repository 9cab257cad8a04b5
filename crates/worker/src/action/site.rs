//! Where one attempt takes place: its directory with the inputs laid out, and the files that take its output.

use std::fs::File;
use std::io::Seek;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use blobs::{Digest, DigestFunction};

use crate::cache::{Key, verify};
use crate::capture;
use crate::inputs::Fetched;
use crate::outputs::{Collected, Expected};
use crate::work_dir::{WorkDir, WorkDirs};
use crate::{Failure, digest};

#[derive(Debug)]
pub struct Site {
    pub root: PathBuf,
    /// Without names, so that no command can swap them.
    pub stdout: File,
    pub stderr: File,
    /// Cleared when the site is dropped. None for one that stays.
    _dir: Option<WorkDir>,
}

impl Site {
    /// Makes everything ready for the command, or says which inputs are not in the cache any more. Blocking.
    pub fn make(
        dirs: &Arc<WorkDirs>,
        inputs: &Fetched,
        expected: &Expected,
    ) -> Result<Result<Site, Vec<Key>>, Failure> {
        let site = Site::empty(dirs)?;
        let gone = inputs.lay_out(&site.root)?;
        if !gone.is_empty() {
            return Ok(Err(gone));
        }
        expected.prepare(&site.root)?;
        Ok(Ok(site))
    }

    /// A place with nothing in it. Blocking.
    pub fn empty(dirs: &Arc<WorkDirs>) -> Result<Site, Failure> {
        let make = || {
            let dir = dirs.make()?;
            let capture = || capture::file(dir.path());
            Ok(Site { root: dir.root(), stdout: capture()?, stderr: capture()?, _dir: Some(dir) })
        };
        make().map_err(|error: std::io::Error| Failure::io("the work directory", error))
    }

    /// An empty place that stays, with its output in files that can be looked at. Blocking.
    pub fn kept(root: &Path, stdout: &Path, stderr: &Path) -> Result<Site, Failure> {
        let make = || {
            std::fs::create_dir(root)?;
            let capture = |path| File::options().create_new(true).read(true).append(true).open(path);
            Ok(Site { root: root.to_owned(), stdout: capture(stdout)?, stderr: capture(stderr)?, _dir: None })
        };
        make().map_err(|error: std::io::Error| Failure::io(root.display(), error))
    }

    /// Reads what the command left behind, once it is sure that its inputs are what they were. Blocking.
    pub fn collect(
        &self,
        inputs: &Fetched,
        expected: &Expected,
        function: DigestFunction,
    ) -> Result<Collected, Failure> {
        inputs.check()?;
        let mut collected = expected.collect(&self.root, function)?;
        let result = &mut collected.result;
        for (file, told) in
            [(&self.stdout, &mut result.stdout_digest), (&self.stderr, &mut result.stderr_digest)]
        {
            let read = || match file.metadata()?.len() {
                0 => Ok(None),
                _ => Ok(Some((named(file, function)?, file.try_clone()?))),
            };
            let read = read().map_err(|error: std::io::Error| Failure::io("the command's output", error))?;
            if let Some((digest, file)) = read {
                *told = Some(digest::told(&digest));
                collected.found.add_own(digest, file);
            }
        }
        Ok(collected)
    }
}

fn named(mut file: &File, function: DigestFunction) -> std::io::Result<Digest> {
    file.rewind()?;
    verify::digest_of(file, function)
}
