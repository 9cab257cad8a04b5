//! Redis Streams as transport, with a real Redis: what is published, and that no fault of Redis changes a claim.

mod load;

use std::collections::BTreeSet;
use std::fs;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};
use test_servers::redis::{Redis, url};

use self::load::Load;
use crate::support::{Server, lessor};

/// Longest wait for what takes a moment.
const PATIENCE: Duration = Duration::from_secs(120);

const JOBS: &str = "lessor:{default/default/jobs}";
const PARKED: &str = "lessor:{default/default/parked}";

fn serve(redis: &str) -> Server {
    Server::start_with(&["--no-worker", "--redis-url", redis])
}

/// Returns once this is so.
#[track_caller]
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < until, "never: {what}");
        std::thread::yield_now();
    }
}

fn metric(server: &Server, name: &str) -> u64 {
    let text = server.text("/metrics");
    let line = text.lines().find(|line| line.starts_with(&format!("{name} "))).unwrap();
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

fn claim(server: &Server, stream: &str) -> Value {
    let ask = json!({"worker_id": "w1", "streams": [stream], "max_wait_ms": 30_000});
    let job = server.post("/internal/worker/claim", ask);
    assert_eq!(job["claimed"], true, "{job}");
    job
}

fn report(server: &Server, call: &str, job: &Value, field: &str, value: Value) -> Value {
    let mut body = json!({"worker_id": "w1", field: value});
    for field in ["job_id", "attempt_id", "lease_token", "stream", "message_id"] {
        body[field] = job[field].clone();
    }
    server.post(&format!("/internal/worker/{call}"), body)
}

fn submit(server: &Server, task: Value) -> String {
    server.post("/v1/tasks", task)["taskId"].as_str().unwrap().to_owned()
}

/// The tasks of a queue that wait.
fn waiting(server: &Server, queue: &str) -> BTreeSet<String> {
    let page = server.get(&format!("/v1/tasks?queue={queue}&state=WAITING&limit=1000"));
    let tasks = page["tasks"].as_array().unwrap();
    tasks.iter().map(|task| task["taskId"].as_str().unwrap().to_owned()).collect()
}

/// Returns once the stream has exactly the waiting tasks, while nothing is leased: id and job of each.
#[track_caller]
fn until_exact(server: &Server, redis: &Redis, queue: &str, stream: &str) -> Vec<(String, String)> {
    let mut entries = Vec::new();
    until("the stream has exactly the waiting tasks", || {
        entries = redis.entries(stream);
        let jobs: BTreeSet<String> = entries.iter().map(|(_, job)| job.clone()).collect();
        jobs.len() == entries.len() && jobs == waiting(server, queue)
    });
    entries
}

/// Several times as long as the server waits for an answer of Redis.
const SILENCE: Duration = Duration::from_secs(10);

/// SIGKILL, a silence, FLUSHALL, an older dump, entries of others, entries removed by others.
#[test]
fn c18_no_claim_fails_or_is_duplicated_whatever_happens_to_redis() {
    let began = Instant::now();
    let mut redis = Redis::start();
    let server = serve(&redis.url());
    let parked: Vec<String> =
        (0..40).map(|n| submit(&server, json!({"queue": "parked", "payload": n}))).collect();
    let held = claim(&server, "parked");
    let load = Load::start(&[server.url()]);
    load.completes(50);

    let () = redis.ask(&["SAVE"]);
    let older = fs::read(redis.dump()).unwrap();
    fs::remove_file(redis.dump()).unwrap();
    load.completes(50);

    redis.kill();
    load.completes(50);
    redis.restart();
    load.completes(50);

    let () = redis.ask(&["FLUSHALL"]);
    load.completes(50);

    let failures = metric(&server, "lessor_redis_failures_total");
    redis.signal(Signal::STOP);
    let silent = Instant::now();
    while silent.elapsed() < SILENCE {
        load.completes(50);
    }
    until("a silent Redis is noticed", || metric(&server, "lessor_redis_failures_total") > failures);
    redis.signal(Signal::CONT);
    load.completes(50);

    // Copies of entries, entries of others below and above every position, and some that are gone.
    let entries = until_parked(&redis, &parked);
    for (n, (id, job)) in entries.iter().enumerate() {
        let fields = ["job_id", job.as_str(), "enqueue_id", id.as_str(), "not_before_ms", "0"];
        if n % 10 == 3 {
            let _: i64 = redis.ask(&["XDEL", PARKED, id]);
        }
        // Refused, if the stream has had a higher id.
        for other in [id.clone(), format!("{}-7", 1_000_000 + n), "*".to_owned()] {
            let xadd = [&["XADD", PARKED, other.as_str()], &fields[..]].concat();
            let _ = redis::cmd(xadd[0]).arg(&xadd[1..]).exec(&mut redis.connect());
        }
    }
    let _: String = redis.ask(&["XADD", JOBS, "*", "job_id", "of somebody else"]);
    load.completes(50);

    redis.kill();
    fs::write(redis.dump(), older).unwrap();
    load.completes(50);
    redis.restart();
    load.completes(50);
    let _: i64 = redis.ask(&["XTRIM", PARKED, "MAXLEN", "5"]);
    let _: i64 = redis.ask(&["DEL", JOBS]);
    load.completes(50);
    load.stop();

    let entries = until_exact(&server, &redis, "jobs", JOBS);
    let with_the_held = until_parked(&redis, &parked);
    assert_eq!(held["message_id"], with_the_held[0].0, "a leased task keeps its entry");
    let claims = entries.iter().map(|_| claim(&server, "jobs"));
    let claimed: BTreeSet<_> = claims.map(|job| (text(&job["message_id"]), text(&job["job_id"]))).collect();
    assert_eq!(claimed, entries.into_iter().collect(), "the id of an entry is the message_id of the claim");
    report(&server, "complete", &held, "result", json!(1));
    until_exact(&server, &redis, "parked", PARKED);
    let (code, log) = server.terminate();
    assert_eq!(code, Some(0));
    let warnings = log.matches("Redis cannot be used").count() as u64;
    assert!((1..=1 + began.elapsed().as_secs() / 60).contains(&warnings), "one warning in a minute: {log}");
}

/// Returns once the stream has an entry for each of these tasks and no other entry.
#[track_caller]
fn until_parked(redis: &Redis, tasks: &[String]) -> Vec<(String, String)> {
    let mut entries = Vec::new();
    until("every parked task has one entry", || {
        entries = redis.entries(PARKED);
        entries.iter().map(|(_, job)| job).eq(tasks)
    });
    entries
}

/// An id, and fields with their values.
type Entry = (String, Vec<String>);

#[test]
fn s2_7_s2_13_a_consumer_group_reads_the_envelopes_and_may_acknowledge_after_the_report() {
    let redis = Redis::start();
    let server = serve(&redis.url());
    let _: String = redis.ask(&["XGROUP", "CREATE", JOBS, "group", "0", "MKSTREAM"]);
    let task = submit(&server, json!({"queue": "jobs", "payload": 1}));
    let mut group = redis.connect();
    let mut read = |consumer: &str| -> Entry {
        let read = ["GROUP", "group", consumer, "COUNT", "1", "BLOCK", "60000", "STREAMS", JOBS, ">"];
        let read: Vec<(String, Vec<Entry>)> = redis::cmd("XREADGROUP").arg(&read).query(&mut group).unwrap();
        read[0].1[0].clone()
    };
    let held =
        || -> Vec<(String, String, u64, u64)> { redis.ask(&["XPENDING", JOBS, "group", "-", "+", "9"]) };

    let (id, fields) = read("honest");
    let position = id.strip_suffix("-0").unwrap();
    assert_eq!(fields, ["job_id", &task, "enqueue_id", position, "not_before_ms", "0"]);
    let job = claim(&server, "jobs");
    assert_eq!((&job["message_id"], &job["job_id"]), (&json!(id), &json!(task)));
    assert_eq!(held().len(), 1, "S2-27: held until the end is durable");
    let failed =
        report(&server, "fail", &job, "error", json!({"code": "E", "message": "m", "retryable": true}));
    assert_eq!((&failed["ack"], &failed["requeued"]), (&json!(true), &json!(true)));
    let _: i64 = redis.ask(&["XACK", JOBS, "group", &id]);

    // S2-15: another message for the next attempt, which a consumer takes and never acknowledges.
    let (again, fields) = read("dead");
    assert_ne!(again, id);
    assert_eq!(fields[1], task);
    assert_ne!(fields[5], "0", "the next attempt is delayed");
    // An entry that somebody else removed comes back, and the group keeps its place and what its consumers hold.
    let _: i64 = redis.ask(&["XDEL", JOBS, &again]);
    until("the entry is back", || redis.entries(JOBS) == [(again.clone(), task.clone())]);
    let holders: Vec<(String, String)> =
        held().into_iter().map(|(id, consumer, ..)| (id, consumer)).collect();
    assert_eq!(holders, [(again.clone(), "dead".to_owned())]);
    let job = claim(&server, "jobs");
    assert_eq!(job["message_id"], again);
    report(&server, "complete", &job, "result", json!(1));
    until("S2-27: the end frees the entry of a dead consumer", || {
        held().is_empty() && redis.entries(JOBS).is_empty()
    });

    // An expired lease and a released one put new messages on the stream; the last attempt none.
    let task = submit(&server, json!({"queue": "jobs", "payload": 2, "leaseMs": 100, "maxAttempts": 2}));
    let first = read("honest").0;
    assert_eq!(claim(&server, "jobs")["message_id"], first);
    let second = read("honest").0;
    assert_eq!(redis.entries(JOBS), [(second.clone(), task.clone())]);
    assert_eq!(claim(&server, "jobs")["message_id"], second);
    until("a dead task has no entry", || redis.entries(JOBS).is_empty() && held().is_empty());
    assert_eq!(server.get(&format!("/v1/tasks/{task}"))["state"], "DEAD");
    let redriven = server.post(&format!("/v1/tasks/{task}/redrive"), json!({}))["taskId"].clone();
    assert_eq!(read("honest").1[1], redriven);
}

#[test]
fn a_delayed_task_is_announced_when_it_is_due() {
    let redis = Redis::start();
    let server = serve(&redis.url());
    let mut subscriber = redis.connect();
    subscriber.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut subscription = subscriber.as_pubsub();
    subscription.subscribe(JOBS).unwrap();
    let task = submit(&server, json!({"queue": "jobs", "payload": 1, "delayMs": 400}));
    let message: String = subscription.get_message().unwrap().get_payload().unwrap();
    assert_eq!(redis.entries(JOBS), [(message.clone(), task)]);
    assert_eq!(claim(&server, "jobs")["message_id"], message);
}

#[test]
fn a_server_without_its_redis_warns_once_and_publishes_when_redis_is_there() {
    let dir = tempfile::tempdir().unwrap();
    let secret = dir.path().join("password");
    fs::write(&secret, "open sesame\n").unwrap();
    let server = Server::start_with(&[
        "--no-worker",
        "--redis-url",
        &url(dir.path()),
        "--redis-password-file",
        secret.to_str().unwrap(),
    ]);
    let task = submit(&server, json!({"queue": "jobs", "payload": 1}));
    let job = claim(&server, "jobs");
    until("it tries more than once", || metric(&server, "lessor_redis_failures_total") > 3);
    assert_eq!(metric(&server, "lessor_redis_connected"), 0);
    assert_eq!(server.log().matches("Redis cannot be used").count(), 1, "{}", server.log());
    let redis = Redis::start_in(dir, Some("open sesame"));
    until("the task is published", || redis.entries(JOBS) == [(text(&job["message_id"]), task.clone())]);
    server.until_logged("Redis is back");
    until("Redis answers", || metric(&server, "lessor_redis_connected") == 1);

    // Another ledger does not touch the streams.
    let secret = secret.to_str().unwrap();
    fs::write(secret, "open sesame").unwrap();
    let other = ["--no-worker", "--redis-url", &redis.url(), "--redis-password-file", secret];
    let other = Server::start_with(&other);
    submit(&other, json!({"queue": "jobs", "payload": 1}));
    other.until_logged("streams of another ledger");
    assert_eq!(redis.entries(JOBS), [(text(&job["message_id"]), task)]);
}

/// What ends while nobody publishes is removed by the next start; a task that waits keeps its entry.
#[test]
fn a_restarted_server_continues_the_streams() {
    let redis = Redis::start();
    let mut server = serve(&redis.url());
    let tasks: Vec<String> =
        (0..3).map(|n| submit(&server, json!({"queue": "jobs", "payload": n}))).collect();
    let last = submit(&server, json!({"queue": "parked", "payload": 1}));
    until("all are published", || redis.entries(JOBS).len() == 3 && redis.entries(PARKED).len() == 1);
    server.kill();
    let server = server.crash_and_restart();
    for queue in ["jobs", "parked"] {
        let job = claim(&server, queue);
        report(&server, "complete", &job, "result", json!(1));
    }
    // A second attempt, whose message only the ledger's history names.
    let job = claim(&server, "jobs");
    server.post(&format!("/v1/leases/{}/release", text(&job["lease_token"])), json!({"workerId": "w1"}));
    let job = claim(&server, "jobs");
    assert_eq!((redis.entries(JOBS).len(), redis.entries(PARKED)[0].1.clone()), (3, last));
    let mut server = server;
    server.kill();
    let server = server.start_again(|dir| {
        let mut command = lessor(&["up", "--no-worker", "--segment-mib", "32", "--preallocate-mib", "1"]);
        command.args(["--listen", "127.0.0.1:0", "--redis-url", &redis.url(), "--data"]);
        command.arg(dir.join("data"));
        command
    });
    until("what ended is gone", || redis.entries(PARKED).is_empty());
    let mut entries = Vec::new();
    until("two are left", || {
        entries = redis.entries(JOBS);
        entries.len() == 2
    });
    let jobs: BTreeSet<&String> = entries.iter().map(|(_, job)| job).collect();
    assert_eq!(jobs, tasks[1..].iter().collect());
    let expected = (text(&job["message_id"]), text(&job["job_id"]));
    assert!(entries.contains(&expected), "{entries:?} has no {expected:?}");
    drop(server);
}

fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}
