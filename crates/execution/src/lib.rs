//! The execution contract: what the server, the worker and `lessor run` agree on about actions.
//!
//! Everything that two of them read or write is defined here once: the payload of an execution's task, its result, the
//! failure codes, digests as protobuf messages, and the rules and limits of commands, paths and directory trees. This
//! crate does no I/O and decides nothing: it encodes, decodes and checks.

pub mod action;
pub mod any;
pub mod cached_result;
pub mod command;
pub mod digest;
mod directory;
mod failure;
pub mod fields;
mod invalid;
mod origin;
mod path;
mod payload;
pub mod result;
mod tree;
mod tree_size;

pub use directory::{Directory, FileNode, FileProperties, check_sorted, decode_proto};
pub use failure::Failure;
pub use invalid::InvalidMessage;
pub use origin::Origin;
pub use path::{InvalidPath, RelativePath, component, stays_within};
pub use payload::ExecutionPayload;
pub use tree::{TreeDirectory, TreeReader, check_bounds, tree_directories};
pub use tree_size::TreeSize;

pub use bazel_remote_apis::build::bazel::remote::execution::v2 as reapi;

/// The queue that executions wait in.
pub const EXECUTION_QUEUE: &str = "exec";

/// Limits of actions and of the trees that they name. What the server accepts, every worker can run.
pub mod limits {
    /// Largest action, command or directory message: one that fits into a batch, so that any client can read it. That
    /// is about 40,000 files in a directory.
    pub const MAX_MESSAGE_BYTES: u64 = blobs::MAX_BATCH_BYTES;
    /// Most files, directories and links of a directory, and most properties of all of them. An entry of two bytes
    /// takes more than a hundred in memory; an entry that names content has never less than seventy.
    pub const MAX_DIRECTORY_ENTRIES: usize = 100_000;
    /// Most directories of a tree, each counted once.
    pub const MAX_DIRECTORIES: usize = 200_000;
    /// Most bytes of all directory messages of a tree, each counted once: those of a million files with names of usual
    /// lengths.
    pub const MAX_TREE_BYTES: u64 = 128 * 1_024 * 1_024;
    /// Largest Tree message that the action cache follows, and most entries of one of its directories: more than files
    /// fit into the largest message.
    pub const MAX_OUTPUT_TREE_BYTES: u64 = 16 * 1_024 * 1_024;
    pub const MAX_OUTPUT_ENTRIES: usize = 250_000;
    /// Deepest directory below the root of a tree.
    pub const MAX_DEPTH: usize = 256;
    /// Most files, directories and links of a tree, each counted on every path to it (I9).
    pub const MAX_ENTRIES: u64 = 1_000_000;
    /// Most bytes of the files of a tree, each counted on every path to it.
    pub const MAX_CONTENT_BYTES: u64 = 1 << 40;
    /// Most bytes of a command's arguments and environment together: Linux accepts a little more for a new process.
    pub const MAX_ARGUMENT_BYTES: usize = 2 * 1_024 * 1_024;
    pub const MAX_OUTPUTS: usize = 100_000;

    const _: () = assert!(MAX_OUTPUT_TREE_BYTES <= MAX_TREE_BYTES);
}
