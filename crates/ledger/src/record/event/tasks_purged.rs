//! Final tasks were forgotten after their retention.

use authority::{TaskId, event};

use crate::record::error::DecodeError;

/// Ids by halves, packed: a purge names up to a thousand tasks.
#[derive(Clone, PartialEq, prost::Message)]
pub struct TasksPurged {
    /// The high and the low half of each id in turn.
    #[prost(fixed64, repeated, tag = "1")]
    pub halves: Vec<u64>,
}

impl From<&event::TasksPurged> for TasksPurged {
    fn from(event: &event::TasksPurged) -> TasksPurged {
        TasksPurged { halves: event.tasks.iter().flat_map(|id| [(id.0 >> 64) as u64, id.0 as u64]).collect() }
    }
}

impl TryFrom<TasksPurged> for event::TasksPurged {
    type Error = DecodeError;

    fn try_from(message: TasksPurged) -> Result<event::TasksPurged, DecodeError> {
        let (ids, []) = message.halves.as_chunks::<2>() else {
            return Err(DecodeError::Invalid("a purged task's id is cut in half"));
        };
        let whole = |[high, low]: &[u64; 2]| TaskId(u128::from(*high) << 64 | u128::from(*low));
        Ok(event::TasksPurged { tasks: ids.iter().map(whole).collect() })
    }
}
