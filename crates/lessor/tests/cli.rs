//! The client commands, as their users run them: the real binary against a real server, and where a server must
//! misbehave, against a fake one with scripted answers.

mod support;

use std::io::{BufRead, BufReader};

use serde_json::{Value, json};
use support::fake::{Fake, Reply};
use support::{Ran, Server, lessor};

/// Submits with `--json` and returns the task's id.
fn submit(server: &Server, arguments: &[&str]) -> String {
    let answer = server.run(&[&["submit", "--json"], arguments].concat()).ok().json();
    assert_eq!(answer["state"], "WAITING");
    answer["taskId"].as_str().unwrap().to_owned()
}

fn get(server: &Server, id: &str) -> Value {
    server.run(&["task", "get", id, "--json"]).ok().json()
}

fn list(server: &Server, arguments: &[&str]) -> Vec<Value> {
    let answer = server.run(&[&["task", "list", "--json"], arguments].concat()).ok().json();
    answer["tasks"].as_array().unwrap().clone()
}

#[test]
fn a_submitted_task_has_what_the_options_say() {
    let server = Server::start();
    let output = server.run(&["submit", "hello", r#"{"name":"world"}"#]).ok();
    assert!(output.stdout.starts_with("Submitted ") && output.stdout.ends_with(" to hello.\n"), "{output:?}");

    #[rustfmt::skip]
    let id = submit(&server, &[
        "hello", "-7", "--priority", "-3", "--delay", "1h", "--dedup-key", "k", "--max-attempts", "9",
        "--property", "os=linux", "--property", "arch=a=b", "--deadline", "2h", "--timeout", "5m", "--run-id", "r",
        "--asset-id", "a", "--task-key", "t", "--resources", r#"{"cpu":1}"#, "--lease", "2m",
        "--backoff-initial", "5s",
    ]);
    let task = get(&server, &id);
    let expected = json!({
        "taskId": id, "queue": "hello", "state": "WAITING", "payload": -7, "priority": -3, "dedupKey": "k",
        "maxAttempts": 9, "properties": {"os": "linux", "arch": "a=b"}, "timeoutMs": 300_000, "runId": "r",
        "assetId": "a", "taskKey": "t", "resources": {"cpu": 1},
    });
    for (name, value) in expected.as_object().unwrap() {
        assert_eq!(task[name], *value, "{name}");
    }
    let text = server.run(&["task", "get", &id]).ok().stdout;
    for part in ["WAITING", "0 of 9", "in 59 min", "os=linux", "5m", "payload\n-7\n"] {
        assert!(text.contains(part), "{part:?} is missing in {text}");
    }
    assert!(!text.contains('\u{1b}'), "colours are for terminals");
}

#[test]
fn a_released_attempt_is_not_counted_and_a_purged_task_says_how_it_ended() {
    let server = Server::start();
    server.run(&["queue", "set", "q", "--retention", "0s"]).ok();
    let id = submit(&server, &["q", "1"]);
    let lease = server.lease("q");
    server.post(
        &format!("/v1/leases/{}/release", lease["leaseId"].as_str().unwrap()),
        json!({"workerId": "w1"}),
    );
    let lease = server.lease("q");
    let text = server.run(&["task", "get", &id]).ok().stdout;
    assert!(text.contains("1 of 3, not counting 1 released"), "{text}");
    server.complete(&lease, json!(1));
    // A start purges before it serves.
    let server = server.crash_and_restart();
    for command in ["get", "history", "cancel"] {
        let ended = format!("task {id} ended COMPLETED at 20");
        server
            .run(&["task", command, &id])
            .fails(1, &[&ended, "and was purged at 20", "task_purged, HTTP 410"]);
    }
}

#[test]
fn a_payload_comes_from_the_command_line_a_file_or_standard_input() {
    let server = Server::start();
    let file = server.data().with_file_name("payload.json");
    std::fs::write(&file, "  [1, 2]\n").unwrap();
    let from_file = submit(&server, &["q", &format!("@{}", file.display())]);
    assert_eq!(get(&server, &from_file)["payload"], json!([1, 2]));
    let from_input = server.run_with(&["submit", "q", "-", "--json"], "\"a\"\n").ok().json();
    assert_eq!(get(&server, from_input["taskId"].as_str().unwrap())["payload"], "a");
    assert_eq!(get(&server, &submit(&server, &["q"]))["payload"], Value::Null);
}

#[test]
fn a_dedup_key_gives_the_same_task_and_refuses_another() {
    let server = Server::start();
    let id = submit(&server, &["q", "1", "--dedup-key", "k"]);
    let again = server.run(&["submit", "q", "1", "--dedup-key", "k"]).ok();
    assert_eq!(again.stdout, format!("Task {id} exists already, WAITING.\n"));
    server.run(&["submit", "q", "2", "--dedup-key", "k"]).fails(1, &["dedup_conflict, HTTP 409"]);
    assert_ne!(submit(&server, &["q", "1"]), submit(&server, &["q", "1"]), "keys of our own making differ");
}

#[test]
fn waiting_shows_the_result_and_ends_with_zero() {
    let server = Server::start();
    let waiting = server.spawn(&["submit", "q", "1", "--wait"]);
    server.complete(&server.lease("q"), json!({"sum": 3}));
    let ran = Ran::from(waiting.wait_with_output().unwrap()).ok();
    assert_eq!(ran.stdout, "{\n  \"sum\": 3\n}\n");
    assert!(ran.stderr.contains("Submitted") && ran.stderr.contains("COMPLETED on attempt 1"), "{ran:?}");
}

#[test]
fn waiting_for_a_task_that_fails_ends_with_five() {
    let server = Server::start();
    let waiting = server.spawn(&["submit", "q", "1", "--wait"]);
    server.fail(&server.lease("q"), "no such\u{1b}[2J\naddress\n");
    let ran = Ran::from(waiting.wait_with_output().unwrap());
    ran.fails(5, &["FAILED on attempt 1", "USER_CODE", "no such\\u{1b}[2J address"]);

    let waiting = server.spawn(&["submit", "q", "1", "--wait", "--json"]);
    server.fail(&server.lease("q"), "again");
    let ran = Ran::from(waiting.wait_with_output().unwrap());
    assert_eq!((ran.code, &ran.json()["state"]), (5, &json!("FAILED")));
}

#[test]
fn who_waits_for_a_task_that_nobody_takes_is_told_so() {
    let server = Server::start();
    let mut waiting = server.spawn(&["submit", "q", "1", "--wait"]);
    let mut lines = BufReader::new(waiting.stderr.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.any(|line| line.contains("no worker has taken it yet")), "it ended and never said so");
    server.complete(&server.lease("q"), json!("done"));
    assert_eq!(lines.filter(|line| line.contains("COMPLETED")).count(), 1);
    assert_eq!(Ran::from(waiting.wait_with_output().unwrap()).ok().stdout, "\"done\"\n");
}

#[test]
fn a_number_that_is_none_is_refused_and_no_default_is_taken() {
    for arguments in
        [["queue", "set", "q", "--backoff-factor", "nan"], ["submit", "q", "1", "--backoff-jitter", "inf"]]
    {
        Ran::from(lessor(&arguments).output().unwrap()).fails(2, &["must be a number"]);
    }
}

#[test]
fn waiting_goes_on_across_a_crash_of_the_server() {
    let server = Server::start();
    let waiting = server.spawn(&["submit", "q", "1", "--wait"]);
    let lease = server.lease("q");
    let server = server.crash_and_restart();
    server.complete(&lease, json!("done"));
    assert_eq!(Ran::from(waiting.wait_with_output().unwrap()).ok().stdout, "\"done\"\n");
}

#[test]
fn a_batch_longer_than_a_request_is_sent_whole() {
    let server = Server::start();
    let lines: String = (0..2_345).map(|n| format!("{{\"queue\":\"b\",\"payload\":{n}}}\n\n")).collect();
    let ran = server.run_with(&["submit", "--batch", "-"], &lines).ok();
    assert_eq!(ran.stdout, "2345 tasks submitted.\n");
    let mut payloads: Vec<u64> =
        list(&server, &["--all"]).iter().map(|task| task["payload"].as_u64().unwrap()).collect();
    payloads.sort_unstable();
    assert_eq!(payloads, (0..2_345).collect::<Vec<_>>());
    assert_eq!(list(&server, &["--limit", "1234"]).len(), 1_234);
    assert_eq!(list(&server, &[]).len(), 100);
}

#[test]
fn a_batch_says_which_lines_were_refused() {
    let server = Server::start();
    let lines = r#"{"queue":"b","payload":1,"dedupKey":"k"}
        {"queue":"b","payload":2,"dedupKey":"k"}
        {"queue":"b","payload":3}"#;
    let ran = server.run_with(&["submit", "--batch", "-", "--json"], lines);
    let items = ran.json()["tasks"].clone();
    assert_eq!(ran.code, 1);
    assert!(items[0]["taskId"].is_string() && items[2]["taskId"].is_string(), "{items}");
    assert_eq!(items[1]["error"]["code"], "dedup_conflict");
    assert!(ran.stderr.contains("line 2: "), "{ran:?}");
    let one = server.run_with(&["submit", "--batch", "-"], r#"{"queue":"b","payload":4}"#).ok();
    assert_eq!(one.stdout, "1 task submitted.\n");
    assert_eq!(server.run_with(&["submit", "--batch", "-", "--json"], "").ok().json(), json!({"tasks": []}));
}

#[test]
fn a_batch_with_a_bad_line_says_what_was_submitted() {
    let server = Server::start();
    let good = "{\"queue\":\"b\",\"payload\":1}\n";
    let ran = server.run_with(&["submit", "--batch", "-"], &format!("{good}{{\"queue\":\"b\"}}\n"));
    ran.fails(
        2,
        &["0 tasks submitted up to line 0, nothing after that", "standard input, line 2", "payload"],
    );
    let misspelt = r#"{"queue":"b","payload":1,"prio":1}"#;
    let ran = server.run_with(&["submit", "--batch", "-"], &format!("{}{misspelt}", good.repeat(1_000)));
    ran.fails(
        2,
        &["1000 tasks submitted up to line 1000, nothing after that", "line 1001: ", "prio", "at column 31"],
    );
    assert_eq!(list(&server, &["--all"]).len(), 1_000);
    let full =
        json!({"type": "x", "title": "x", "status": 503, "detail": "", "code": "stopping"}).to_string();
    let fake = Fake::start(vec![Reply::Answer(503, "retry-after: 3600", full)]);
    let file = server.data().with_file_name("batch");
    std::fs::write(&file, format!("\n{good}{good}")).unwrap();
    let batch = ["submit", "--url", &fake.url, "--batch", file.to_str().unwrap()];
    server.run(&batch).fails(1, &["0 tasks submitted", "perhaps also lines 2 to 3", "stopping, HTTP 503"]);
    server.run(&["submit", "--batch", "no-such-file"]).fails(2, &["cannot read no-such-file"]);
}

#[test]
fn tasks_are_listed_by_queue_and_state() {
    let server = Server::start();
    assert_eq!(server.run(&["task", "list"]).ok().stdout, "No tasks match.\n");
    let (a, b) = (submit(&server, &["a", "1"]), submit(&server, &["b", "2"]));
    server.lease("a");
    assert_eq!(list(&server, &["--queue", "b"])[0]["taskId"], b);
    assert_eq!(list(&server, &["--state", "leased"])[0]["taskId"], a);
    let table = server.run(&["task", "list", "--state", "LEASED"]).ok().stdout;
    let lines: Vec<_> = table.lines().collect();
    assert_eq!(lines.len(), 2, "{table}");
    assert!(lines[0].starts_with("TASK ") && lines[0].ends_with("DETAIL"), "{table}");
    assert!(lines[1].starts_with(&a) && lines[1].ends_with("with w1"), "{table}");
    let cut = server.run(&["task", "list", "--limit", "1"]).ok();
    assert!(cut.stdout.lines().count() == 2 && cut.stderr.contains("--all"), "{cut:?}");
}

#[test]
fn a_cancelled_task_can_be_redriven_and_its_history_read() {
    let server = Server::start();
    let id = submit(&server, &["q", r#"{"n":1}"#]);
    let output = server.run(&["task", "cancel", &id, "--reason", "wrong address"]).ok();
    assert_eq!(output.stdout, format!("Task {id} is DEAD (CANCELLED: wrong address).\n"));
    let again = server.run(&["task", "cancel", &id, "--json"]).ok().json();
    assert_eq!((&again["state"], &again["taskId"]), (&json!("DEAD"), &json!(id)));

    let new = server.run(&["task", "redrive", &id, "--json"]).ok().json()["taskId"].clone();
    let task = get(&server, new.as_str().unwrap());
    assert_eq!((&task["redriveOf"], &task["payload"]), (&json!(id), &json!({"n": 1})));
    let output = server.run(&["task", "redrive", &id]).ok().stdout;
    assert_eq!(output, format!("Task {} does {id} again; it is WAITING.\n", new.as_str().unwrap()));
    server.run(&["task", "redrive", new.as_str().unwrap()]).fails(1, &["HTTP 409"]);

    let history = server.run(&["task", "history", &id, "--json"]).ok().json();
    let kinds: Vec<_> = history["events"].as_array().unwrap().iter().map(|event| &event["type"]).collect();
    assert_eq!(kinds, ["TaskCreated", "TaskDead"]);
    let table = server.run(&["task", "history", &id]).ok().stdout;
    assert!(table.starts_with("POSITION  TIME"), "{table}");
    assert!(table.contains("TaskCreated") && table.contains("wrong address"), "{table}");
}

#[test]
fn a_leased_task_is_asked_to_stop() {
    let server = Server::start();
    let id = submit(&server, &["q", "1"]);
    server.lease("q");
    let output = server.run(&["task", "cancel", &id]).ok().stdout;
    assert!(output.starts_with(&format!("Task {id} is asked to stop; it ends in ")), "{output}");
}

#[test]
fn a_queue_keeps_the_settings_that_are_not_named() {
    let server = Server::start();
    assert!(server.run(&["queue", "list"]).ok().stdout.starts_with("No queues yet"));
    server.run(&["queue", "set", "q", "--max-attempts", "7", "--backoff-initial", "5s"]).ok();
    let set = [
        "queue",
        "set",
        "q",
        "--json",
        "--lease",
        "2m",
        "--backoff-factor",
        "3",
        "--retry-on",
        "timeout,USER_CODE",
    ];
    let queue = server.run(&set).ok().json();
    assert_eq!(queue["configured"]["maxAttempts"], 7);
    assert_eq!(queue["configured"]["leaseMs"], 120_000);
    assert_eq!(queue["configured"]["backoff"]["initialMs"], 5_000);
    assert_eq!(queue["configured"]["backoff"]["factor"], 3.0);
    assert_eq!(queue["config"]["retryOn"].as_array().unwrap().len(), 2);
    let text = server.run(&["queue", "get", "q"]).ok().stdout;
    assert!(text.contains("2m\n") && text.contains("7d (default)\n") && text.contains("TIMEOUT"), "{text}");

    submit(&server, &["q", "1"]);
    let table = server.run(&["queue", "list"]).ok().stdout;
    assert!(
        table.starts_with("QUEUE  WAITING") && table.lines().nth(1).unwrap().starts_with("q "),
        "{table}"
    );
    assert_eq!(server.run(&["queue", "list", "--json"]).ok().json()["queues"][0]["counts"]["waiting"], 1);

    let queue = server.run(&["queue", "set", "q", "--reset", "--json"]).ok().json();
    assert_eq!(queue["config"]["maxAttempts"], 3);
    server.run(&["queue", "set", "q"]).fails(2, &["nothing to set"]);
    server.run(&["queue", "set", "q", "--lease", "1s", "--heartbeat-interval", "1s"]).fails(1, &["HTTP 400"]);
}

#[test]
fn tenants_and_workspaces_do_not_see_each_other() {
    let server = Server::start();
    let id = submit(&server, &["q", "1", "--tenant", "a", "--workspace", "x"]);
    server.run(&["task", "get", &id]).fails(1, &["HTTP 404"]);
    server.run(&["task", "get", &id, "--tenant", "a"]).fails(1, &["HTTP 404"]);
    server.run(&["task", "--tenant", "a", "get", &id, "--workspace", "x"]).ok();
}

#[test]
fn what_the_server_refuses_is_one_readable_line() {
    let server = Server::start();
    let ran = server.run(&["task", "get", "01900000-0000-7000-8000-000000000001"]).fails(1, &["HTTP 404"]);
    assert!(ran.stderr.starts_with("lessor: ") && ran.stderr.lines().count() == 1, "{ran:?}");
    server.run(&["task", "get", "../queues"]).fails(1, &["HTTP 4"]);
    server.run(&["submit", "", "1"]).fails(1, &["HTTP 400", "queue"]);
    server.run(&["submit", "q", "1", "--max-attempts", "0"]).fails(1, &["HTTP 400", "maxAttempts"]);
    assert!(list(&server, &["--all"]).is_empty());
}

#[test]
fn wrong_usage_is_refused_before_anything_is_sent() {
    let run = |arguments: &[&str]| Ran::from(lessor(arguments).output().unwrap());
    run(&["submit", "q", "world"]).fails(2, &[r#"'"world"'"#]);
    run(&["submit", "q", "{name:world}"]).fails(2, &["not JSON", "single quotes"]);
    run(&["submit", "q", "@no-such-file"]).fails(2, &["no-such-file"]);
    run(&["submit"]).fails(2, &["QUEUE", "--batch"]);
    run(&["submit", "q", "1", "--batch", "-"]).fails(2, &["cannot be used with"]);
    run(&["submit", "--batch", "-", "--priority", "1"]).fails(2, &["cannot be used with"]);
    run(&["submit", "q", "1", "--delay", "5"]).fails(2, &["needs a unit"]);
    run(&["submit", "q", "1", "--deadline", "soon"]).fails(2, &["2030-01-31T12:00:00Z"]);
    run(&["submit", "q", "1", "--property", "linux"]).fails(2, &["KEY=VALUE"]);
    run(&["submit", "q", "1", "--property", "a=1", "--property", "a=2"]).fails(2, &["given twice"]);
    run(&["task", "list", "--state", "gone"]).fails(2, &["WAITING"]);
    run(&["task", "list", "--all", "--limit", "5"]).fails(2, &["cannot be used with"]);
    run(&["task", "get", "x", "--url", "ftp://host"]).fails(2, &["ftp is not supported"]);
}

#[test]
fn without_a_server_the_command_says_how_to_start_one() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let ran = Ran::from(lessor(&["task", "list", "--url", &url]).output().unwrap());
    ran.fails(1, &[&format!("no server answers at {url} "), "`lessor up`", "--url"]);
}

#[test]
fn a_lost_answer_is_asked_for_again_with_the_same_dedup_key() {
    let answer = r#"{"taskId":"t1","state":"WAITING"}"#.to_owned();
    let fake = Fake::start(vec![Reply::Lose, Reply::Answer(200, "x: y", answer)]);
    let ran = Ran::from(lessor(&["submit", "q", "1", "--url", &fake.url]).output().unwrap()).ok();
    assert_eq!(ran.stdout, "Submitted t1 to q.\n");
    let requests = fake.requests();
    assert_eq!(requests[0], requests[1]);
    assert!(requests[0]["dedupKey"].as_str().unwrap().starts_with("cli-"), "{requests:?}");
}

#[test]
fn a_server_that_is_full_is_asked_again_and_one_that_refuses_is_not() {
    let problem = |status: u16, code: &str| {
        json!({"type": "x", "title": "x", "status": status, "detail": "not now", "code": code}).to_string()
    };
    let full = || Reply::Answer(429, "retry-after: 0", problem(429, "overloaded"));
    let done = Reply::Answer(201, "x: y", r#"{"taskId":"t1","state":"WAITING"}"#.to_owned());
    let fake = Fake::start(vec![full(), full(), done]);
    Ran::from(lessor(&["submit", "q", "1", "--url", &fake.url]).output().unwrap()).ok();
    assert_eq!(fake.requests().len(), 3);

    let fake = Fake::start(vec![Reply::Answer(409, "x: y", problem(409, "dedup_conflict"))]);
    let ran = Ran::from(lessor(&["submit", "q", "1", "--url", &fake.url]).output().unwrap());
    ran.fails(1, &["lessor: not now (dedup_conflict, HTTP 409)\n"]);
    assert_eq!(fake.requests().len(), 1);

    // A wait that is longer than anybody would sit through is not begun.
    let fake = Fake::start(vec![Reply::Answer(503, "retry-after: 3600", problem(503, "stopping"))]);
    let ran = Ran::from(lessor(&["submit", "q", "1", "--url", &fake.url]).output().unwrap());
    ran.fails(1, &["stopping, HTTP 503"]);
}

#[test]
fn an_answer_that_is_not_ours_is_told_as_such() {
    let fake = Fake::start(vec![Reply::Answer(200, "x: y", "<html>".to_owned())]);
    let ran = Ran::from(lessor(&["task", "get", "t1", "--url", &fake.url]).output().unwrap());
    ran.fails(1, &["not as Lessor does", "is --url right?"]);
    let fake = Fake::start(vec![Reply::Answer(404, "x: y", "<html>".to_owned())]);
    let ran = Ran::from(lessor(&["task", "get", "t1", "--url", &fake.url]).output().unwrap());
    ran.fails(1, &["answered 404"]);
}

#[test]
fn a_reader_that_stops_reading_is_no_error() {
    let server = Server::start();
    let lines: String = (0..1_000).map(|n| format!("{{\"queue\":\"b\",\"payload\":{n}}}\n")).collect();
    server.run_with(&["submit", "--batch", "-"], &lines).ok();
    let mut listing = server.spawn(&["task", "list", "--all", "--json"]);
    drop(listing.stdout.take());
    Ran::from(listing.wait_with_output().unwrap()).ok();
}
