//! Tests servers whose ledger is in PostgreSQL, and the commands around them: `lessor cluster`, `lessor log`, `lessor migrate`.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;
use test_servers::postgres::{execute, shared};

use crate::support::cluster::node_named;
use crate::support::{Ran, Server, lessor};
use crate::{check, serve};

const PATIENCE: Duration = Duration::from_secs(120);

/// A directory with the configuration of a node on a new database, and the address of the database.
fn node() -> (TempDir, String) {
    let url = shared().create_database();
    (node_on(&url), url)
}

/// A directory with the configuration of a node on this database.
fn node_on(url: &str) -> TempDir {
    let dir = node_named("a", url);
    // It has nobody to hand over to, and the tests do not wait for clients.
    let file = dir.path().join("lessor.toml");
    fs::write(&file, fs::read_to_string(&file).unwrap() + "drain_s = 1\n").unwrap();
    dir
}

fn cluster(dir: &Path, arguments: &[&str]) -> Ran {
    Ran::from(
        lessor(&["cluster"]).args(arguments).arg("--config").arg(dir.join("lessor.toml")).output().unwrap(),
    )
}

fn log(url: &str, arguments: &[&str]) -> Ran {
    let ledger = format!("postgres:{url}");
    Ran::from(lessor(&["log", "--ledger", &ledger]).args(arguments).output().unwrap())
}

fn log_file(data: &Path, arguments: &[&str]) -> Ran {
    let ledger = format!("file:{}", data.display());
    Ran::from(lessor(&["log", "--ledger", &ledger]).args(arguments).output().unwrap())
}

fn migrate(from: &str, to: &str, key_file: &Path) -> Command {
    let mut command =
        lessor(&["migrate", "--unsafe-no-sync", "--json", "--from", from, "--to", to, "--key-file"]);
    command.arg(key_file);
    command
}

fn submit(server: &Server, payload: Value) -> String {
    let task = server.post("/v1/tasks", json!({"queue": "q", "payload": payload}));
    task["taskId"].as_str().unwrap().to_owned()
}

/// The records of a dump, as text.
fn dumped(ran: Ran) -> String {
    ran.ok().stdout
}

#[test]
fn a_server_on_postgresql_has_everything_after_it_was_killed() {
    let (dir, url) = node();
    let created = cluster(dir.path(), &["init", "--json"]).ok().json();
    assert_eq!((&created["shards"], &created["keyCreated"]), (&json!(1), &json!(true)));
    let mut server = Server::start_by(serve(dir.path(), &[]), dir);
    let (done, waiting) = (submit(&server, json!("done")), submit(&server, json!("waiting")));
    let lease = server.lease("q");
    server.complete(&lease, json!("result"));
    let second = server.lease("q");

    // Beside the server that runs.
    let told = log(&url, &["explain", &done]).ok().stdout;
    assert!(told.contains("COMPLETED") && told.contains("w1"), "{told}");
    let report = log(&url, &["verify", "--json"]).ok().json();
    assert_eq!((&report["ok"], &report["cluster"]), (&json!(true), &created["cluster"]));
    let leased = log(&url, &["state", "--task", &waiting, "--json"]).ok().json();
    assert_eq!(leased["task"]["state"], "LEASED");

    server.kill();
    let server = server.start_again(|dir| serve(dir, &[]));
    assert_eq!(server.get(&format!("/v1/tasks/{done}"))["result"], "result");
    // The lease was given out by the process that was killed.
    server.complete(&second, json!(2));
    assert_eq!(server.get(&format!("/v1/tasks/{waiting}"))["state"], "COMPLETED");
    assert!(!server.data().join("ledger").exists() && !server.data().join("lease.key").exists());
    let config = server.data().parent().unwrap().join("lessor.toml");
    let audit = lessor(&["audit", "--verify", "--json", "--config"]).arg(config).output().unwrap();
    assert_eq!(Ran::from(audit).ok().json()["ok"], true);
    assert_eq!(execute(&url, "SELECT node, version <> '' FROM lessor.node"), [["a", "t"]]);
    let (code, text) = server.terminate();
    assert_eq!(code, Some(0), "{text}");
}

