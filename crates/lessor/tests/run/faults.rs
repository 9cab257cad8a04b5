//! Servers that are not there, that are killed, that refuse; and users who change their minds.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};

use crate::support::gates::Gates;
use crate::support::worker::{Worker, coordinator};
use crate::support::{Ran, Server, lessor};
use crate::{command, run};

#[test]
fn a_killed_and_restarted_coordinator_does_not_matter() {
    let (gates, at) = (Gates::open(), tempfile::tempdir().unwrap());
    let dir = tempfile::tempdir().unwrap();
    let mut server = Server::start_by(coordinator(dir.path(), "127.0.0.1:0"), dir);
    let address = server.address();
    let _worker = Worker::start(&server);
    let script = format!("{}; echo $pass; echo made > out", gates.script(0));
    let mut command = command(&server, at.path(), &["--output", "out"], &script);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let arrival = gates.next(&mut child).expect("it runs");
    server.kill();
    let server = server.start_again(|dir| coordinator(dir, &address));
    arrival.let_through();
    let ran = Ran::from(child.wait_with_output().unwrap());
    assert_eq!((ran.code, ran.stdout.as_str()), (0, "pass\n"), "{ran:?}");
    assert!(ran.stderr.contains("asked again"), "{ran:?}");
    assert!(gates.is_quiet(), "it ran once");
    assert_eq!(fs::read_to_string(at.path().join("out")).unwrap(), "made\n");
    drop(server);
}

#[test]
fn an_interrupt_cancels_the_command() {
    let (gates, at) = (Gates::open(), tempfile::tempdir().unwrap());
    let server = Server::start_with(&["--backend", "host"]);
    for (number, (signal, code)) in [(Signal::INT, 130), (Signal::TERM, 143)].into_iter().enumerate() {
        let mut command = command(&server, at.path(), &["--output", "out"], &gates.script(number));
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let arrival = gates.next(&mut child).expect("it runs");
        kill_process(Pid::from_child(&child), signal).unwrap();
        let ran = Ran::from(child.wait_with_output().unwrap());
        assert_eq!((ran.code, ran.stdout.as_str()), (code, ""), "{ran:?}");
        assert!(ran.stderr.contains("the command is cancelled"), "{ran:?}");
        let tasks = server.get("/v1/tasks?queue=exec");
        let newest = tasks["tasks"].as_array().unwrap().iter().find(|task| task["state"] != "COMPLETED");
        let id = newest.unwrap()["taskId"].as_str().unwrap().to_owned();
        let ended = server.get(&format!("/v1/tasks/{id}?waitMs=30000"));
        assert_eq!(ended["state"], "DEAD", "{ended}");
        drop(arrival);
    }
    assert_eq!(fs::read_dir(at.path()).unwrap().count(), 0, "nothing is left behind");
}

#[test]
fn no_server_is_said_at_once_and_a_foreign_one_too() {
    let ran = Ran::from(lessor(&["run", "--url", "http://127.0.0.1:1", "--", "true"]).output().unwrap());
    ran.fails(125, &["no server answers at http://127.0.0.1:1", "refused", "lessor up"]);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let _ = stream.unwrap().write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi");
        }
    });
    let ran = Ran::from(lessor(&["run", "--url", &url, "--", "true"]).output().unwrap());
    ran.fails(125, &[&url, "no server"]);
}

#[test]
fn a_cache_that_executes_nothing_says_so() {
    let server = served("[capabilities]\nexec_enabled = false\n");
    server.run(&["run", "--", "true"]).fails(125, &["a cache only"]);
}

#[test]
fn r37_a_platform_that_no_worker_offers_is_refused_by_its_property() {
    let server = served("[execution.scheduler]\nworker_grace_seconds = 1\n");
    server.run(&["run", "--", "true"]).fails(125, &["no worker is registered"]);
    let _worker = Worker::start(&server);
    server.until_a_worker_asked();
    let ran = server.run(&["run", "--platform", "OSFamily=linux", "--", "echo", "it fits"]).ok();
    assert_eq!(ran.stdout, "it fits\n");
    let ran = server.run(&["run", "--platform", "OSFamily=plan9", "--", "true"]);
    ran.fails(125, &["OSFamily=plan9", "registered worker"]);
    let tasks = server.get("/v1/tasks?queue=exec");
    assert_eq!(tasks["tasks"].as_array().unwrap().len(), 3, "no upload helps, so nothing is tried again");
}

#[test]
fn who_waits_for_a_worker_is_told_so() {
    let (server, at) = (served(""), tempfile::tempdir().unwrap());
    let mut command = command(&server, at.path(), &[], "true");
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let notice = lines.map(Result::unwrap).find(|line| line.contains("waits for a worker"));
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(notice.is_some(), "it ended and never said so");
}

#[test]
fn wrong_usage_is_refused_with_a_hint() {
    for (arguments, expected) in [
        (&["--output", "/etc/passwd", "--", "true"][..], "absolute"),
        (&["--output", "../x", "--", "true"], "must stay"),
        (&["--env", "novalue", "--", "true"], "NAME=VALUE"),
        (&["--timeout", "5", "--", "true"], "needs a unit"),
        (&["--timeout", "0s", "--", "true"], "longer than nothing"),
        (&[], "COMMAND"),
    ] {
        let ran = Ran::from(lessor(&["run"]).args(arguments).output().unwrap());
        ran.fails(2, &[expected]);
    }
}

#[test]
fn help_names_the_exit_codes_and_where_outputs_go() {
    let help = Ran::from(lessor(&["run", "--help"]).output().unwrap()).ok().stdout;
    for part in ["124", "125", "130", "--output-dir", "not run again"] {
        assert!(help.contains(part), "{part}: {help}");
    }
}

#[test]
fn an_instance_is_a_workspace_with_workers_of_its_own() {
    let server = served("[execution.scheduler]\nworker_grace_seconds = 1\n");
    let _worker = Worker::start_with(&server, &["--instance", "default"]);
    server.until_a_worker_asked();
    server.run(&["run", "--", "true"]).ok();
    server.run(&["run", "--instance", "other", "--", "true"]).fails(125, &["instance"]);
    let at = tempfile::tempdir().unwrap();
    run(&server, at.path(), &["--instance", "a b/c"], "true").fails(125, &["instance_name"]);
}

/// A coordinator without a worker, with this in its configuration.
fn served(more: &str) -> Server {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let server = "[server]\naddress = \"127.0.0.1:0\"\n";
    let text = format!(
        "{server}[data]\ndir = {:?}\nsegment_mib = 32\npreallocate_mib = 1\n{more}",
        data.to_str().unwrap()
    );
    let config = dir.path().join("lessor.toml");
    fs::write(&config, text).unwrap();
    let mut command = lessor(&["serve", "--init", "--config"]);
    command.arg(&config);
    Server::start_by(command, dir)
}
