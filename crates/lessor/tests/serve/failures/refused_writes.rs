//! A database that is there, and takes no writes: it is full, read-only, or waits for its replica.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use test_servers::postgres::{Postgres, execute, shared};

use super::{owner, submit, waiting};
use crate::support::Server;
use crate::support::cluster::Cluster;

fn task() -> Value {
    json!({"queue": "q", "payload": {}})
}

/// Ends all other sessions with the database, and waits until they have ended.
const CUT: &str = "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity \
                   WHERE datname = current_database() AND pid <> pg_backend_pid()";

/// No node was started again.
fn pids(cluster: &Cluster) -> Vec<rustix::process::Pid> {
    cluster.nodes.iter().map(|(_, server)| server.pid()).collect()
}

fn assert_accepted(answer: &str) {
    assert!(answer.contains(" 201 "), "{answer}");
}

/// Refuses every append, and counts them.
const FULL: &str = "CREATE SEQUENCE lessor.refused; CREATE FUNCTION lessor.full() RETURNS trigger LANGUAGE plpgsql AS \
    $$ BEGIN PERFORM nextval('lessor.refused'); RAISE EXCEPTION 'could not extend file' USING ERRCODE = '53100'; END $$; \
    CREATE TRIGGER full_disk BEFORE INSERT ON lessor.batch FOR EACH ROW EXECUTE FUNCTION lessor.full()";

#[test]
fn c12_while_the_database_is_full_submits_are_refused_with_the_reason_and_then_go_on() {
    let cluster = Cluster::start(&["a", "b"]);
    let servers: Vec<&Server> = cluster.nodes.iter().map(|(_, server)| server).collect();
    servers.iter().for_each(|server| submit(server));
    let known = pids(&cluster);
    execute(&cluster.url, FULL);
    std::thread::scope(|scope| {
        let held = scope.spawn(|| servers[0].try_post("/v1/tasks", &task()));
        // Only one that was refused is tried again.
        while execute(&cluster.url, "SELECT last_value > 1 FROM lessor.refused") != [["t"]] {}
        for server in &servers {
            let refused = server.try_post("/v1/tasks", &task());
            assert!(refused.contains(" 429 ") && refused.contains("disk_full"), "{refused}");
        }
        assert!(!held.is_finished(), "it is recorded later");
        execute(&cluster.url, "DROP TRIGGER full_disk ON lessor.batch");
        assert_accepted(&held.join().unwrap());
    });
    servers.iter().for_each(|server| submit(server));
    assert_eq!(waiting(servers[0]), json!(5));
    assert_eq!(pids(&cluster), known);
}

#[test]
fn c12_while_the_database_is_read_only_requests_are_held_then_refused_with_503_and_then_go_on() {
    let cluster = Cluster::start(&["a", "b"]);
    let servers: Vec<&Server> = cluster.nodes.iter().map(|(_, server)| server).collect();
    servers.iter().for_each(|server| submit(server));
    let (_, name) = cluster.url.rsplit_once('/').unwrap();
    let read_only = |value: &str| {
        let set = format!("ALTER DATABASE {name} SET default_transaction_read_only = {value}");
        shared().execute("postgres", &set);
    };
    read_only("on");
    execute(&cluster.url, CUT);
    std::thread::scope(|scope| {
        let post = |server: &&Server| server.try_post("/v1/tasks", &task());
        let held: Vec<_> = servers.iter().map(|server| scope.spawn(move || post(server))).collect();
        for server in &servers {
            let answer = server.try_get("/readyz");
            assert!(answer.contains(" 503 ") && answer.contains("not_serving"), "{answer}");
        }
        for held in held {
            let answer = held.join().unwrap();
            assert!(answer.contains(" 503 ") && answer.contains("outcome_unknown"), "{answer}");
        }
        let held: Vec<_> = servers.iter().map(|server| scope.spawn(move || post(server))).collect();
        read_only("off");
        held.into_iter().for_each(|held| assert_accepted(&held.join().unwrap()));
    });
    servers.iter().for_each(|server| {
        submit(server);
        let answer = server.try_get("/readyz");
        assert!(answer.contains(" 200 "), "{answer}");
    });
}

/// The owner dies while every commit waits for the synchronous replica, which is gone. Nobody can take over until commits end.
fn nobody_takes_over_without_the_replica(bring_back: impl FnOnce(&Postgres, &mut Postgres)) {
    let primary = Postgres::start(&["fsync=off"]);
    let mut replica = primary.start_replica(&["fsync=off"]);
    primary.wait_for_replica(true);
    let url = primary.create_database();
    let mut cluster = Cluster::start_on(url.clone(), &["a", "b"], "");
    let acknowledged: Vec<String> = (0..20)
        .map(|at| {
            let (_, server) = &cluster.nodes[at % 2];
            server.post("/v1/tasks", task())["taskId"].as_str().unwrap().to_owned()
        })
        .collect();
    let (_, epoch) = owner(&url);
    let mut dead = cluster.take_owner();
    let standby = &cluster.nodes[0].1;
    replica.kill();
    let held = |server: &Server| server.try_post("/v1/tasks", &task());
    std::thread::scope(|scope| {
        let submitted = scope.spawn(|| held(standby));
        let begun = Instant::now();
        dead.kill();
        // It has no owner for longer than a takeover takes, and says so.
        let answer = submitted.join().unwrap();
        assert!(answer.contains(" 503 "), "{answer}");
        assert!(begun.elapsed() > Duration::from_secs(5), "{:?}", begun.elapsed());
        let answer = standby.try_get("/readyz");
        assert!(answer.contains(" 503 "), "{answer}");
    });
    let last = "SELECT max(epoch) FROM lessor.batch";
    assert_eq!(owner(&url).1, epoch);
    assert_eq!(execute(&url, last), [[epoch.clone()]]);

    bring_back(&primary, &mut replica);
    submit(standby);
    for task in &acknowledged {
        assert_eq!(standby.get(&format!("/v1/tasks/{task}"))["state"], "WAITING");
    }
    let next = (epoch.parse::<u64>().unwrap() + 1).to_string();
    assert_eq!(execute(&url, last), [[next]], "one takeover was enough");
}

#[test]
fn c22_without_the_synchronous_replica_nobody_takes_over_until_it_is_back() {
    nobody_takes_over_without_the_replica(|_, replica| replica.restart());
}

#[test]
fn c22_without_the_synchronous_replica_nobody_takes_over_until_commits_do_not_wait_for_it() {
    nobody_takes_over_without_the_replica(|primary, _| primary.wait_for_replica(false));
}
