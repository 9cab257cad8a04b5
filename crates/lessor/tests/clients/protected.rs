//! Clients that others wrote, and a worker on another host, against a server with TLS, client certificates and API keys.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::bazel::Bazel;
use crate::ccache;
use crate::support::certificates::Authority;
use crate::support::documented::{bazel_flags, ccache_storage};
use crate::support::protected::{Protected, path_text};
use crate::support::{Ran, Server, lessor};
use crate::workspace::Workspace;
use crate::{client, succeeded};

/// Debian's Bazel has no ALPN of its own. With netty's native library it has, under the name by which netty looks for it.
fn with_alpn(bazel: Bazel, files: &Path) -> Bazel {
    let libraries = fs::read_dir("/usr/lib").unwrap().map(|entry| entry.unwrap().path());
    let mut libraries = libraries.map(|directory| directory.join("jni/libnetty-tcnative.so"));
    let library: PathBuf = libraries.find(|file| file.exists()).expect("libnetty-tcnative-jni is installed");
    fs::copy(library, files.join("libnetty_tcnative.so")).unwrap();
    let path = files.display();
    bazel.with_startup_options([format!("--host_jvm_args=-Djava.library.path={path}")])
}

#[test]
fn x21_bazel_builds_over_grpcs_with_a_client_certificate_and_a_key() {
    let protected = Protected::start(&[]);
    let bazel = with_alpn(Bazel::new(&Workspace::cpp(2)), protected.files.path());
    let flags = |key: &str| {
        let [executor, ca, header] = bazel_flags(&protected.server.address(), &protected.file("ca.pem"), key);
        let [certificate, private] = certificate_flags(protected.files.path(), "client");
        [executor, ca, header, certificate, private]
    };
    let (builder, reader) = (flags(&protected.key(&["builder"])), flags(&protected.key(&["reader"])));
    let (builder, reader) = (builder.each_ref().map(|flag| &**flag), reader.each_ref().map(|flag| &**flag));
    let actions = bazel.test(&builder).all("remote");
    bazel.clean();
    assert_eq!(bazel.test(&builder).all("remote cache hit"), actions);
    bazel.clean();
    let refused = bazel.spawn_build(&reader).wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && text.contains("PERMISSION_DENIED"), "{text}");
}

/// The flags of Bazel for a client certificate.
fn certificate_flags(files: &Path, name: &str) -> [String; 2] {
    let file = |ending: &str| files.join(format!("{name}.{ending}")).display().to_string();
    [format!("--tls_client_certificate={}", file("pem")), format!("--tls_client_key={}", file("key"))]
}