#[test]
fn a_cluster_is_created_once_and_checked() {
    let (dir, _) = node();
    let refused = &["cannot use postgres://postgres@127.0.0.1", "lessor cluster init"];
    cluster(dir.path(), &["finalize"]).fails(1, &["cluster.key is missing"]);
    cluster(dir.path(), &["init"]).ok();
    let key = fs::read(dir.path().join("cluster.key")).unwrap();
    cluster(dir.path(), &["init"]).fails(3, &["holds a Lessor cluster already", "nothing was changed"]);
    assert_eq!(fs::read(dir.path().join("cluster.key")).unwrap(), key);

    let checked = check(dir.path(), &["--json"]).ok().json();
    assert_eq!((&checked["database"]["shards"], &checked["database"]["nodes"]), (&json!(1), &json!([])));
    let text = check(dir.path(), &[]).ok().stdout;
    assert!(text.contains("PostgreSQL") && text.contains("cluster"), "{text}");
    let finalized = cluster(dir.path(), &["finalize"]).ok().stdout;
    assert!(finalized.contains("Nothing is to be done"), "{finalized}");

    // Without a cluster nothing starts, and nothing is created.
    let (empty, url) = node();
    fs::copy(dir.path().join("cluster.key"), empty.path().join("cluster.key")).unwrap();
    Ran::from(serve(empty.path(), &["--init"]).output().unwrap()).fails(3, refused);
    assert_eq!(execute(&url, "SELECT to_regclass('lessor.batch')"), [[""]]);
}

#[test]
fn c21_another_key_is_refused_and_no_error_shows_the_password() {
    let (dir, url) = node();
    cluster(dir.path(), &["init"]).ok();
    fs::remove_file(dir.path().join("cluster.key")).unwrap();
    Ran::from(serve(dir.path(), &[]).output().unwrap()).fails(1, &["cluster.key is missing", "another node"]);
    let (other, _) = node();
    cluster(other.path(), &["init"]).ok();
    fs::copy(other.path().join("cluster.key"), dir.path().join("cluster.key")).unwrap();
    Ran::from(serve(dir.path(), &[]).output().unwrap())
        .fails(3, &["is not the key of this cluster", "another node"]);

    let away = url.replace("postgres@127.0.0.1", "postgres:topsecret@127.0.0.1:1,127.0.0.1");
    let away = node_on(&away.replace("/test_", "/no_such_"));
    fs::copy(other.path().join("cluster.key"), away.path().join("cluster.key")).unwrap();
    for ran in [Ran::from(serve(away.path(), &[]).output().unwrap()), check(away.path(), &["--json"])] {
        assert!(
            ran.code == 1 && !ran.stderr.contains("topsecret") && ran.stderr.contains("no_such_"),
            "{ran:?}"
        );
    }
}

#[test]
fn after_a_restore_leases_of_the_undone_future_are_refused() {
    let (dir, url) = node();
    cluster(dir.path(), &["init"]).ok();
    let mut server = Server::start_by(serve(dir.path(), &[]), dir);
    submit(&server, json!(1));
    let lease = server.lease("q");
    server.kill();
    let key_file = server.data().parent().unwrap().join("cluster.key");
    let before = fs::read(&key_file).unwrap();
    // The restore has undone the lease: the ledger ends with the task.
    execute(
        &url,
        "DELETE FROM lessor.batch WHERE first >= (SELECT max(first) FROM lessor.batch WHERE first > 0)",
    );
    cluster(key_file.parent().unwrap(), &["restored"]).fails(2, &["--nodes-are-stopped"]);
    let restored =
        cluster(key_file.parent().unwrap(), &["restored", "--nodes-are-stopped", "--json"]).ok().json();
    assert_eq!(restored["epochs"], json!([2]));
    assert_eq!(fs::read(restored["oldKeyFile"].as_str().unwrap()).unwrap(), before);
    assert_ne!(fs::read(&key_file).unwrap(), before);

    let server = server.start_again(|dir| serve(dir, &[]));
    let body = json!({"workerId": "w1", "result": 1});
    let answer =
        server.try_post(&format!("/v1/leases/{}/complete", lease["leaseId"].as_str().unwrap()), &body);
    assert!(!answer.starts_with("HTTP/1.1 200") || !answer.contains("COMMITTED"), "{answer}");
    let again = server.lease("q");
    assert_ne!(again["leaseId"], lease["leaseId"]);
    server.complete(&again, json!("once"));
}

