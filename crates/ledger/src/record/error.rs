//! Why bytes are not a record or a snapshot entry of this format.

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

/// The field, which no writer leaves out.
pub(super) fn need<T>(field: Option<T>, what: &'static str) -> Result<T, DecodeError> {
    field.ok_or(DecodeError::Missing(what))
}

/// Refuses a message in which something was skipped while decoding: protobuf drops unknown fields silently, and
/// then the message is shorter than the bytes it came from.
pub(super) fn nothing_skipped(message: &impl prost::Message, bytes: usize) -> Result<(), DecodeError> {
    if message.encoded_len() == bytes { Ok(()) } else { Err(DecodeError::Newer("a kind or a field")) }
}

/// For conversions that cannot fail, beside those that can.
impl From<std::convert::Infallible> for DecodeError {
    fn from(never: std::convert::Infallible) -> DecodeError {
        match never {}
    }
}
