//! Reads `/proc` as far as the cleanup after commands needs it.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use procfs::FromRead;
use procfs::process::Stat;
use rustix::param::clock_ticks_per_second;
use rustix::process::Pid;

pub(crate) fn stat(id: Pid) -> Option<Stat> {
    Stat::from_file(proc_dir(id).join("stat")).ok()
}

pub(crate) fn own_stat() -> Option<Stat> {
    Stat::from_file("/proc/self/stat").ok()
}

/// Whether a process has ended and was not waited for yet.
pub(crate) fn is_dead(stat: &Stat) -> bool {
    matches!(stat.state, 'Z' | 'X')
}

/// The user and system time of a process and of the children that it waited for, in hundredths of a second on most
/// machines.
pub(crate) fn cpu_times(stat: &Stat) -> (Duration, Duration) {
    let time = |own: u64, children: i64| {
        let ticks = own.saturating_add(u64::try_from(children).unwrap_or(0));
        Duration::from_millis(ticks * 1_000 / clock_ticks_per_second().max(1))
    };
    (time(stat.utime, stat.cutime), time(stat.stime, stat.cstime))
}

/// Whether a process works in a directory, has a file below it open, or runs a program from there.
pub(crate) fn is_busy_in(id: Pid, directory: &Path) -> bool {
    let process = proc_dir(id);
    let leads_there = |link: PathBuf| fs::read_link(link).is_ok_and(|target| target.starts_with(directory));
    ["cwd", "exe", "root"].into_iter().any(|link| leads_there(process.join(link)))
        || fs::read_dir(process.join("fd"))
            .is_ok_and(|files| files.flatten().any(|file| leads_there(file.path())))
}

/// All processes in this PID namespace.
pub(crate) fn all() -> Vec<Pid> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries.flatten().filter_map(|entry| parse_pid(entry.file_name().to_str()?)).collect()
}

pub(crate) fn parse_pid(text: &str) -> Option<Pid> {
    text.parse().ok().and_then(Pid::from_raw)
}

fn proc_dir(id: Pid) -> PathBuf {
    Path::new("/proc").join(id.as_raw_nonzero().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_looks_like_fields_confuses_nobody() {
        let rest = "0 ".repeat(30);
        let text =
            format!("7 (a) Z 9 9 (b)) S 1 2 3 34816 -1 4194304 1 2 3 4 50 6 150 8 20 0 1 0 4711 99 1 {rest}");
        let stat = Stat::from_read(text.as_bytes()).unwrap();
        assert!(stat.comm == "a) Z 9 9 (b)" && !is_dead(&stat));
        assert_eq!((stat.ppid, stat.pgrp, stat.session), (1, 2, 3));
        assert_eq!((stat.tty_nr, stat.starttime), (34816, 4711));
        let ticks = |ticks: u64| Duration::from_millis(ticks * 1_000 / clock_ticks_per_second());
        assert_eq!(cpu_times(&stat), (ticks(200), ticks(14)));
    }

    #[test]
    fn this_process_is_busy_where_it_has_a_file_open() {
        let dir = tempfile::tempdir().unwrap();
        let directory = dir.path().canonicalize().unwrap();
        let this = rustix::process::getpid();
        assert!(!is_busy_in(this, &directory) && all().contains(&this));
        let _file = fs::File::create(directory.join("file")).unwrap();
        assert!(is_busy_in(this, &directory));
    }
}
