//! The Python SDK: its own tests against this server, its types, its wheel, and a worker for the tests that mix both.
//!
//! A missing `python3` fails them. What else they need is installed into a virtual environment below the target
//! directory, once.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};

fn package() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../sdk/python").canonicalize().unwrap()
}

/// Python with nothing of the caller's settings that could change what it does, and without traces in the sources.
fn python(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("LESSOR_")) {
        command.env_remove(name);
    }
    command.env("PYTHONDONTWRITEBYTECODE", "1").env("LESSOR_BIN", env!("CARGO_BIN_EXE_lessor"));
    command.current_dir(package()).stdin(Stdio::null());
    command
}

/// Python that finds the package, in its directory.
pub(crate) fn source() -> Command {
    let mut command = python("python3");
    command.env("PYTHONPATH", "src:tests");
    command
}

#[track_caller]
fn succeeds(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{command:?}\n{}\n{}", text(&output.stdout), text(&output.stderr));
    output
}

/// One test for each part, so that they run side by side and a failure says where to look.
fn unittest(module: &str, least: usize) {
    let output = succeeds(source().args(["-m", "unittest", module]));
    let text = String::from_utf8_lossy(&output.stderr);
    let ran = text.lines().find_map(|line| line.strip_prefix("Ran ")?.split(' ').next()?.parse().ok());
    assert!(ran.is_some_and(|ran: usize| ran >= least), "too few tests ran: {text}");
}

/// S0-3, S0-8, S0-13, S0-15, S0-16, S0-17, S0-21 to S0-25, as the names of its tests say.
#[test]
fn s0_python_keeps_the_contract_of_a_worker() {
    unittest("test_worker_contract", 13);
}

#[test]
fn python_workers_hear_every_signal() {
    unittest("test_drain", 1);
}

#[test]
fn python_handlers_get_what_they_were_promised_and_workers_drain() {
    unittest("test_worker", 27);
}

#[test]
fn python_commits_once_when_answers_are_lost_or_the_coordinator_dies() {
    unittest("test_lost_answers", 3);
}

/// S1-16, S1-21, S1-23, S1-36, S1-42, S1-51, S1-56, as the names of its tests say.
#[test]
fn s1_python_keeps_the_contract_of_a_push_target() {
    unittest("test_target", 15);
}

#[test]
fn python_submits_and_looks_at_tasks() {
    unittest("test_client", 13);
}

#[test]
fn python_keeps_api_keys_secret() {
    unittest("test_credentials", 4);
}

#[test]
fn python_counts_leases_by_its_own_clock() {
    unittest("test_clock", 5);
}

#[test]
fn python_pauses_within_bounds() {
    unittest("test_backoff", 3);
}

/// Builds the wheel as pip does, installs it where nothing else is, and checks every type against what was installed.
#[test]
fn python_is_a_typed_wheel() {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let venv = target.join("python");
    let tools = venv.join("bin/python");
    if !venv.join("bin/mypy").exists() {
        succeeds(python("python3").args(["-m", "venv", "--clear"]).arg(&venv));
        // The last one that checks for the oldest Python that we support.
        succeeds(python(&tools).args(["-m", "pip", "--quiet", "install", "mypy ~= 1.20"]));
    }
    let wheels = tempfile::tempdir_in(target).unwrap();
    succeeds(
        python(&tools)
            .args(["-m", "pip", "--quiet", "wheel", "--no-deps", "--wheel-dir"])
            .arg(wheels.path())
            .arg("."),
    );
    let wheel = wheels.path().join("lessor-0.1.0-py3-none-any.whl");
    succeeds(
        python(&tools).args(["-m", "pip", "--quiet", "install", "--force-reinstall", "--no-deps"]).arg(wheel),
    );
    let mypy = || {
        let mut mypy = python(&tools);
        mypy.args(["-m", "mypy", "--strict", "--python-version", "3.9", "--cache-dir"])
            .arg(target.join("mypy"));
        mypy
    };
    succeeds(&mut mypy());
    // Against the package as it was installed, so `py.typed` must be in it.
    succeeds(mypy().args(["--config-file=", "examples"]));
    let version =
        succeeds(python(&tools).args(["-c", "import lessor; print(lessor.__version__)"]).current_dir(target));
    assert_eq!(String::from_utf8_lossy(&version.stdout).trim(), env!("CARGO_PKG_VERSION"));
}

/// A worker of the Python SDK as a process of its own, that gives back what it gets.
pub(crate) struct PythonWorker(Child, BufReader<ChildStdout>);

/// It ends when its standard input does, and then says how its attempts ended.
const WORKER: &str = "
import logging, sys, threading
import lessor
logging.disable(logging.CRITICAL)
verdicts = []
worker = lessor.Worker(concurrency=4, on_outcome=lambda task, outcome: verdicts.append(outcome.verdict.value))
worker.handler(sys.argv[1])(lambda task: task.payload)
threading.Thread(target=lambda: (sys.stdin.read(), worker.stop()), daemon=True).start()
worker.run()
print('\\n'.join(verdicts))
";

/// A push target of the Python SDK as a process of its own, that gives back what it gets. It says its port, ends when its
/// standard input does, and then says how its attempts ended.
const TARGET: &str = "
import http.server, logging, sys, threading
import lessor
logging.disable(logging.CRITICAL)
verdicts = []
target = lessor.Target(lambda task: task.payload, on_outcome=lambda task, outcome: verdicts.append(outcome.verdict.value))
class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers['content-length']))
        self.send_response(target.accept(self.headers.items(), body).status)
        self.send_header('content-length', '0')
        self.end_headers()
    def log_message(self, *arguments):
        pass
server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Handler)
print(server.server_port, flush=True)
threading.Thread(target=server.serve_forever, daemon=True).start()
threading.Thread(target=lambda: (sys.stdin.read(), target.stop()), daemon=True).start()
target.run()
print('\\n'.join(verdicts))
";

impl PythonWorker {
    pub(crate) fn start(url: &str, queue: &str) -> PythonWorker {
        let mut command = source();
        command.env("LESSOR_URL", url).args(["-c", WORKER, queue]);
        PythonWorker::spawn(command)
    }

    /// A push target, and where it listens.
    pub(crate) fn start_target() -> (PythonWorker, String) {
        let mut command = source();
        command.args(["-c", TARGET]);
        let mut target = PythonWorker::spawn(command);
        let mut port = String::new();
        target.1.read_line(&mut port).unwrap();
        (target, format!("http://127.0.0.1:{}/", port.trim()))
    }

    fn spawn(mut command: Command) -> PythonWorker {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        PythonWorker(child, stdout)
    }

    /// Ends it, and gives the verdicts.
    pub(crate) fn end(mut self) -> Vec<String> {
        drop(self.0.stdin.take());
        let verdicts = self.1.by_ref().lines().map(Result::unwrap).filter(|line| !line.is_empty()).collect();
        assert!(self.0.wait().unwrap().success());
        verdicts
    }
}

impl Drop for PythonWorker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
