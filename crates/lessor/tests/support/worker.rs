//! A coordinator and a worker in processes of their own, so that one can be killed without the other.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use super::{Server, lessor};

/// The command of a coordinator without a worker, with its data below the directory.
pub(crate) fn coordinator(dir: &Path, listen: &str) -> Command {
    let mut command = lessor(&[
        "up",
        "--no-worker",
        "--segment-mib",
        "32",
        "--preallocate-mib",
        "1",
        "--listen",
        listen,
        "--data",
    ]);
    command.arg(dir.join("data"));
    command
}

/// A worker in a process of its own, killed when it is dropped.
pub(crate) struct Worker(Child);

impl Worker {
    pub(crate) fn start(server: &Server) -> Worker {
        Worker::start_with(server, &[])
    }

    pub(crate) fn start_with(server: &Server, arguments: &[&str]) -> Worker {
        let place = server.data().with_file_name("worker");
        let mut command =
            lessor(&["worker", "daemon", "--id", "w1", "--slots", "4", "--server-url", &server.url()]);
        command
            .args(arguments)
            .arg("--work-dir")
            .arg(&place)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        Worker(command.spawn().unwrap())
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
