//! The real binary through TLS: server, worker, `lessor run`, the command line, and curl.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;

use rustix::process::Signal;
use serde_json::json;

use crate::support::certificates::{Authority, Files};
use crate::support::{Ran, Server, lessor};
use crate::support_worker::Worker;

/// The files of a server with TLS and its clients.
struct Keys {
    dir: tempfile::TempDir,
    ca: Authority,
    server: Files,
    client: Files,
}

impl Keys {
    fn new() -> Keys {
        let dir = tempfile::tempdir().unwrap();
        let ca = Authority::new("ours");
        let (server, client) = (ca.issue(dir.path(), "server"), ca.issue(dir.path(), "client"));
        ca.write(dir.path(), "ca.pem");
        Authority::new("another").write(dir.path(), "other.pem");
        Keys { dir, ca, server, client }
    }

    fn file(&self, name: &str) -> String {
        self.dir.path().join(name).to_str().unwrap().to_owned()
    }

    /// Starts a server that lets in clients with a certificate, and no others.
    fn start(&self, arguments: &[&str]) -> Server {
        let (certificate, key, ca) = (self.file("server.pem"), self.file("server.key"), self.file("ca.pem"));
        let tls = ["--tls-certificate", &certificate, "--tls-key", &key, "--tls-client-ca", &ca];
        Server::start_with(&[&tls[..], &["--tls-client-certificates", "required"], arguments].concat())
    }

    /// The flags of a client that is let in.
    fn flags(&self) -> [String; 6] {
        let (certificate, key) = (self.file("client.pem"), self.file("client.key"));
        ["--ca-file", &self.file("ca.pem"), "--client-certificate", &certificate, "--client-key", &key]
            .map(str::to_owned)
    }
}

fn run(server: &Server, arguments: &[&str], flags: &[String]) -> Ran {
    Ran::from(server.command(arguments).args(flags).output().unwrap())
}

#[test]
fn x21_the_command_line_run_and_the_embedded_worker_work_through_tls() {
    let keys = Keys::new();
    let mut server = keys.start(&[]);
    assert!(server.banner_line("The API: ").contains(&format!("{}/openapi.json", server.url())));
    run(&server, &["submit", "jobs", "1"], &keys.flags()).ok();
    let tasks = run(&server, &["task", "list", "--json"], &keys.flags()).ok();
    assert_eq!(tasks.json()["tasks"].as_array().unwrap().len(), 1);
    // The worker of the server needs no certificate of its own.
    let ran = Ran::from(
        server.command(&["run", "-q"]).args(keys.flags()).args(["--", "echo", "hello"]).output().unwrap(),
    );
    assert_eq!((ran.code, ran.stdout.as_str()), (0, "hello\n"), "{ran:?}");

    let others = ["--ca-file".to_owned(), keys.file("other.pem")];
    let untrusted = ["no trusted connection", "UnknownIssuer", "--ca-file"];
    run(&server, &["task", "list"], &others).fails(1, &untrusted);
    let run_untrusted = server.command(&["run", "-q"]).args(&others).args(["--", "true"]).output().unwrap();
    Ran::from(run_untrusted).fails(125, &untrusted);
    let nameless = ["--ca-file".to_owned(), keys.file("ca.pem")];
    run(&server, &["task", "list"], &nameless).fails(1, &["CertificateRequired", "--client-certificate"]);
}

#[test]
fn x21_a_worker_in_its_own_process_works_through_tls() {
    let keys = Keys::new();
    let server = keys.start(&["--no-worker"]);
    let file = keys.dir.path().join("worker.toml");
    let text = format!(
        "[worker]\nserver_url = \"grpcs://{}\"\nca_file = {:?}\nclient_certificate = {:?}\nclient_key = {:?}\n",
        server.address(),
        keys.dir.path().join("ca.pem"),
        keys.client.certificate,
        keys.client.key
    );
    std::fs::write(&file, text).unwrap();
    let worker = Worker::start(keys.dir.path(), &["--config", file.to_str().unwrap()]);
    let mut command = server.command(&["run", "-q", "--input", "."]);
    let inputs = keys.dir.path().join("inputs");
    std::fs::create_dir(&inputs).unwrap();
    std::fs::write(inputs.join("a"), vec![b'x'; 5_000_000]).unwrap();
    let ran = command.args(keys.flags()).args(["--", "wc", "-c", "a"]).current_dir(inputs).output().unwrap();
    assert_eq!(Ran::from(ran).ok().stdout, "5000000 a\n", "{}", worker.log());
    let list = run(&server, &["worker", "list", "--json"], &keys.flags()).ok();
    assert_eq!(list.json()["workers"].as_array().unwrap().len(), 1);
}

