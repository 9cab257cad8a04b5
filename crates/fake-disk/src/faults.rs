//! Planned faults: the calls that fail, and their errors.

use std::io;

/// How a call fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Errno {
    /// The device failed.
    Io,
    /// The device is full.
    NoSpace,
    /// Not ours to touch.
    Access,
    /// A write does half of its work and says so; any other call works.
    Short,
    /// The machine stopped: the call has no effect, and neither has any after it.
    Halted,
}

impl Errno {
    fn error(self) -> io::Error {
        match self {
            Self::Io => io::Error::from_raw_os_error(5),
            Self::NoSpace => io::Error::from_raw_os_error(28),
            Self::Access => io::Error::from_raw_os_error(13),
            Self::Short | Self::Halted => io::Error::other("the machine has stopped"),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Call {
    Look,
    Change,
}

#[derive(Default)]
pub(super) struct Faults {
    changes: Vec<bool>,
    at: Option<(u64, Errno)>,
    from: Option<(u64, Errno)>,
}

impl Faults {
    pub(super) fn fail_at(&mut self, at: u64, errno: Errno) {
        self.at = Some((self.calls() + at, errno));
    }

    pub(super) fn fail_from(&mut self, at: u64, errno: Errno) {
        self.from = Some((self.calls() + at, errno));
    }

    pub(super) fn calls(&self) -> u64 {
        self.changes.len() as u64
    }

    pub(super) fn call_changes(&self, at: u64) -> bool {
        self.changes.get(at as usize).copied().unwrap_or(false)
    }

    pub(super) fn count(&mut self, call: Call) -> io::Result<()> {
        match self.next(call) {
            None | Some(Errno::Short) => Ok(()),
            Some(errno) => Err(errno.error()),
        }
    }

    /// Whether the write is to be short.
    pub(super) fn count_write(&mut self) -> io::Result<bool> {
        match self.next(Call::Change) {
            None => Ok(false),
            Some(Errno::Short) => Ok(true),
            Some(errno) => Err(errno.error()),
        }
    }

    fn next(&mut self, call: Call) -> Option<Errno> {
        let now = self.calls();
        self.changes.push(call == Call::Change);
        let once = self.at.filter(|(at, _)| *at == now);
        let from = self.from.filter(|(from, _)| *from <= now);
        once.or(from).map(|(_, errno)| errno)
    }
}
