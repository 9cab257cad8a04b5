//! Puts the contents of outputs into a result, if the client asks for them, to save a round trip (R26, R39). Contents
//! that do not fit are left out.

use std::collections::HashSet;

use blobs::DigestFunction;
use execution::digest;
use tonic::Status;

use super::messages::ActionResult;
use super::store::Store;

const MAX_INLINED_BYTES: u64 = 1_024 * 1_024;

#[derive(Clone, Debug, Default)]
pub(super) struct InlineOutputs {
    stdout: bool,
    stderr: bool,
    files: HashSet<String>,
}

impl InlineOutputs {
    pub(super) fn new(stdout: bool, stderr: bool, files: &[String]) -> InlineOutputs {
        InlineOutputs { stdout, stderr, files: files.iter().cloned().collect() }
    }

    /// Inlines the requested contents, as far as they fit.
    pub(super) async fn fill(
        &self,
        store: &Store,
        mut result: ActionResult,
        function: DigestFunction,
    ) -> Result<ActionResult, Status> {
        let mut room = MAX_INLINED_BYTES;
        let raw = [
            (self.stdout, &result.stdout_digest, &mut result.stdout_raw),
            (self.stderr, &result.stderr_digest, &mut result.stderr_raw),
        ];
        let files = result.output_files.iter_mut().map(|file| {
            let wanted = self.files.contains(&file.path);
            (wanted, &file.digest, &mut file.contents)
        });
        for (wanted, of, into) in raw.into_iter().chain(files) {
            let Some(of) = of.as_ref().filter(|_| wanted && into.is_empty()) else { continue };
            let of = digest::from_proto(Some(of), function, "an output")?;
            if of.size > room {
                continue;
            }
            if let Some(bytes) = store.get(&of, room).await? {
                room -= of.size;
                *into = bytes.to_vec();
            }
        }
        Ok(result)
    }
}
