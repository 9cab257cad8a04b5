//! Finds the tools that checks and tests need beyond cargo, and installs missing tools by package name.
//!
//! Every installation is printed, and a tool that cannot be installed is an error: a test that is skipped because a
//! tool is missing would look like a test that passed.

use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::steps::run;

/// A program that a test runs, a command that shows whether the program is installed, and its Debian package.
struct Tool {
    name: &'static str,
    probe: &'static [&'static str],
    package: &'static str,
    needed_for: &'static str,
}

const TEST_TOOLS: &[Tool] = &[
    Tool {
        name: "faketime",
        probe: &["faketime", "--version"],
        package: "faketime",
        needed_for: "starting the server with another wall clock",
    },
    Tool {
        name: "mount",
        probe: &["mount", "--version"],
        package: "mount",
        needed_for: "a small file system that can be filled",
    },
    Tool {
        name: "mkfs.ext4",
        probe: &["mkfs.ext4", "-V"],
        package: "e2fsprogs",
        needed_for: "a file system that becomes read-only",
    },
    Tool {
        name: "curl",
        probe: &["curl", "--version"],
        package: "curl",
        needed_for: "the commands of README.md",
    },
    Tool {
        name: "python3",
        probe: &["python3", "-c", "import ensurepip, venv"],
        package: "python3-venv",
        needed_for: "the Python SDK",
    },
    Tool {
        name: "bazel",
        probe: &["bazel", "--version"],
        package: "bazel-bootstrap",
        needed_for: "remote builds",
    },
    Tool {
        name: "libnetty-tcnative",
        probe: &["sh", "-c", "test -e /usr/lib/*/jni/libnetty-tcnative.so"],
        package: "libnetty-tcnative-jni",
        needed_for: "remote builds over TLS",
    },
    Tool {
        name: "stunnel",
        probe: &["which", "stunnel"],
        package: "stunnel4",
        needed_for: "clients that speak no TLS",
    },
    Tool { name: "ip", probe: &["ip", "-V"], package: "iproute2", needed_for: "a worker on another host" },
    Tool {
        name: "iptables",
        probe: &["iptables", "--version"],
        package: "iptables",
        needed_for: "partitions between hosts",
    },
    Tool {
        name: "bazel_skylib",
        probe: &["test", "-e", "/usr/share/bazel/tools/skylib/WORKSPACE"],
        package: "bazel-skylib",
        needed_for: "remote builds without downloads",
    },
    Tool {
        name: "platforms",
        probe: &["test", "-e", "/usr/share/bazel/tools/platforms/WORKSPACE"],
        package: "bazel-platforms",
        needed_for: "remote builds without downloads",
    },
    Tool {
        name: "g++",
        probe: &["g++", "--version"],
        package: "g++",
        needed_for: "the actions of remote builds",
    },
    Tool {
        name: "bwrap",
        probe: &["bwrap", "--version"],
        package: "bubblewrap",
        needed_for: "commands in a sandbox",
    },
    Tool {
        name: "dockerd",
        probe: &["dockerd", "--version"],
        package: "docker.io",
        needed_for: "commands in containers",
    },
    Tool {
        name: "podman",
        probe: &["podman", "--version"],
        package: "podman",
        needed_for: "commands in containers of Podman",
    },
    Tool {
        name: "runc",
        probe: &["runc", "--version"],
        package: "runc",
        needed_for: "the containers of both engines",
    },
    Tool {
        name: "busybox",
        probe: &["busybox", "true"],
        package: "busybox-static",
        needed_for: "the image of the test containers",
    },
    Tool {
        name: "ccache",
        probe: &["ccache", "--version"],
        package: "ccache",
        needed_for: "the cache over HTTP",
    },
    Tool {
        name: "promtool",
        probe: &["promtool", "--version"],
        package: "prometheus",
        needed_for: "checking the metrics",
    },
    Tool {
        name: "postgres",
        probe: &["sh", "-c", "ls /usr/lib/postgresql/*/bin/postgres"],
        package: "postgresql",
        needed_for: "the ledger in a database",
    },
    Tool {
        name: "psycopg",
        // The python3 of the path may be another one.
        probe: &["/usr/bin/python3", "-c", "import psycopg"],
        package: "python3-psycopg",
        needed_for: "the example of submitting in a transaction",
    },
    Tool {
        name: "redis-server",
        probe: &["redis-server", "--version"],
        package: "redis-server",
        needed_for: "the streams of waiting tasks",
    },
    Tool {
        name: "npm",
        probe: &["npm", "--version"],
        package: "npm",
        needed_for: "installing moon, a client of the cache",
    },
    Tool {
        name: "git",
        probe: &["git", "--version"],
        package: "git",
        needed_for: "the repository that moon requires",
    },
];

/// A component of the Rust toolchain that minimal installations leave out.
const RUST_COMPONENTS: &[(&str, &[&str])] =
    &[("rustfmt", &["cargo", "fmt", "--version"]), ("clippy", &["cargo", "clippy", "--version"])];

pub(crate) fn ensure_rust_components() -> Result<()> {
    for (component, probe) in RUST_COMPONENTS {
        if !runs(probe) {
            println!("installing the Rust component {component}");
            run(Command::new("rustup").args(["component", "add", component]))?;
        }
    }
    Ok(())
}

pub(crate) fn ensure_test_tools() -> Result<()> {
    let missing: Vec<&Tool> = TEST_TOOLS.iter().filter(|tool| !runs(tool.probe)).collect();
    if missing.is_empty() {
        println!("all tools are installed");
        return Ok(());
    }
    for tool in &missing {
        println!("{} is missing ({}); installing the package {}", tool.name, tool.needed_for, tool.package);
    }
    let packages: Vec<&str> = missing.iter().map(|tool| tool.package).collect();
    install(&packages)
        .with_context(|| format!("install by hand, as root: apt-get install {}", packages.join(" ")))?;
    match missing.iter().find(|tool| !runs(tool.probe)) {
        Some(tool) => bail!("{} does not run although the package {} is installed", tool.name, tool.package),
        None => Ok(()),
    }
}

/// Tries the present package lists first, and fetches new lists only when this fails.
fn install(packages: &[&str]) -> Result<()> {
    if run(apt_get(&["install", "--yes", "--no-install-recommends"]).args(packages)).is_ok() {
        return Ok(());
    }
    println!("fetching new package lists");
    run(&mut apt_get(&["update"]))?;
    run(apt_get(&["install", "--yes", "--no-install-recommends"]).args(packages))
}

fn apt_get(arguments: &[&str]) -> Command {
    let mut command = Command::new("apt-get");
    command
        .args(["-qq", "-o", "Acquire::Retries=3"])
        .args(arguments)
        .env("DEBIAN_FRONTEND", "noninteractive")
        .stdin(Stdio::null());
    command
}

/// Whether the program is installed and runs.
fn runs(probe: &[&str]) -> bool {
    let (program, arguments) = probe.split_first().expect("a probe names a program");
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::steps::render_command;

    #[test]
    fn a_missing_program_does_not_run() {
        assert!(!runs(&["lessor-no-such-program", "--version"]));
        assert!(runs(&["cargo", "--version"]));
    }

    #[test]
    fn commands_are_rendered_as_a_user_would_type_them() {
        assert_eq!(render_command(&apt_get(&["update"])), "`apt-get -qq -o Acquire::Retries=3 update`");
    }
}
