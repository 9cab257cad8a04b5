//! What `/proc` says about a process, as far as cleaning up after commands needs it.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::param::clock_ticks_per_second;
use rustix::process::Pid;

/// Of `/proc/PID/stat`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcStat {
    name: String,
    /// It has ended, and nobody has waited for it yet.
    pub is_dead: bool,
    pub parent: i32,
    pub group: i32,
    /// It is 0 where the session began outside of the container that the process is in.
    pub session: i32,
    /// It is 0 where there is none.
    pub terminal: i32,
    /// Since the machine started, in a unit that is the same for all processes.
    pub started_ticks: u64,
    /// By itself and by all whom it waited for, in hundredths of a second on most machines.
    pub user_time: Duration,
    pub system_time: Duration,
}

impl ProcStat {
    pub fn of(id: Pid) -> Option<ProcStat> {
        ProcStat::parse(&fs::read_to_string(proc_dir(id).join("stat")).ok()?)
    }

    pub fn of_this_process() -> Option<ProcStat> {
        ProcStat::parse(&fs::read_to_string("/proc/self/stat").ok()?)
    }

    /// The first 15 characters of the program's file name, unless the process calls itself something else.
    pub fn is_named(&self, name: &str) -> bool {
        self.name == name
    }

    fn parse(stat: &str) -> Option<ProcStat> {
        // The name in parentheses may contain anything.
        let (name, fields) = stat.rsplit_once(')')?;
        let name = name.split_once('(')?.1.to_owned();
        let fields: Vec<&str> = fields.split_whitespace().collect();
        let number = |n: usize| fields.get(n)?.parse::<i32>().ok();
        let ticks = |n: usize| fields.get(n)?.parse::<u64>().ok();
        let time = |ticks: u64| Duration::from_millis(ticks * 1_000 / clock_ticks_per_second().max(1));
        Some(ProcStat {
            name,
            is_dead: matches!(*fields.first()?, "Z" | "X"),
            parent: number(1)?,
            group: number(2)?,
            session: number(3)?,
            terminal: number(4)?,
            started_ticks: ticks(19)?,
            user_time: time(ticks(11)?.saturating_add(ticks(13)?)),
            system_time: time(ticks(12)?.saturating_add(ticks(14)?)),
        })
    }
}

/// Whether a process works in a directory, has a file below it open, or runs a program from there.
pub fn is_busy_in(id: Pid, directory: &Path) -> bool {
    let process = proc_dir(id);
    let leads_there = |link: PathBuf| fs::read_link(link).is_ok_and(|target| target.starts_with(directory));
    ["cwd", "exe", "root"].into_iter().any(|link| leads_there(process.join(link)))
        || fs::read_dir(process.join("fd"))
            .is_ok_and(|files| files.flatten().any(|file| leads_there(file.path())))
}

/// The processes that can be seen from here.
pub fn all() -> Vec<Pid> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries.flatten().filter_map(|entry| pid(entry.file_name().to_str()?)).collect()
}

pub fn pid(text: &str) -> Option<Pid> {
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
        let stat = "7 (a) Z 9 9 (b)) S 1 2 3 34816 -1 4194304 1 2 3 4 50 6 150 8 20 0 1 0 4711 99 1";
        let read = ProcStat::parse(stat).unwrap();
        assert!(read.is_named("a) Z 9 9 (b)") && !read.is_dead);
        assert_eq!((read.parent, read.group, read.session), (1, 2, 3));
        assert_eq!((read.terminal, read.started_ticks), (34816, 4711));
        let ticks = |ticks: u64| Duration::from_millis(ticks * 1_000 / clock_ticks_per_second());
        assert_eq!((read.user_time, read.system_time), (ticks(200), ticks(14)));
        assert_eq!(ProcStat::parse("7 (a"), None);
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
