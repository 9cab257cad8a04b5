//! The identity of a cluster, which every storage backend keeps with its ledger.

use data_encoding::HEXLOWER;

/// A random number that a cluster gets when its storage is initialized.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ClusterId(pub [u8; 16]);

impl std::fmt::Display for ClusterId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", HEXLOWER.encode_display(&self.0))
    }
}

impl std::fmt::Debug for ClusterId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ClusterId({self})")
    }
}
