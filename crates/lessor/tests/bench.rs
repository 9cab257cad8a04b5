//! The benchmarks run and their figures make sense. How fast anything is, is no business of a test.

mod support;

use serde_json::Value;
use support::{Ran, lessor};

#[test]
fn remote_execution_is_measured_in_every_mode() {
    let dir = tempfile::tempdir().unwrap();
    let mut command = lessor(&["bench", "reapi", "--json", "--seconds", "2", "--clients", "2"]);
    command.args(["--stream-mib", "2", "--dir"]).arg(dir.path());
    let output = Ran::from(command.output().unwrap()).ok().stdout;
    let lines: Vec<Value> = output.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for (mode, figure, has_goal) in [
        ("limits", "fdatasync_per_s", false),
        ("limits", "noop_per_s", false),
        ("limits", "processes_per_s", false),
        ("limits", "sha256_mb_per_s", false),
        ("execute", "executions_per_s", false),
        ("execute", "p50_ms", false),
        ("execute", "server_rss_mib", false),
        ("execute-sandbox", "p50_ms", false),
        ("execute-sandbox", "times_bare", true),
        ("action-result", "hits_per_s", true),
        ("batch-write", "blobs_per_s", true),
        ("batch-read", "blobs_per_s", true),
        ("stream-write", "mb_per_s", true),
        ("stream-read", "mb_per_s", true),
        ("find-missing", "digests_per_s", true),
    ] {
        let line = lines.iter().find(|line| line["mode"] == mode && line.get(figure).is_some());
        let line = line.unwrap_or_else(|| panic!("{mode} has no {figure}: {output}"));
        assert_eq!(line["bench"], "reapi");
        assert!(line["clients"].as_u64().unwrap() > 0, "{line}");
        assert!(line[figure].as_f64().unwrap() > 0.0, "{line}");
        assert_eq!(line["share_of_goal"].as_f64().is_some_and(|share| share > 0.0), has_goal, "{line}");
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "nothing is left behind");
}

#[test]
fn a_protected_server_is_measured_by_clients_with_keys_over_tls() {
    let dir = tempfile::tempdir().unwrap();
    for (bench, figure) in [
        (&["cycle", "--transport", "http", "--clients", "2", "--seconds", "1"][..], "cycles_per_s"),
        (&["reapi", "--only", "action-result", "--seconds", "1"][..], "hits_per_s"),
    ] {
        let mut command = lessor(&["bench", "--json", "--dir"]);
        command.arg(dir.path()).args(bench).args(["--protect", "keys-tls"]);
        let output = Ran::from(command.output().unwrap()).ok().stdout;
        let line: Value = serde_json::from_str(output.trim()).unwrap();
        assert_eq!(line["protection"], "keys-tls", "{line}");
        assert!(line[figure].as_f64().unwrap() > 0.0, "{line}");
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "nothing is left behind");
}

#[test]
fn one_tenant_is_measured_alone_and_beside_one_that_floods() {
    let dir = tempfile::tempdir().unwrap();
    let mut command = lessor(&["bench", "fairness", "--json", "--seconds", "1", "--rounds", "1"]);
    command.args(["--limit", "10", "--steady", "10", "--dir"]).arg(dir.path());
    let output = Ran::from(command.output().unwrap()).ok().stdout;
    let lines: Vec<Value> = output.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let phase = |name: &str| {
        let line = lines.iter().find(|line| line["phase"] == name);
        line.unwrap_or_else(|| panic!("there is no phase {name}: {output}"))
    };
    for name in ["alone", "flooded"] {
        let (p50, p99) = (phase(name)["p50_ms"].as_f64().unwrap(), phase(name)["p99_ms"].as_f64().unwrap());
        assert!(p50 > 0.0 && p99 >= p50, "{output}");
    }
    assert!(phase("flooded")["flood_refused_per_s"].as_f64().unwrap() > 0.0, "{output}");
    for kind in ["submits", "polls", "uploads", "executions"] {
        let per_s = phase("flooded")[format!("flood_{kind}_per_s")].as_f64().unwrap();
        assert!(per_s > 0.0, "{kind}: {output}");
    }
    assert!(phase("median")["p99_ratio"].as_f64().unwrap() > 0.0, "{output}");
    assert!(phase("median")["limited_requests"].as_u64().unwrap() > 0, "{output}");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "nothing is left behind");
}
