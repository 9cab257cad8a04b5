//! The working directory of an attempt with its inputs laid out, and the files that capture its output.

use std::fs::File;
use std::io::{self, Seek};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use blobs::{Digest, DigestFunction};

use crate::Failure;
use crate::cache::{Key, verify};
use crate::capture;
use crate::inputs::Fetched;
use crate::outputs::{Collected, Expected};
use crate::work_dir::{Trash, WorkDir, WorkDirs};
use execution::digest;

#[derive(Debug)]
pub(crate) struct Site {
    pub root: PathBuf,
    /// Without names, so that no command can swap them.
    pub stdout: File,
    pub stderr: File,
    /// Cleared when the site is dropped. None for one that stays.
    dir: Option<WorkDir>,
}

impl Site {
    /// Makes everything ready for the command, or says which inputs are not in the cache any more. Blocking.
    pub(crate) fn make(
        dirs: &Arc<WorkDirs>,
        inputs: &Fetched,
        expected: &Expected,
    ) -> Result<Result<Site, Vec<Key>>, Failure> {
        let mut trash = Trash::new(dirs);
        if let Some(dir) = inputs.reusable_workspace() {
            let site = Site::within(dir).map_err(broken)?;
            // What cannot be made right is given up.
            if let Ok(gone) = inputs.lay_out(&site.root, &mut trash) {
                return site.ready(gone, expected);
            }
        }
        let site = Site::empty(dirs)?;
        let gone = inputs.lay_out(&site.root, &mut trash)?;
        site.ready(gone, expected)
    }

    fn ready(self, gone: Vec<Key>, expected: &Expected) -> Result<Result<Site, Vec<Key>>, Failure> {
        if !gone.is_empty() {
            return Ok(Err(gone));
        }
        expected.prepare(&self.root)?;
        Ok(Ok(self))
    }

    /// A place with nothing in it. Blocking.
    pub(crate) fn empty(dirs: &Arc<WorkDirs>) -> Result<Site, Failure> {
        dirs.make().and_then(Site::within).map_err(broken)
    }

    fn within(dir: WorkDir) -> io::Result<Site> {
        let capture = || capture::file(dir.path());
        Ok(Site { root: dir.root(), stdout: capture()?, stderr: capture()?, dir: Some(dir) })
    }

    /// An empty place that stays, with its output in files that can be looked at. Blocking.
    pub(crate) fn permanent(root: &Path, stdout: &Path, stderr: &Path) -> Result<Site, Failure> {
        let make = || {
            std::fs::create_dir(root)?;
            let capture = |path| File::options().create_new(true).read(true).append(true).open(path);
            Ok(Site { root: root.to_owned(), stdout: capture(stdout)?, stderr: capture(stderr)?, dir: None })
        };
        make().map_err(|error: std::io::Error| Failure::io(root.display(), error))
    }

    /// Reads what the command left behind. It counts only if the inputs are found to be what they were. Blocking.
    pub(crate) fn collect(
        &self,
        inputs: &Fetched,
        expected: &Expected,
        function: DigestFunction,
    ) -> Result<Collected, Failure> {
        let collected = expected.collect(&self.root, function);
        // What is wrong with the outputs is nobody's fault if something was wrong with the inputs.
        let mut collected = collected.map_err(|failure| inputs.check().err().unwrap_or(failure))?;
        let result = &mut collected.result;
        for (file, reported) in
            [(&self.stdout, &mut result.stdout_digest), (&self.stderr, &mut result.stderr_digest)]
        {
            let read = || match file.metadata()?.len() {
                0 => Ok(None),
                _ => Ok(Some((named(file, function)?, file.try_clone()?))),
            };
            let read = read().map_err(|error: std::io::Error| Failure::io("the command's output", error))?;
            if let Some((digest, file)) = read {
                *reported = Some(digest::to_proto(&digest));
                collected.found.add_own(digest, file);
            }
        }
        Ok(collected)
    }

    /// Finds out whether the inputs are what they were, and leaves the directory to later attempts. Blocking.
    pub(crate) fn close(self, dirs: &Arc<WorkDirs>, inputs: &Fetched) -> Result<(), Failure> {
        match self.dir {
            Some(dir) => inputs.check_and_keep(dir, &mut Trash::new(dirs)),
            None => inputs.check(),
        }
    }
}

fn broken(error: io::Error) -> Failure {
    Failure::io("the work directory", error)
}

fn named(mut file: &File, function: DigestFunction) -> std::io::Result<Digest> {
    file.rewind()?;
    verify::digest_of(file, function)
}
