//! Tests what an operator sees of a cluster: the list of `lessor nodes`, and the owners that `lessor log explain` names.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::cluster::Cluster;
use crate::support::{Ran, lessor};

/// Longest wait for what takes a moment.
const PATIENCE: Duration = Duration::from_secs(120);

impl Cluster {
    /// `lessor nodes` with the configuration of a node that is left.
    fn listed(&self, arguments: &[&str]) -> Ran {
        let config = self.nodes[0].1.data().with_file_name("lessor.toml");
        Ran::from(lessor(&["nodes", "--config"]).arg(config).args(arguments).output().unwrap()).ok()
    }

    /// The list as JSON, once it is as expected.
    #[track_caller]
    fn until_listed(&self, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
        let until = Instant::now() + PATIENCE;
        loop {
            let listed = self.listed(&["--json"]).json();
            if is_so(&listed) {
                return listed;
            }
            assert!(Instant::now() < until, "never listed: {what}: {listed}");
        }
    }

    /// The list as text: the cells of each line of the table of shards, and of the table of nodes, by heading.
    fn tables(&self) -> [Vec<Value>; 2] {
        let text = self.listed(&[]).stdout;
        let (shards, nodes) = text.split_once("\n\n").unwrap_or_else(|| panic!("two tables: {text}"));
        [shards, nodes].map(cells_by_heading)
    }

    /// What was told about a task in words, and as JSON.
    fn explained(&self, task: &str) -> (String, Value) {
        let ledger = format!("postgres:{}", self.url);
        let explain = |arguments: &[&str]| {
            let mut command = lessor(&["log", "explain", task, "--ledger", &ledger]);
            Ran::from(command.args(arguments).output().unwrap()).ok()
        };
        (explain(&[]).stdout, explain(&["--json"]).json())
    }
}

/// The lines of a table, each with its cells by heading.
fn cells_by_heading(table: &str) -> Vec<Value> {
    let headings = table.lines().next().unwrap();
    let is_start =
        |at: &usize| *at == 0 || headings[..*at].ends_with("  ") && !headings[*at..].starts_with(' ');
    let starts: Vec<usize> = (0..headings.len()).filter(is_start).collect();
    let column = |line: &str, at: usize| {
        let end = starts.get(at + 1).map_or(line.len(), |end| (*end).min(line.len()));
        line.get(starts[at]..end).unwrap_or_default().trim().to_owned()
    };
    let cells = |line: &str| {
        let cells = (0..starts.len()).map(|at| (column(headings, at), json!(column(line, at))));
        Value::Object(cells.collect())
    };
    table.lines().skip(1).map(cells).collect()
}

/// The node of this name in a list.
fn node<'a>(listed: &'a Value, name: &str) -> &'a Value {
    let nodes = listed["nodes"].as_array().unwrap();
    nodes.iter().find(|node| node["node"] == name).unwrap_or(&Value::Null)
}

/// Whether the nodes that live are one owner and standbys that have everything, of which one is fed.
fn is_quiet(listed: &Value) -> bool {
    let nodes = listed["nodes"].as_array().unwrap().iter().filter(|node| node["silent"] == json!(false));
    let (owners, standbys): (Vec<_>, Vec<_>) = nodes.partition(|node| node["role"] == "owner");
    let fed = standbys.iter().filter(|node| node["fed"] == json!(true)).count();
    owners.len() == 1 && fed == standbys.len().min(1) && standbys.iter().all(|node| node["lag"] == 0)
}

fn shard(listed: &Value) -> &Value {
    assert_eq!(listed["shards"].as_array().unwrap().len(), 1, "{listed}");
    &listed["shards"][0]
}

