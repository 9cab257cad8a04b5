//! `/metrics` and health of the real binary: what is counted, that Prometheus' own tool finds nothing wrong with it, and
//! that no text of a client becomes a label.

mod support;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};

use serde_json::json;
use support::{Server, lessor};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

/// The text at an address, which must be there.
fn text(url: &str) -> String {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let response = client.get(url).send().await.unwrap();
        assert!(response.status().is_success(), "{url}: {}", response.status());
        assert!(
            response.headers()["content-type"].to_str().unwrap().starts_with("text/plain; version=0.0.4")
        );
        response.text().await.unwrap()
    })
}

/// The figures, by name and labels.
struct Figures(BTreeMap<String, f64>);

impl Figures {
    fn of(server: &Server) -> Figures {
        Figures::read(&text(&format!("{}/metrics", server.url())))
    }

    fn read(text: &str) -> Figures {
        let mut figures = BTreeMap::new();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let (name, value) = line.rsplit_once(' ').unwrap();
            let before = figures.insert(name.to_owned(), value.parse().unwrap());
            assert!(before.is_none(), "{name} is there twice");
        }
        Figures(figures)
    }

    #[track_caller]
    fn are(&self, expected: &[(&str, f64)]) {
        for (name, value) in expected {
            assert_eq!(self.0.get(*name), Some(value), "{name} in {:#?}", self.0);
        }
    }
}

/// What Prometheus' own tool has to say.
fn checked(text: &str) {
    let mut command = Command::new("promtool");
    command.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("promtool is there: `cargo xtask test` installs it");
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    assert!(output.status.success() && text.trim().is_empty(), "{text}");
}

/// A worker that shows its figures, killed when it is dropped.
struct Worker {
    child: Child,
    url: String,
}

