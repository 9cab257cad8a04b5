//! The user that commands run as, if it is not the worker's.

use std::fs;
use std::io;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Gid, Mode, Uid, chmodat, chownat};

use super::Run;
use crate::Failure;
use crate::inputs::blocking;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct User {
    pub id: u32,
    pub group: u32,
}

impl User {
    /// By name, or by number with an optional group (`1000`, `1000:100`).
    pub(super) fn find(named: &str) -> Result<User, String> {
        let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
        User::parse(named, &users).ok_or_else(|| {
            format!("there is no user {named:?} in /etc/passwd: add it, or give a number as USER:GROUP")
        })
    }

    pub(crate) fn parse(named: &str, users: &str) -> Option<User> {
        if let Some((id, group)) = named.split_once(':') {
            return Some(User { id: id.parse().ok()?, group: group.parse().ok()? });
        }
        let known = users.lines().find_map(|line| {
            let fields: Vec<&str> = line.split(':').collect();
            let [name, _, id, group, ..] = fields[..] else { return None };
            (name == named || id == named).then_some((id, group))
        });
        match known {
            Some((id, group)) => Some(User { id: id.parse().ok()?, group: group.parse().ok()? }),
            None => named.parse().ok().map(|id| User { id, group: id }),
        }
    }

    /// Gives the user the directories of an input root. The files in it stay the worker's: they are read-only, and the
    /// user cannot change that. Blocking.
    fn take_over(&self, input_root: &Path, work_dir: &Path) -> io::Result<()> {
        let mut rest = vec![input_root.to_owned()];
        while let Some(directory) = rest.pop() {
            for entry in fs::read_dir(&directory)? {
                let entry = entry?;
                if entry.file_type()?.is_dir() {
                    rest.push(entry.path());
                }
            }
            self.own(&directory)?;
        }
        // The attempt's directory is for the user alone, and the directories above can be passed but not listed.
        let mut above = input_root.ancestors().skip(1).take_while(|above| *above != work_dir);
        if let Some(attempt) = above.next() {
            self.own(attempt)?;
            chmodat(CWD, attempt, Mode::from_raw_mode(0o700), AtFlags::empty())?;
        }
        for way in above {
            chmodat(CWD, way, Mode::from_raw_mode(0o711), AtFlags::empty())?;
        }
        Ok(())
    }

    /// The same for a command's inputs, on a thread for blocking work.
    pub(super) async fn take(self, run: &Run, work_dir: &Path) -> Result<(), Failure> {
        let (input_root, work_dir) = (run.input_root.clone(), work_dir.to_owned());
        blocking(move || {
            let taken = self.take_over(&input_root, &work_dir);
            taken.map_err(|error| Failure::io("the inputs could not be given to the user", error))
        })
        .await
    }

    fn own(&self, path: &Path) -> io::Result<()> {
        let (id, group) = (Uid::from_raw(self.id), Gid::from_raw(self.group));
        Ok(chownat(CWD, path, Some(id), Some(group), AtFlags::SYMLINK_NOFOLLOW)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_found_by_name_or_number() {
        let users = "root:x:0:0:root:/root:/bin/sh\nbuild:x:1001:100::/:/bin/false\n";
        let user = |id, group| Some(User { id, group });
        assert_eq!(User::parse("build", users), user(1001, 100));
        assert_eq!(User::parse("1001", users), user(1001, 100));
        assert_eq!(User::parse("7", users), user(7, 7));
        assert_eq!(User::parse("7:8", users), user(7, 8));
        assert_eq!(User::parse("nobody", users), None);
        assert_eq!(User::parse("a:b", users), None);
    }
}