#[test]
fn c1_the_list_of_nodes_and_the_timeline_of_a_task_name_each_owner_and_why_it_took_over() {
    let mut cluster = Cluster::start_with(&["a", "b", "c"], "drain_s = 1\n");
    let first = cluster.owner();
    let server = &cluster.nodes[0].1;
    let task = json!({"queue": "q", "payload": {}, "leaseMs": 600_000});
    let task = server.post("/v1/tasks", task)["taskId"].clone();
    let task = task.as_str().unwrap();
    let lease = server.lease("q");

    let listed = cluster.until_listed("a quiet cluster of three", |listed| {
        listed["nodes"].as_array().unwrap().len() == 3 && is_quiet(listed)
    });
    let begun = shard(&listed);
    assert_eq!((&begun["shard"], &begun["owner"], &begun["epoch"]), (&json!(0), &json!(first), &json!(1)));
    assert_eq!(begun["lastTakeover"], "nobody: there was no owner");
    assert!(begun["records"].as_u64().unwrap() >= 3 && begun["ownerForMs"].is_u64(), "{begun}");
    let owner = node(&listed, &first);
    assert_eq!((&owner["role"], &owner["lag"], &owner["fed"]), (&json!("owner"), &Value::Null, &Value::Null));

    cluster.take_owner().kill();
    let of_first = json!(first);
    let listed = cluster.until_listed("another owner", |listed| listed["shards"][0]["owner"] != of_first);
    let second = shard(&listed)["owner"].as_str().unwrap().to_owned();
    assert_eq!(shard(&listed)["epoch"], 2, "{listed}");
    let why = shard(&listed)["lastTakeover"].as_str().unwrap().to_owned();
    let ended = ["its session with the database ended", "its session with the database and its stream ended"];
    assert!(ended.map(|ended| format!("{first}: {ended}")).contains(&why), "{listed}");
    let listed = cluster.until_listed("the killed node is silent, and the other two are quiet", |listed| {
        node(listed, &first)["silent"] == json!(true) && is_quiet(listed)
    });
    assert_eq!(node(&listed, &first)["fed"], json!(false), "{listed}");
    let [shards, nodes] = cluster.tables();
    assert_eq!(
        (&shards[0]["SHARD"], &shards[0]["OWNER"], &shards[0]["EPOCH"], &shards[0]["TAKEN OVER FROM"]),
        (&json!("0"), &json!(second), &json!("2"), &json!(why))
    );
    let roles: Vec<(&str, &str)> =
        nodes.iter().map(|node| (node["NODE"].as_str().unwrap(), node["ROLE"].as_str().unwrap())).collect();
    let expected = ["a", "b", "c"].map(|name| {
        let role = match name {
            _ if *name == first => "silent",
            _ if *name == second => "owner",
            _ => "standby",
        };
        (name, role)
    });
    assert_eq!(roles, expected);
    let standby = nodes.iter().find(|node| node["ROLE"] == "standby").unwrap();
    assert_eq!((&standby["LAG"], &standby["FED"]), (&json!("0"), &json!("yes")), "{standby}");

    let leaving = cluster.take_owner();
    let (code, log) = leaving.terminate();
    assert_eq!(code, Some(0), "{log}");
    let of_second = json!(second);
    let listed = cluster
        .until_listed("the owner after the handover", |listed| listed["shards"][0]["owner"] != of_second);
    let (third, server) = &cluster.nodes[0];
    let left = shard(&listed);
    assert_eq!((&left["owner"], &left["epoch"]), (&json!(third), &json!(3)));
    assert_eq!(left["lastTakeover"], json!(format!("{second}: it handed over")));
    assert_eq!(
        (node(&listed, third)["role"].as_str(), node(&listed, &second)),
        (Some("owner"), &Value::Null)
    );
    let [shards, _] = cluster.tables();
    assert_eq!(shards[0]["TAKEN OVER FROM"], json!(format!("{second}: it handed over")));

    server.complete(&lease, json!("done"));
    let (words, told) = cluster.explained(task);
    let steps: Vec<(&str, &str)> = told["steps"]
        .as_array()
        .unwrap()
        .iter()
        .map(|step| (step["what"].as_str().unwrap(), step["owner"].as_str().unwrap()))
        .collect();
    let expected: [(&str, &str); 5] = [
        ("SUBMITTED", &first),
        ("LEASED", &first),
        ("COORDINATOR_RESTARTED", &second),
        ("COORDINATOR_RESTARTED", third),
        ("COMPLETED", third),
    ];
    assert_eq!(steps, expected, "{told}");
    let timeline = words.split_once("\n\n").unwrap().1.split_once("\n\n").unwrap().0;
    let lines = cells_by_heading(timeline);
    let owners: Vec<&str> = lines.iter().map(|line| line["OWNER"].as_str().unwrap()).collect();
    assert_eq!(owners, expected.map(|(_, owner)| owner), "{words}");
    for (before, owner, epoch) in [(&first, &second, 2), (&second, third, 3)] {
        let takeover = format!("node {owner} took over from node {before} (epoch {epoch})");
        assert!(words.contains(&takeover), "{takeover:?} is missing: {words}");
    }
}
