//! What a start says to people: what was found, and the first time what to try next.

use std::io::Write;
use std::net::SocketAddr;

use coordinator::StartReport;

use crate::data_dir::DataDir;

/// Prints to standard output, and logs the same for machines. Nobody has to read it: a closed pipe is no error.
pub fn say(data: &DataDir, address: SocketAddr, report: &StartReport) {
    let took_ms = report.took.as_millis() as u64;
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        %address,
        data = %data.path().display(),
        tasks = report.tasks,
        replayed = report.replayed,
        epoch = report.epoch,
        took_ms,
        "serving"
    );
    let _ = std::io::stdout().lock().write_all(text(data, address, report).as_bytes());
}

fn text(data: &DataDir, address: SocketAddr, report: &StartReport) -> String {
    let (directory, version, ms) =
        (data.path().display(), env!("CARGO_PKG_VERSION"), report.took.as_millis());
    let found = match data.is_new {
        true => format!("created {directory}"),
        false => {
            let (tasks, records) = (count(report.tasks as u64, "task"), count(report.replayed, "record"));
            format!("{tasks} from {directory}, {records} replayed")
        }
    };
    let mut text = format!("Lessor {version} serves http://{address} ({found}, {ms} ms)\n");
    if let Some(dropped) = &report.opened.dropped {
        text += &format!(
            "A last batch that nobody had been told of was cut off by a crash and dropped: {dropped}.\n"
        );
    }
    for (name, why) in &report.opened.bad_snapshots {
        text +=
            &format!("Snapshot {name} cannot be used ({why}); an older one and the log were used instead.\n");
    }
    if data.is_new {
        text += &what_to_try(address);
    }
    text
}

fn what_to_try(address: SocketAddr) -> String {
    format!(
        r#"
Submit a task, lease it, and report on it:

  curl -s http://{address}/v1/tasks -d '{{"queue":"hello","payload":{{"name":"world"}}}}'
  curl -s http://{address}/v1/leases -d '{{"workerId":"w1","queues":["hello"]}}'
  curl -s http://{address}/v1/leases/LEASE_ID/complete -d '{{"workerId":"w1","result":"done"}}'
  curl -s http://{address}/v1/tasks/TASK_ID

Or build with it:

  bazel build //... --remote_executor=grpc://{address}

All calls: http://{address}/openapi.json. Stop with Ctrl-C.
"#
    )
}

fn count(number: u64, what: &str) -> String {
    match number {
        1 => format!("1 {what}"),
        many => format!("{many} {what}s"),
    }
}
