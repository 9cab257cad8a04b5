//! The outputs of a completed attempt, which are kept until its report is answered: if the coordinator does not find them in
//! the content store, they are uploaded again.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use super::output_blobs::OutputBlobs;
use super::{Destination, upload};
use crate::{Cas, Failure};

pub(crate) struct KeptOutputs {
    pub cas: Arc<dyn Cas>,
    pub instance: String,
    pub blobs: OutputBlobs,
    /// The attempt's directory, which may be gone. The directory that contains it stays.
    pub directory: PathBuf,
}

impl KeptOutputs {
    /// Uploads the outputs that the store lacks.
    pub(crate) async fn upload(&self) -> Result<(), Failure> {
        let to = Destination { cas: &*self.cas, instance: &self.instance };
        upload(to, &self.blobs, &self.directory).await
    }
}

impl fmt::Debug for KeptOutputs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeptOutputs").field("instance", &self.instance).finish_non_exhaustive()
    }
}
