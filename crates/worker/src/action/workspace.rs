//! The workspace of an attempt: its directory with the inputs laid out, and the files that capture its output.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use blobs::DigestFunction;
use rustix::fs::{MemfdFlags, memfd_create};

use crate::Failure;
use crate::cache::{Key, verify};
use crate::inputs::{Fetched, blocking};
use crate::outputs::{Collected, Expected};
use crate::work_dir::{Trash, WorkDir, WorkDirs};
use execution::digest;

#[derive(Debug)]
pub(crate) struct Workspace {
    pub root: PathBuf,
    /// Without names, so that no command can replace them.
    pub stdout: File,
    pub stderr: File,
    /// Cleared when the workspace is dropped. `None` for a permanent workspace.
    dir: Option<WorkDir>,
}

impl Workspace {
    /// Lays out the inputs, or returns the inputs that are no longer in the cache. Blocking.
    pub(crate) fn make(
        dirs: &Arc<WorkDirs>,
        inputs: &Fetched,
        expected: &Expected,
    ) -> Result<Result<Workspace, Vec<Key>>, Failure> {
        let mut trash = Trash::new(dirs);
        if let Some(dir) = inputs.reusable_workspace() {
            let workspace = Workspace::within(dir).map_err(broken)?;
            // A directory that cannot be corrected is not used.
            if let Ok(evicted) = inputs.lay_out(&workspace.root, &mut trash) {
                return workspace.ready(evicted, expected);
            }
        }
        let workspace = Workspace::empty(dirs)?;
        let evicted = inputs.lay_out(&workspace.root, &mut trash)?;
        workspace.ready(evicted, expected)
    }

    fn ready(self, evicted: Vec<Key>, expected: &Expected) -> Result<Result<Workspace, Vec<Key>>, Failure> {
        if !evicted.is_empty() {
            return Ok(Err(evicted));
        }
        expected.prepare(&self.root)?;
        Ok(Ok(self))
    }

    pub(crate) fn empty(dirs: &Arc<WorkDirs>) -> Result<Workspace, Failure> {
        dirs.make().and_then(Workspace::within).map_err(broken)
    }

    fn within(dir: WorkDir) -> io::Result<Workspace> {
        let capture = || capture_file(dir.path());
        Ok(Workspace { root: dir.root(), stdout: capture()?, stderr: capture()?, dir: Some(dir) })
    }

    /// An empty workspace that stays, with its output in named files. Blocking.
    pub(crate) fn permanent(root: &Path, stdout: &Path, stderr: &Path) -> Result<Workspace, Failure> {
        let make = || {
            std::fs::create_dir(root)?;
            let capture = |path| File::options().create_new(true).read(true).append(true).open(path);
            let (stdout, stderr) = (capture(stdout)?, capture(stderr)?);
            Ok(Workspace { root: root.to_owned(), stdout, stderr, dir: None })
        };
        make().map_err(|error: io::Error| Failure::io(root.display(), error))
    }

    /// Handles of the files that capture standard output and standard error.
    pub(crate) fn captures(&self) -> Result<(File, File), Failure> {
        let clones = self.stdout.try_clone().and_then(|stdout| Ok((stdout, self.stderr.try_clone()?)));
        clones.map_err(output_failed)
    }

    /// Cuts the captured output to its limit, and adds a line to standard error.
    pub(crate) async fn add_line(&self, max_bytes: u64, line: &str) -> Result<(), Failure> {
        let (stdout, stderr) = self.captures()?;
        let line = format!("\nlessor: {line}\n");
        let add = move || {
            for file in [&stdout, &stderr] {
                if file.metadata()?.len() > max_bytes {
                    file.set_len(max_bytes)?;
                }
            }
            // The file's own offset is where the command stopped writing.
            stderr.write_all_at(line.as_bytes(), stderr.metadata()?.len())
        };
        blocking(move || add().map_err(output_failed)).await
    }

    /// Reads the outputs. They count only if the inputs are unchanged. Blocking.
    pub(crate) fn collect(
        &self,
        inputs: &Fetched,
        expected: &Expected,
        function: DigestFunction,
    ) -> Result<Collected, Failure> {
        let collected = expected.collect(&self.root, function);
        // Changed inputs may be the cause of invalid outputs.
        let mut collected = collected.map_err(|failure| inputs.check().err().unwrap_or(failure))?;
        self.add_output(&mut collected, function)?;
        Ok(collected)
    }

    /// Reads standard output and standard error alone. Blocking.
    pub(crate) fn collect_output(&self, function: DigestFunction) -> Result<Collected, Failure> {
        let mut collected = Collected::default();
        self.add_output(&mut collected, function)?;
        Ok(collected)
    }

    fn add_output(&self, collected: &mut Collected, function: DigestFunction) -> Result<(), Failure> {
        let result = &mut collected.result;
        for (file, reported) in
            [(&self.stdout, &mut result.stdout_digest), (&self.stderr, &mut result.stderr_digest)]
        {
            let read = || match file.metadata()?.len() {
                0 => Ok(None),
                _ => Ok(Some((verify::digest_of(file, function)?, file.try_clone()?))),
            };
            if let Some((digest, file)) = read().map_err(output_failed)? {
                *reported = Some(digest::to_proto(&digest));
                collected.blobs.add_own(digest, file);
            }
        }
        Ok(())
    }

    /// Checks that the inputs are unchanged, and leaves the directory to later attempts. Blocking.
    pub(crate) fn close(self, dirs: &Arc<WorkDirs>, inputs: &Fetched) -> Result<(), Failure> {
        match self.dir {
            Some(dir) => inputs.check_and_keep(dir, &mut Trash::new(dirs)),
            None => inputs.check(),
        }
    }
}

/// A file in memory, or else in this directory, without a name. Two files on disk for each command cost more than most
/// commands, because a file system searches for inodes that were not used recently. The size of an output is limited,
/// and its memory is charged to the command's control group.
fn capture_file(directory: &Path) -> io::Result<File> {
    match memfd_create("output", MemfdFlags::CLOEXEC) {
        Ok(file) => Ok(File::from(file)),
        Err(_) => tempfile::tempfile_in(directory),
    }
}

fn broken(error: io::Error) -> Failure {
    Failure::io("the work directory", error)
}

fn output_failed(error: io::Error) -> Failure {
    Failure::io("the command's output", error)
}