#[test]
fn a_migration_to_postgresql_and_back_keeps_every_record_and_lease() {
    let mut server = Server::start();
    let ids: Vec<String> =
        (0..20).map(|n| submit(&server, json!({"n": n, "text": "x".repeat(n * 100)}))).collect();
    let lease = server.lease("q");
    server.complete(&lease, json!("done"));
    let open = server.lease("q");
    let data = server.data();
    let dir = node_on(&shared().create_database());
    let config = fs::read_to_string(dir.path().join("lessor.toml")).unwrap();
    let url =
        config.lines().find_map(|line| line.strip_prefix("url = ")).unwrap().trim_matches('"').to_owned();
    let (file, database) = (format!("file:{}", data.display()), format!("postgres:{url}"));
    let key_file = dir.path().join("cluster.key");
    let run = |command: &mut Command| Ran::from(command.output().unwrap());

    run(&mut migrate(&file, &database, &key_file)).fails(3, &["cannot copy the ledger", "in use"]);
    server.kill();
    let before = dumped(log_file(&data, &["dump"]));
    let there = run(&mut migrate(&file, &database, &key_file)).ok().json();
    assert_eq!(dumped(log(&url, &["dump"])), before);
    let digest = |report: Value| report["digest"].clone();
    assert_eq!(there["digest"], digest(log_file(&data, &["verify", "--json"]).ok().json()));
    assert_eq!(there["digest"], digest(log(&url, &["verify", "--json"]).ok().json()));
    run(&mut migrate(&file, &database, &key_file)).fails(3, &["holds a Lessor cluster already"]);

    // The node uses the data directory, once its old ledger is out of the way.
    fs::create_dir(dir.path().join("data")).unwrap();
    for name in ["lease.key", "ledger"] {
        fs::rename(data.join(name), dir.path().join("data").join(name)).unwrap();
    }
    Ran::from(serve(dir.path(), &[]).output().unwrap())
        .fails(3, &["ledger of its own", "lessor migrate", "mv "]);
    fs::rename(dir.path().join("data/ledger"), dir.path().join("old")).unwrap();
    let mut server = Server::start_by(serve(dir.path(), &[]), dir);
    // Given out before the migration.
    server.complete(&open, json!("across"));
    assert_eq!(server.get(&format!("/v1/tasks/{}", ids[0]))["result"], "done");
    let back = tempfile::tempdir().unwrap();
    let target = format!("file:{}", back.path().join("data").display());
    let key_file = server.data().parent().unwrap().join("cluster.key");
    run(&mut migrate(&database, &target, &key_file)).fails(1, &["stop all nodes"]);
    server.kill();
    gone(&url);
    let after = dumped(log(&url, &["dump"]));
    assert!(after.starts_with(&before), "the history goes on where it was");
    let returned = run(&mut migrate(&database, &target, &key_file)).ok().json();
    assert_eq!(dumped(log_file(&back.path().join("data"), &["dump"])), after);
    assert_eq!(returned["digest"], digest(log(&url, &["verify", "--json"]).ok().json()));
    run(&mut migrate(&database, &target, &key_file)).fails(1, &["holds a ledger already"]);

    let server = Server::start_in(back, "127.0.0.1:0", &[]);
    assert_eq!(server.get(&format!("/v1/tasks/{}", ids[1]))["result"], "across");
    server.lease("q");
}

