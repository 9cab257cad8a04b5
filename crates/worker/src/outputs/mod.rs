//! Finds the outputs of a command and uploads them to the content store.
//!
//! Links are never followed, and nothing outside the input root is read. A link is reported as a link; anything but a
//! file, a directory or a link is refused. The reported digest is the digest of the bytes that were read, even if a
//! file changes meanwhile.

mod collect;
mod expected;
mod kept;
mod output_blobs;
mod tree;
mod upload;

use std::path::Path;

use blobs::DigestFunction;

use crate::dirfd::Directory;
use crate::{Cas, Failure};
use collect::Collector;
use execution::RelativePath;
use execution::reapi::ActionResult;
pub(crate) use expected::Expected;
pub(crate) use kept::KeptOutputs;
use output_blobs::OutputBlobs;
pub(crate) use upload::upload;

/// The outputs of a command, read and hashed. They are not in the store yet.
#[derive(Default)]
pub(crate) struct Collected {
    /// Without exit code and metadata.
    pub result: ActionResult,
    pub blobs: OutputBlobs,
}

impl Expected {
    /// Creates the parent directories of the outputs, before the command runs (R47). Blocking.
    pub(crate) fn prepare(&self, input_root: &Path) -> Result<(), Failure> {
        let failed = |path: &RelativePath, error| {
            let path = path.to_string();
            Failure::invalid_action(format!("the directory {path:?} of an output cannot be made: {error}"))
        };
        let root = Directory::open(input_root).map_err(|error| Failure::io("the input root", error))?;
        root.descend(&self.working_directory).map_err(|error| {
            let path = self.working_directory.to_string();
            Failure::invalid_action(format!(
                "the working directory {path:?} is no directory of the inputs: {error}"
            ))
        })?;
        for path in self.paths() {
            if let Some((parent, _)) = path.split_last() {
                root.descend_or_make(&parent).map_err(|error| failed(&parent, error))?;
            }
        }
        Ok(())
    }

    pub(crate) fn collect(&self, input_root: &Path, function: DigestFunction) -> Result<Collected, Failure> {
        let root = Directory::open(input_root).map_err(|error| Failure::io("the input root", error))?;
        Collector::new(self, &root, function).collect()
    }
}

pub(crate) struct Destination<'a> {
    pub cas: &'a dyn Cas,
    pub instance: &'a str,
}
