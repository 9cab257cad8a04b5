//! The small value types that name things: tasks, ledger positions, times, content digests.

use std::fmt;

/// A task's name: a UUIDv7, made outside and handed in with the command that creates the task.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId(pub u128);

/// The number of a record in the ledger, from 1. The position of a LeaseGranted is the lease's fencing token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position(pub u64);

/// Milliseconds since the Unix epoch on the coordinator's own clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub u64);

/// A digest of parsed content, made outside; two contents are the same when their digests are.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest(pub [u8; 16]);

/// The SHA-256 of a key's secret, made outside.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SecretHash(pub [u8; 32]);

impl Position {
    pub const ZERO: Position = Position(0);

    pub fn next(self) -> Position {
        Position(self.0 + 1)
    }
}

impl Time {
    pub const ZERO: Time = Time(0);

    pub fn plus_ms(self, ms: u64) -> Time {
        Time(self.0.saturating_add(ms))
    }

    /// Milliseconds from `earlier` to `self`, zero when `earlier` is later.
    pub fn since_ms(self, earlier: Time) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl TaskId {
    /// When the id was made, if it is a UUIDv7.
    pub fn made_at(self) -> Option<Time> {
        const VERSION: u128 = 0x7;
        (self.0 >> 76 & 0xf == VERSION).then_some(Time((self.0 >> 80) as u64))
    }
}

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let id = self.0;
        write!(
            f,
            "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
            (id >> 96) as u32,
            (id >> 80) as u16,
            (id >> 64) as u16,
            (id >> 48) as u16,
            id & 0xffff_ffff_ffff
        )
    }
}

impl fmt::Debug for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for SecretHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_id_reads_as_a_uuid() {
        assert_eq!(
            TaskId(0x0190_0000_0000_7000_8000_0000_0000_0001).to_string(),
            "01900000-0000-7000-8000-000000000001"
        );
    }

    #[test]
    fn a_task_id_says_when_it_was_made() {
        assert_eq!(TaskId(0x0190_0000_0003_7000_8000_0000_0000_0001).made_at(), Some(Time(0x0190_0000_0003)));
        assert_eq!(TaskId(0x0190_0000_0003_4000_8000_0000_0000_0001).made_at(), None);
    }

    #[test]
    fn time_saturates_instead_of_overflowing() {
        assert_eq!(Time(u64::MAX - 1).plus_ms(10), Time(u64::MAX));
        assert_eq!(Time(3).since_ms(Time(5)), 0);
    }
}
