//! The content store on disk.
//!
//! ```text
//! IDENTITY          which store this is, and the version of its format
//! LOCK              held by the process that has it open
//! packs/N.pack      small blobs and cached entries, and a record for each large blob
//! packs/N.list      the headers of the records of a pack that are safe on disk
//! files/T/HH/F-HASH large blobs: tenant, first byte of the hash, function and hash
//! temp/             uploads that are not finished
//! ```
//!
//! Read `record` and `pack` for the format, `writer` for how it changes, `open` for how it is read again, and
//! `eviction` for how it stays within its cap.

mod checkpoint;
mod checksums;
mod entries;
mod eviction;
mod identity;
mod index;
mod inner;
mod maintenance;
mod open;
mod options;
mod pack;
mod promote;
mod put;
mod read;
mod record;
mod store;
mod tenant_quota;
mod upload;
mod uploads;
mod writer;

pub use eviction::Usage;
pub use identity::OpenError;
pub use options::Options;
pub use read::Reader;
pub use store::{Pin, Store};
pub use tenant_quota::TenantQuotas;
pub use upload::Upload;
