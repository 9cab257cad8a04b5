//! The small files that claim a directory: its identity, its lock, and files that are replaced as a whole.
//!
//! New files are readable by their owner only. A function that promises durability has synced the file and every
//! directory that names it before it returns.

mod checksum;
mod directory;
mod identity;
mod lock;
mod replace;

pub use checksum::{append_checksum, verify_checksum};
pub use directory::create_dir_durably;
pub use identity::{IDENTITY_BYTES, Identity};
pub use lock::{LockError, lock};
pub use replace::replace;
