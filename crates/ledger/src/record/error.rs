//! The error of bytes that are not a record or a snapshot entry of this format.

/// The bytes cannot be used. Nothing of them was.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    #[error("it is malformed: {0}")]
    Malformed(#[from] prost::DecodeError),
    #[error("it is malformed: {0} is missing")]
    Missing(&'static str),
    #[error("it is malformed: {0}")]
    Invalid(&'static str),
    /// Skipping what is not understood would give another state than the writer had (D25, P12).
    #[error("it holds {0} that this version does not know: it was written by a newer version")]
    Newer(&'static str),
}