impl Worker {
    fn start(server: &Server) -> Worker {
        let mut command =
            lessor(&["worker", "daemon", "--id", "w1", "--slots", "3", "--metrics", "127.0.0.1:0"]);
        let mut child = command
            .args(["--server-url", &server.url(), "--work-dir"])
            .arg(server.data().with_file_name("worker"))
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut lines = lines.map(|line| serde_json::from_str::<serde_json::Value>(&line.unwrap()).unwrap());
        let line = lines.find(|line| line["message"] == "metrics are shown").expect("it says where");
        std::thread::spawn(move || lines.for_each(drop));
        Worker { child, url: format!("http://{}", line["address"].as_str().unwrap()) }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn start(arguments: &[&str]) -> Server {
    Server::start_in(tempfile::tempdir().unwrap(), "127.0.0.1:0", &[&["--no-worker"], arguments].concat())
}

/// What a server without TLS does not show.
const ONLY_WITH_TLS: &str = "# TYPE lessor_tls_certificate_expiry_seconds gauge\n";

#[test]
fn s3_57_58_the_figures_follow_the_tasks() {
    let server = start(&["--metrics-queue", "mail"]);
    Figures::of(&server).are(&[
        ("lessor_queue_length", 0.0),
        ("lessor_completed_tasks_total", 0.0),
        ("lessor_verdicts_total{verdict=\"REJECTED\"}", 0.0),
        ("lessor_queue_depth{queue=\"mail\"}", 0.0),
        ("lessor_queue_time_seconds_count", 0.0),
        ("lessor_avg_queue_time_seconds", 0.0),
        ("lessor_avg_execution_time_seconds", 0.0),
    ]);
    for (queue, n) in [("mail", 1), ("mail", 2), ("mail", 3), ("post", 4)] {
        server.post("/v1/tasks", json!({"queue": queue, "payload": n, "leaseMs": 3_600_000}));
    }
    let before = Figures::of(&server);
    before.are(&[
        ("lessor_queue_length", 4.0),
        ("lessor_queue_depth{queue=\"mail\"}", 3.0),
        ("lessor_queue_depth{queue=\"exec\"}", 0.0),
        ("lessor_queue_depth{queue=\"other\"}", 1.0),
        ("lessor_submitted_tasks_total", 4.0),
        ("lessor_active_tasks", 0.0),
        ("lessor_kept_tasks", 4.0),
        ("lessor_disk_full", 0.0),
    ]);
    let leases: Vec<_> = (0..3).map(|_| server.lease("mail")).collect();
    Figures::of(&server).are(&[("lessor_active_tasks", 3.0), ("lessor_queue_length", 1.0)]);
    server.complete(&leases[0], json!(1));
    server.complete(&leases[0], json!(1));
    server.fail(&leases[1], "no");
    let id = leases[2]["leaseId"].as_str().unwrap();
    server.post(&format!("/v1/leases/{id}/release"), json!({"workerId": "w1"}));
    let after = Figures::of(&server);
    after.are(&[
        ("lessor_active_tasks", 0.0),
        ("lessor_queue_length", 2.0),
        ("lessor_completed_tasks_total", 1.0),
        ("lessor_failed_tasks_total", 1.0),
        ("lessor_granted_leases_total", 3.0),
        ("lessor_released_leases_total", 1.0),
        ("lessor_verdicts_total{verdict=\"COMMITTED\"}", 3.0),
        ("lessor_queue_time_seconds_count", 3.0),
        ("lessor_execution_time_seconds_count", 2.0),
    ]);
    for name in [
        "lessor_ledger_position",
        "lessor_ledger_sync_seconds_count",
        "lessor_received_bytes_total",
        "lessor_sent_bytes_total",
        "lessor_accepted_connections_total",
        "lessor_state_bytes",
    ] {
        assert!(after.0[name] > before.0[name], "{name}");
    }
    assert!(after.0["lessor_connections"] >= 1.0);
    for time in ["queue_time", "execution_time"] {
        let figure = |name: String| after.0[name.as_str()];
        let sum = figure(format!("lessor_{time}_seconds_sum"));
        let expected = sum / figure(format!("lessor_{time}_seconds_count"));
        assert!((figure(format!("lessor_avg_{time}_seconds")) - expected).abs() < 1e-6, "S3-57: {time}");
    }
    let records = after.0["lessor_ledger_batch_records_sum"];
    assert_eq!(records, after.0["lessor_ledger_position"], "every record was in a batch that was counted");
}

#[test]
fn s3_57_expiries_and_deaths_are_counted_by_cause() {
    let server = start(&[]);
    let task = json!({"queue": "q", "payload": 1, "leaseMs": 100, "maxAttempts": 1});
    let task = server.post("/v1/tasks", task)["taskId"].as_str().unwrap().to_owned();
    server.lease("q");
    assert_eq!(server.get(&format!("/v1/tasks/{task}?waitMs=30000"))["state"], "DEAD");
    Figures::of(&server).are(&[
        ("lessor_expired_leases_total{cause=\"silence\"}", 1.0),
        ("lessor_expired_leases_total{cause=\"timeout\"}", 0.0),
        ("lessor_dead_tasks_total{reason=\"HEARTBEAT_TIMEOUT\"}", 1.0),
    ]);
}

#[test]
fn s3_58_promtool_finds_nothing_wrong_and_the_caches_are_counted() {
    let server = start(&[]);
    let worker = Worker::start(&server);
    let outputs = tempfile::tempdir().unwrap();
    let directory = outputs.path().to_str().unwrap();
    for _ in 0..2 {
        let script = ["--output", "out", "--output-dir", directory, "--", "sh", "-c", "echo x > out"];
        server.run(&[&["run", "-q"], &script[..]].concat()).ok();
    }
    server.run(&["run", "-q", "--", "sh", "-c", "exit 3"]);
    let text_of_server = text(&format!("{}/metrics", server.url()));
    checked(&text_of_server);
    let figures = Figures::read(&text_of_server);
    figures.are(&[
        ("lessor_registered_workers", 1.0),
        ("lessor_action_cache_lookups_total{result=\"hit\"}", 1.0),
        ("lessor_action_cache_lookups_total{result=\"miss\"}", 2.0),
        ("lessor_completed_tasks_total", 2.0),
    ]);
    assert!(figures.0["lessor_content_lookups_total{result=\"miss\"}"] >= 2.0);
    assert!(figures.0["lessor_content_written_bytes_total"] > 0.0);
    let text_of_worker = text(&format!("{}/metrics", worker.url));
    checked(&text_of_worker);
    let figures = Figures::read(&text_of_worker);
    figures.are(&[
        ("lessor_worker_slots", 3.0),
        ("lessor_worker_running_commands", 0.0),
        ("lessor_worker_commands_total{end=\"success\"}", 1.0),
        ("lessor_worker_commands_total{end=\"failure\"}", 1.0),
        ("lessor_worker_command_time_seconds_count", 2.0),
        ("lessor_worker_content_failures_total", 0.0),
    ]);
    assert!(figures.0["lessor_worker_downloaded_bytes_total"] > 0.0);
    assert_eq!(
        documented(),
        exported_metrics(&[text_of_server, text_of_worker, ONLY_WITH_TLS.to_owned()]),
        "docs/metrics.md and what is shown agree"
    );
}

/// Names and types as docs/metrics.md has them.
fn documented() -> Vec<(String, String)> {
    let document = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md");
    let document = std::fs::read_to_string(document).unwrap();
    let rows = document.lines().filter_map(|line| line.strip_prefix("| `lessor_"));
    let mut rows: Vec<_> = rows
        .map(|row| {
            let mut cells = row.split('|').map(str::trim);
            let name = cells.next().unwrap().trim_end_matches('`');
            (format!("lessor_{name}"), cells.next().unwrap().to_owned())
        })
        .collect();
    rows.sort();
    rows
}

fn exported_metrics(texts: &[String]) -> Vec<(String, String)> {
    let lines = texts.iter().flat_map(|text| text.lines());
    let types = lines.filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    let mut types: Vec<_> = types.map(|(name, kind)| (name.to_owned(), kind.to_owned())).collect();
    types.sort();
    types
}

#[test]
fn x20_hostile_names_of_queues_and_workers_become_no_labels() {
    let server = start(&["--metrics-queue", "a \"quoted\\\" name"]);
    let series = Figures::of(&server).0.len();
    for n in 0..150 {
        let queue = format!("q{n}\"}} 1 \\ ü");
        server.post("/v1/tasks", json!({"queue": queue, "payload": n, "leaseMs": 3_600_000}));
        let poll = json!({"workerId": format!("w{n}\"}}"), "queues": [queue], "waitMs": 0});
        server.post("/v1/leases", poll);
    }
    server.post("/v1/tasks", json!({"queue": "a \"quoted\\\" name", "payload": 0}));
    let after = text(&format!("{}/metrics", server.url()));
    checked(&after);
    let figures = Figures::read(&after);
    assert_eq!(figures.0.len(), series, "{after}");
    figures.are(&[
        ("lessor_queue_depth{queue=\"other\"}", 0.0),
        ("lessor_active_tasks", 150.0),
        ("lessor_queue_depth{queue=\"a \\\"quoted\\\\\\\" name\"}", 1.0),
    ]);
}

#[test]
fn s3_60_health_tells_the_scheduler_and_the_workers() {
    let server = start(&[]);
    assert_eq!(server.get("/healthz")["status"], "ok");
    assert_eq!(server.get("/readyz")["status"], "ready");
    let health = |service: &str| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let channel = tonic::transport::Endpoint::from_shared(server.url()).unwrap();
            let mut client = HealthClient::new(channel.connect().await.unwrap());
            let asked = HealthCheckRequest { service: service.to_owned() };
            client.check(asked).await.map(|answer| answer.into_inner().status())
        })
    };
    for service in ["", "lessor.Scheduler", "build.bazel.remote.execution.v2.Execution"] {
        assert_eq!(health(service).unwrap(), ServingStatus::Serving, "{service}");
    }
    assert_eq!(health("lessor.Workers").unwrap(), ServingStatus::NotServing);
    assert_eq!(health("lessor.Nobody").unwrap_err().code(), tonic::Code::NotFound);
    let _worker = Worker::start(&server);
    server.run(&["run", "-q", "--", "true"]).ok();
    assert_eq!(health("lessor.Workers").unwrap(), ServingStatus::Serving);
}
