//! The numbers of the enumerations. A number never changes its meaning, and zero is never written.

use authority::event::{ExpiryCause, ReleaseCause};
use authority::{CancelCause, Category, DeadReason};

use crate::record::error::DecodeError;

pub(crate) trait Enumeration: Copy {
    fn number(self) -> u32;

    fn from_number(number: u32) -> Result<Self, DecodeError>;
}

macro_rules! enumerations {
    ($($type:ident $name:literal { $($number:literal $variant:ident,)* })*) => {
        $(impl Enumeration for $type {
            fn number(self) -> u32 {
                match self { $($type::$variant => $number,)* }
            }

            fn from_number(number: u32) -> Result<$type, DecodeError> {
                match number {
                    0 => Err(DecodeError::Missing($name)),
                    $($number => Ok($type::$variant),)*
                    _ => Err(DecodeError::Newer($name)),
                }
            }
        })*
    };
}

enumerations! {
    Category "the category of an error" {
        1 UserCode, 2 DataQuality, 3 Infrastructure, 4 Configuration, 5 Timeout, 6 Cancelled,
    }
    DeadReason "the reason of a death" {
        1 Cancelled, 2 CancelTimeout, 3 HeartbeatTimeout, 4 Deadline, 5 Killed,
    }
    CancelCause "the cause of a cancel request" { 1 User, 2 Deadline, }
    ExpiryCause "the cause of an expiry" { 1 Silence, 2 Timeout, }
    ReleaseCause "the cause of a release" { 1 Worker, 2 Undelivered, 3 Session, }
}