/// Rules map certificates to identities, so that neither Bazel nor the worker has a key.
#[test]
fn x21_bazel_builds_over_grpcs_with_a_client_certificate_alone() {
    let (files, dir) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let ca = Authority::new("ours");
    ca.write(files.path(), "ca.pem");
    let names = ["server", "builder", "worker", "reader"];
    names.iter().for_each(|name| drop(ca.issue(files.path(), name)));
    let rule = |name: &str| {
        format!(
            "[[auth.certificates]]\ncommon_name = \"{name}\"\ntenants = [\"default\"]\nroles = [\"{name}\"]\n"
        )
    };
    let config = format!(
        "[server]\naddress = \"127.0.0.1:0\"\n[server.tls]\ncertificate = \"FILES/server.pem\"\n\
         key = \"FILES/server.key\"\nclient_ca = \"FILES/ca.pem\"\n[data]\ndir = \"DIR/data\"\nsegment_mib = 32\n\
         preallocate_mib = 1\n[auth]\nmode = \"keys\"\n{}",
        names[1..].iter().map(|name| rule(name)).collect::<String>()
    );
    let config = config.replace("FILES", &path_text(files.path())).replace("DIR", &path_text(dir.path()));
    fs::write(files.path().join("lessor.toml"), config).unwrap();
    let mut serve = lessor(&["serve", "--init", "--config"]);
    serve.arg(files.path().join("lessor.toml"));
    let server = Server::start_by(serve, dir);
    let mut daemon = lessor(&["worker", "daemon", "--backend", "host", "--server-url", &server.url()]);
    daemon.arg("--work-dir").arg(files.path().join("work")).arg("--ca-file").arg(files.path().join("ca.pem"));
    daemon.arg("--client-certificate").arg(files.path().join("worker.pem"));
    daemon.arg("--client-key").arg(files.path().join("worker.key"));
    let _worker = Killed(daemon.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap());
    let bazel = with_alpn(Bazel::new(&Workspace::cpp(2)), files.path());
    let flags = |name: &str| {
        let [executor, ca, _] = bazel_flags(&server.address(), &path_text(&files.path().join("ca.pem")), "");
        let [certificate, private] = certificate_flags(files.path(), name);
        [executor, ca, certificate, private]
    };
    let (builder, reader) = (flags("builder"), flags("reader"));
    let (builder, reader) = (builder.each_ref().map(|flag| &**flag), reader.each_ref().map(|flag| &**flag));
    let actions = bazel.test(&builder).all("remote");
    assert!(actions > 0);
    bazel.clean();
    assert_eq!(bazel.test(&builder).all("remote cache hit"), actions);
    bazel.clean();
    for (flags, refusal) in [(&reader[..], "PERMISSION_DENIED"), (&builder[..2], "UNAUTHENTICATED")] {
        let refused = bazel.spawn_build(flags).wait_with_output().unwrap();
        let text = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(!refused.status.success() && text.contains(refusal), "{text}");
    }
}

/// A proxy that adds TLS and the client certificate, stopped when it is dropped.
struct Stunnel {
    process: Child,
    port: u16,
}

impl Stunnel {
    fn start(protected: &Protected) -> Stunnel {
        // Free when it was bound, and used at once.
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let settings = format!(
            "foreground = yes\npid =\n[lessor]\nclient = yes\naccept = 127.0.0.1:{port}\nconnect = {}\n\
             CAfile = {}\ncert = {}\nkey = {}\nverifyChain = yes\ncheckIP = 127.0.0.1\n",
            protected.server.address(),
            protected.file("ca.pem"),
            protected.file("client.pem"),
            protected.file("client.key"),
        );
        let file = protected.files.path().join("stunnel.conf");
        fs::write(&file, settings).unwrap();
        let mut command = Command::new("stunnel");
        command.arg(file).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut proxy = Stunnel { process: command.spawn().unwrap(), port };
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(proxy.process.try_wait().unwrap().is_none(), "stunnel has ended");
            std::thread::yield_now();
        }
        proxy
    }
}

impl Drop for Stunnel {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// ccache speaks no TLS, so a proxy does it, and no header but HTTP basic.
#[test]
fn x21_ccache_shares_objects_through_a_tls_proxy_with_http_basic() {
    let protected = Protected::start(&["--no-worker"]);
    let proxy = Stunnel::start(&protected);
    let storage = |key: &str| ccache_storage(key, proxy.port);
    let [writer, reader] = ["cache-writer", "reader"].map(|role| storage(&protected.key(&[role])));
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("a.cc"), "int answer() { return 42; }\n").unwrap();
    // What may not be stored is not found later.
    for (machine, storage, hits) in [("first", &reader, 0), ("second", &writer, 0), ("third", &writer, 1)] {
        let compiled = ccache::compile(storage, dir.path(), machine);
        assert_eq!(compiled.stat("direct_cache_hit"), hits, "{machine}: {}", compiled.stats);
    }
}