fn curl(arguments: &[&str]) -> (i32, String) {
    let output = Command::new("curl").args(["-s", "--max-time", "60"]).args(arguments).output().unwrap();
    (output.status.code().unwrap(), String::from_utf8(output.stdout).unwrap())
}

#[test]
fn x21_curl_needs_the_ca_and_the_client_certificate() {
    let keys = Keys::new();
    let server = keys.start(&["--no-worker"]);
    let url = format!("{}/v1/tasks", server.url());
    let (ca, other) = (keys.file("ca.pem"), keys.file("other.pem"));
    let (certificate, key) = (keys.file("client.pem"), keys.file("client.key"));
    let body = json!({"queue": "q", "payload": 1}).to_string();
    let identity = ["--cert", &certificate, "--key", &key];
    let (code, answer) = curl(&[&["--cacert", &ca], &identity[..], &[&url, "-d", &body]].concat());
    assert!(code == 0 && answer.contains("WAITING"), "{code} {answer}");
    let (code, _) = curl(&[&["--cacert", &other], &identity[..], &[&url]].concat());
    assert_eq!(code, 60, "the certificate cannot be verified");
    let (code, answer) = curl(&["--cacert", &ca, &url]);
    assert!(code != 0 && answer.is_empty(), "{code} {answer}");
    let (code, answer) = curl(&[&url.replace("https://", "http://")]);
    assert!(code == 0 && answer.starts_with("This port speaks TLS"), "{code} {answer}");
}

/// Starts a server with the rules of a file, beyond loopback.
fn serve_with_rules(keys: &Keys, rules: &str) -> Server {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("lessor.toml");
    let text = format!(
        "[server]\naddress = \"0.0.0.0:0\"\n[server.tls]\ncertificate = {:?}\nkey = {:?}\nclient_ca = {:?}\n\
         [data]\ndir = {:?}\nsegment_mib = 32\npreallocate_mib = 1\n[auth]\nmode = \"keys\"\n{rules}",
        keys.server.certificate,
        keys.server.key,
        keys.file("ca.pem"),
        dir.path().join("data")
    );
    std::fs::write(&file, text).unwrap();
    let mut command = lessor(&["serve", "--init", "--config"]);
    command.arg(file);
    Server::start_by(command, dir)
}

#[test]
fn x22_a_client_certificate_is_an_identity_by_the_rules_of_the_file() {
    let keys = Keys::new();
    let rules =
        "[[auth.certificates]]\ncommon_name = \"client\"\ntenants = [\"acme\"]\nroles = [\"submitter\"]\n";
    let server = serve_with_rules(&keys, rules);
    let port = server.address().rsplit_once(':').unwrap().1.to_owned();
    let url = format!("https://127.0.0.1:{port}/v1/tasks");
    let stranger = keys.ca.issue(keys.dir.path(), "stranger");
    let with = |files: &Files| [&files.certificate, &files.key].map(|file| file.to_str().unwrap().to_owned());
    let call = |identity: Option<&Files>, arguments: &[&str]| {
        let [certificate, key] = identity.map(with).unwrap_or_default();
        let identity = ["--cert", &certificate, "--key", &key];
        let identity = if certificate.is_empty() { &[][..] } else { &identity };
        curl(&[&["--cacert", &keys.file("ca.pem")], identity, &[&url], arguments].concat())
    };
    let body = json!({"queue": "q", "payload": 1}).to_string();
    let (code, answer) = call(Some(&keys.client), &["-d", &body]);
    assert!(code == 0 && answer.contains("WAITING"), "{code} {answer}");
    for identity in [None, Some(&stranger)] {
        let (code, answer) = call(identity, &["-d", &body]);
        assert!(code == 0 && answer.contains("\"unauthenticated\""), "{code} {answer}");
    }
    let (_, answer) = call(Some(&keys.client), &["-H", "lessor-tenant: other"]);
    assert!(answer.contains("the certificate of client is not for the tenant other"), "{answer}");
    // The command line needs no key with it.
    let url = format!("https://127.0.0.1:{port}");
    let ran =
        Ran::from(lessor(&["task", "list", "--json", "--url", &url]).args(keys.flags()).output().unwrap());
    assert_eq!(ran.ok().json()["tasks"].as_array().unwrap().len(), 1);
}

