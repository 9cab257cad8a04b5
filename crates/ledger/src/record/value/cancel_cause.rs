//! The numbers of the causes of a cancel request. A number never changes its meaning.

use authority::CancelCause;

use crate::record::error::DecodeError;

pub fn number(cause: CancelCause) -> u32 {
    match cause {
        CancelCause::User => 1,
        CancelCause::Deadline => 2,
    }
}

pub fn from_number(number: u32) -> Result<CancelCause, DecodeError> {
    match number {
        0 => Err(DecodeError::Missing("the cause of a cancel request")),
        1 => Ok(CancelCause::User),
        2 => Ok(CancelCause::Deadline),
        _ => Err(DecodeError::Newer("a cause of a cancel request")),
    }
}