#[test]
fn x21_curl_works_with_a_key_as_a_token_and_as_a_password() {
    let protected = Protected::start(&["--no-worker"]);
    let curl = |arguments: &[&str]| {
        let mut command = client("curl", protected.files.path());
        command.args(["-s", "-o", "-", "-w", "%{http_code}", "--cacert", &protected.file("ca.pem")]);
        command.args(["--cert", &protected.file("client.pem"), "--key", &protected.file("client.key")]);
        succeeded(&command.args(arguments).output().unwrap())
    };
    let url = format!("{}/v1/tasks", protected.server.url());
    let key = protected.key(&["submitter"]);
    let (token, password) = (format!("authorization: Bearer {key}"), format!("anyone:{key}"));
    let body = r#"{"queue":"q","payload":1}"#;
    for credential in [["-H", &token], ["-u", &password]] {
        let answer = curl(&[&credential[..], &["-d", body, &url]].concat());
        assert!(answer.contains("WAITING") && answer.ends_with("201"), "{answer}");
    }
    for credential in [&[][..], &["-u", "anyone:lsk_0"]] {
        let answer = curl(&[credential, &["-d", body, &url]].concat());
        assert!(answer.contains("unauthenticated") && answer.ends_with("401"), "{answer}");
    }
}

/// Two hosts with a network between them, removed when they are dropped.
struct Hosts {
    names: [String; 2],
}

/// Addresses for documentation, which exist in these namespaces only.
const SERVER_ADDRESS: &str = "192.0.2.1";
const WORKER_ADDRESS: &str = "192.0.2.2";

impl Hosts {
    fn new() -> Hosts {
        let names = ["server", "worker"].map(|name| format!("lessor-{}-{name}", std::process::id()));
        let hosts = Hosts { names };
        let [server, worker] = &hosts.names;
        ip(&format!("netns add {server}"));
        ip(&format!("netns add {worker}"));
        ip(&format!("link add eth0 netns {server} type veth peer name eth0 netns {worker}"));
        for (host, address) in [(server, SERVER_ADDRESS), (worker, WORKER_ADDRESS)] {
            ip(&format!("-n {host} addr add {address}/30 dev eth0"));
            ip(&format!("-n {host} link set lo up"));
            ip(&format!("-n {host} link set eth0 up"));
        }
        hosts
    }

    /// The same command on the host of the server or of the worker.
    fn on(&self, host: usize, command: &Command) -> Command {
        let mut wrapped = Command::new("ip");
        wrapped.args(["netns", "exec", &self.names[host]]);
        wrapped.arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => wrapped.env(name, value),
                None => wrapped.env_remove(name),
            };
        }
        wrapped
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for name in &self.names {
            let _ = Command::new("ip").args(["netns", "del", name]).status();
        }
    }
}

#[track_caller]
fn ip(arguments: &str) {
    succeeded(&Command::new("ip").args(arguments.split(' ')).output().unwrap());
}

/// A process that is killed when it is dropped.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn x21_a_worker_on_another_host_runs_actions_with_a_certificate_and_a_key() {
    let hosts = Hosts::new();
    let listen = format!("{SERVER_ADDRESS}:8980");
    let protected = Protected::start_at(&listen, &["--no-worker"], |command| hosts.on(0, &command));
    let [worker_key, builder_key] =
        ["worker", "builder"].map(|role| protected.key_by(&[role], |command| hosts.on(1, &command)));
    let mut daemon = protected.command(&["worker", "daemon", "--backend", "host", "--work-dir"]);
    daemon.arg(protected.files.path().join("work")).env("LESSOR_API_KEY", &worker_key);
    daemon.args(["--server-url", &protected.server.url()]);
    let log = fs::File::create(protected.files.path().join("worker.log")).unwrap();
    let mut daemon = hosts.on(1, &daemon);
    let _worker = Killed(daemon.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().unwrap());
    let run = |key: Option<&str>| {
        let mut command =
            protected.command(&["run", "-q", "--", "sh", "-c", "ip -o addr || hostname -I; echo ran"]);
        if let Some(key) = key {
            command.env("LESSOR_API_KEY", key);
        }
        Ran::from(hosts.on(1, &command).output().unwrap())
    };
    let ran = run(Some(&builder_key));
    let log = fs::read_to_string(protected.files.path().join("worker.log")).unwrap();
    assert!(ran.code == 0 && ran.stdout.ends_with("ran\n"), "{ran:?}\n{log}");
    run(Some(&worker_key)).fails(125, &["the role builder"]);
    run(None).fails(125, &["API key"]);
}