/// Returns when the server has noticed that the sessions of nodes in a database are gone.
fn gone(url: &str) {
    let open = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'lessor'";
    let until = Instant::now() + PATIENCE;
    while execute(url, open) != [["0"]] {
        assert!(Instant::now() < until, "PostgreSQL keeps the sessions of a process that was killed");
    }
}

#[test]
fn a_migration_that_was_killed_leaves_nothing_that_serves_and_starts_over() {
    let mut server = Server::start();
    for _ in 0..600 {
        let answer = server.try_post("/v1/tasks", &json!({"queue": "q", "payload": 1}));
        assert!(answer.starts_with("HTTP/1.1 20"), "{answer}");
    }
    server.kill();
    let dir = node_on(&shared().create_database());
    let config = fs::read_to_string(dir.path().join("lessor.toml")).unwrap();
    let url =
        config.lines().find_map(|line| line.strip_prefix("url = ")).unwrap().trim_matches('"').to_owned();
    let (file, database) = (format!("file:{}", server.data().display()), format!("postgres:{url}"));
    let key_file = dir.path().join("cluster.key");
    // A row late in the history makes the migration wait: a trigger that its table gets when it is created.
    execute(
        &url,
        "CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN \
             IF NEW.first > 550 THEN PERFORM pg_sleep(3600); END IF; RETURN NEW; END'; \
         CREATE FUNCTION attach() RETURNS event_trigger LANGUAGE plpgsql AS 'BEGIN \
             IF to_regclass(''lessor.snapshot'') IS NOT NULL AND to_regclass(''lessor.snapshot_block'') IS NULL THEN \
             CREATE TRIGGER wait BEFORE INSERT ON lessor.batch FOR EACH ROW EXECUTE FUNCTION wait(); END IF; END'; \
         CREATE EVENT TRIGGER attach ON ddl_command_end WHEN TAG IN ('CREATE TABLE') EXECUTE FUNCTION attach()",
    );
    let mut running = migrate(&file, &database, &key_file);
    let mut running = running.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let asleep =
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep'";
    let until = Instant::now() + PATIENCE;
    while execute(&url, asleep) != [["1"]] {
        assert!(
            Instant::now() < until && running.try_wait().unwrap().is_none(),
            "the migration does not wait"
        );
    }
    assert_ne!(execute(&url, "SELECT count(*) FROM lessor.batch"), [["0"]], "half of it is there");
    running.kill().unwrap();
    running.wait().unwrap();

    let others = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() \
                  AND pid <> pg_backend_pid()";
    execute(&url, &format!("DROP EVENT TRIGGER attach; {others}"));
    gone(&url);

    let key = fs::read(server.data().join("lease.key")).unwrap();
    fs::write(&key_file, key).unwrap();
    let incomplete = &["migration that was not finished", "lessor migrate"];
    Ran::from(serve(dir.path(), &["--init"]).output().unwrap()).fails(3, incomplete);
    cluster(dir.path(), &["init"]).fails(3, incomplete);
    log(&url, &["verify"]).fails(3, incomplete);

    let migrated = Ran::from(migrate(&file, &database, &key_file).output().unwrap()).ok().json();
    assert_eq!(migrated["digest"], log(&url, &["verify", "--json"]).ok().json()["digest"]);
    let server = Server::start_by(serve(dir.path(), &[]), dir);
    assert_eq!(server.get("/v1/queues/q")["counts"]["waiting"], 600);
}

#[test]
fn a_directory_with_half_a_migration_is_refused_by_servers() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir_all(dir.path().join("data/ledger.migrating")).unwrap();
    let mut up = lessor(&["up", "--listen", "127.0.0.1:0", "--data"]);
    up.arg(dir.path().join("data"));
    Ran::from(up.output().unwrap()).fails(3, &["migration that was not finished", "ledger.migrating"]);
}