/// Whoever has one could do everything.
#[test]
fn a_required_client_certificate_alone_does_not_open_a_server_to_a_network() {
    let keys = Keys::new();
    let dir = tempfile::tempdir().unwrap();
    let mut command = lessor(&["up", "--no-worker", "--listen", "0.0.0.0:0", "--data"]);
    let (certificate, key, ca) = (keys.file("server.pem"), keys.file("server.key"), keys.file("ca.pem"));
    command.arg(dir.path().join("data"));
    command.args(["--tls-certificate", &certificate, "--tls-key", &key, "--tls-client-ca", &ca]);
    command.args(["--tls-client-certificates", "required"]);
    Ran::from(command.output().unwrap()).fails(1, &["without authentication", "[[auth.certificates]]"]);
}

/// How a real server is told that there are new files.
#[test]
fn x21_a_signal_replaces_the_certificate_and_a_broken_one_is_named_in_the_log() {
    let keys = Keys::new();
    let server = keys.start(&["--no-worker"]);
    std::fs::write(&keys.server.certificate, "no certificate").unwrap();
    server.signal(Signal::HUP);
    server.until_logged("the old certificate stays in use");
    assert!(server.log().contains("server.pem has no certificate in PEM"), "{}", server.log());
    run(&server, &["queue", "list"], &keys.flags()).ok();
    let other = Authority::new("another");
    let files = other.issue(Path::new(&keys.file("")), "server");
    other.write(keys.dir.path(), "other.pem");
    assert_eq!(files.key, keys.server.key);
    server.signal(Signal::HUP);
    server.until_logged("the new TLS certificate is in use");
    run(&server, &["queue", "list"], &keys.flags()).fails(1, &["no trusted connection"]);
    let mut flags = keys.flags();
    flags[1] = keys.file("other.pem");
    run(&server, &["queue", "list"], &flags).ok();
}

#[test]
fn a_server_with_unusable_tls_files_does_not_start() {
    let keys = Keys::new();
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let start = |certificate: &str, key: &str| {
        let mut command = lessor(&["up", "--listen", "127.0.0.1:0", "--data"]);
        command.arg(&data).args(["--tls-certificate", certificate, "--tls-key", key]);
        Ran::from(command.output().unwrap())
    };
    let (certificate, key) = (keys.file("server.pem"), keys.file("client.key"));
    start(&certificate, &key)
        .fails(1, &["client.key is not the private key of the certificate in", "server.pem"]);
    start(&keys.file("gone.pem"), &key).fails(1, &["cannot read", "gone.pem"]);
    assert!(!data.exists(), "nothing was created");
    let ran = Ran::from(lessor(&["up", "--tls-certificate", &certificate]).output().unwrap());
    ran.fails(2, &["--tls-key"]);
    keys.ca.write(dir.path(), "unused.pem");
}

#[test]
fn an_api_key_is_sent_and_never_in_plain_text_over_a_network() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("key");
    std::fs::write(&file, "lsk_of_file\n").unwrap();
    let file = file.to_str().unwrap();
    for (flags, variable, expected) in [
        (&["--api-key-file", file][..], None, "authorization: Bearer lsk_of_file"),
        (&[], Some(("LESSOR_API_KEY", "lsk_of_environment")), "authorization: Bearer lsk_of_environment"),
        (&[], Some(("LESSOR_API_KEY_FILE", file)), "authorization: Bearer lsk_of_file"),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let head = std::thread::spawn(move || {
            let stream = listener.accept().unwrap().0;
            let lines = BufReader::new(&stream).lines().map(Result::unwrap);
            let head: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
            let answer = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 13\r\n\r\n{\"queues\":[]}";
            (&stream).write_all(answer.as_bytes()).unwrap();
            head
        });
        let mut command = lessor(&["queue", "list", "--url", &url]);
        command.args(flags).envs(variable);
        let ran = Ran::from(command.output().unwrap()).ok();
        let head = head.join().unwrap();
        assert!(head.iter().any(|line| line == expected), "{head:?}");
        assert!(!format!("{ran:?}").contains("lsk_"), "{ran:?}");
    }
    for arguments in [&["queue", "list", "--url"][..], &["worker", "check", "--server-url"]] {
        let mut command = lessor(arguments);
        command.args(["http://192.0.2.1:8980", "--api-key-file", file]).current_dir(dir.path());
        let ran = Ran::from(command.output().unwrap());
        let refused = "not sent to 192.0.2.1 over plain http";
        assert!(ran.code != 0 && ran.stderr.contains(refused) && !ran.stderr.contains("lsk_"), "{ran:?}");
    }
}
