//! Applies the user and the limits of a command before its program starts: a chain of small programs, each of which
//! executes the next.
//!
//! No program of the chain sees the command's environment, which could make it load the command's code, before it has
//! dropped the worker's permissions.

use std::ffi::OsString;
use std::path::PathBuf;

use super::cgroups::{Cgroup, Cgroups, Controller};
use super::users::User;
use super::{End, ExecutorOptions, Limits, Run, local};
use crate::{Error, Failure};

/// The exit code of a shell that could not join a control group.
const NOT_JOINED: i32 = 125;
const SHELL: &str = "/bin/sh";

#[derive(Debug)]
pub(super) struct Confine {
    user: Option<User>,
    limits: Limits,
    cgroups: Cgroups,
    pub work_dir: PathBuf,
    /// Unique to this worker.
    pub key: String,
}

#[derive(Debug, Default)]
pub(super) struct Confined {
    /// The command line before that of the command.
    pub chain: Vec<OsString>,
    group: Option<Cgroup>,
}

impl Confine {
    pub(super) fn open(options: &ExecutorOptions) -> Result<Confine, Error> {
        let (user, (work_dir, key)) = (options.user()?, options.place()?);
        let cgroups = Cgroups::open(&key, &options.limits);
        Ok(Confine { user, limits: options.limits, cgroups, work_dir, key })
    }

    pub(super) fn lacks(&self) -> Vec<&'static str> {
        self.cgroups.lacks(&self.limits).into_iter().map(|one| one.name()).collect()
    }

    pub(super) fn clear(&self) {
        self.cgroups.clear();
    }

    pub(super) async fn prepare(&self, run: &Run) -> Result<Confined, Failure> {
        let mut confined = Confined::default();
        if !self.limits.is_none() {
            let group = self.cgroups.make(&self.limits);
            let group = group.map_err(|error| Failure::io("a control group could not be made", error))?;
            confined.chain = self.shell(&group);
            confined.group = Some(group);
        }
        if let Some(user) = self.user {
            user.take(run, &self.work_dir).await?;
            let id = |option: &str, id: u32| OsString::from(format!("--{option}={id}"));
            confined.chain.extend(["/usr/bin/setpriv".into(), id("reuid", user.id), id("regid", user.group)]);
            confined.chain.extend(["--clear-groups", "--no-new-privs", "--"].map(OsString::from));
        }
        Ok(confined)
    }

    /// A shell that joins the groups, sets the limits that have no group, and executes the rest of the chain.
    fn shell(&self, group: &Cgroup) -> Vec<OsString> {
        let files = group.join_files();
        let mut script = format!("echo 0 >\"$1\" || exit {NOT_JOINED}; shift; ").repeat(files.len());
        for lacking in self.cgroups.lacks(&self.limits) {
            script.push_str(&rlimit(lacking, &self.limits));
        }
        script.push_str("exec \"$@\"");
        let shell = [SHELL, "-c", &script, "sh"].map(OsString::from);
        shell.into_iter().chain(files.into_iter().map(OsString::from)).collect()
    }
}

impl Confined {
    /// The end of a command, with failures of the confinement distinguished.
    pub(super) fn end(&self, end: End, run: &Run) -> Result<End, Failure> {
        let End::Exited(code) = end else { return Ok(end) };
        let Some(group) = self.group.as_ref().filter(|_| code != 0) else { return Ok(end) };
        if code == NOT_JOINED {
            let said = local::beginning(&run.stderr);
            if said.starts_with("sh: ") {
                return Err(Failure::broken(format!("the command could not be held to its limits: {said}")));
            }
        }
        Ok(if group.ran_out_of_memory() { End::OutOfMemory } else { end })
    }
}

/// The shell command in place of a control group; there is none for processor time. Shells have two names for the limit of
/// processes.
fn rlimit(controller: Controller, limits: &Limits) -> String {
    match (controller, limits.memory_bytes, limits.processes) {
        (Controller::Memory, Some(bytes), _) => format!("ulimit -v {}; ", bytes.div_ceil(1024)),
        (Controller::Pids, _, Some(processes)) => {
            format!("ulimit -u {processes} 2>/dev/null || ulimit -p {processes}; ")
        }
        _ => String::new(),
    }
}
