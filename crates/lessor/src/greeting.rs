//! What a start says to people: what was found, and the first time what to try next.

use std::io::Write;
use std::net::SocketAddr;

use coordinator::StartReport;
use ledger::file::OpenReport;

use crate::data_dir::DataDir;

/// Who runs what is sent to be executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Execution {
    Here,
    /// Workers of their own, which somebody has to start.
    Elsewhere,
    /// Nobody: this is a cache.
    Off,
}

/// Prints to standard output, and logs the same for machines. Nobody has to read it: a closed pipe is no error.
pub fn say(
    data: &DataDir,
    address: SocketAddr,
    (report, opened): (&StartReport, &OpenReport),
    execution: Execution,
) {
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
    let _ = std::io::stdout().lock().write_all(text(data, address, (report, opened), execution).as_bytes());
}

fn text(
    data: &DataDir,
    address: SocketAddr,
    (report, opened): (&StartReport, &OpenReport),
    execution: Execution,
) -> String {
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
    if let Some(dropped) = &opened.dropped {
        text += &format!(
            "A last batch that nobody had been told of was cut off by a crash and dropped: {dropped}.\n"
        );
    }
    for (name, why) in &opened.bad_snapshots {
        text +=
            &format!("Snapshot {name} cannot be used ({why}); an older one and the log were used instead.\n");
    }
    if data.is_new {
        text += &what_to_try(address, execution);
    }
    text
}

fn what_to_try(address: SocketAddr, execution: Execution) -> String {
    let build = format!("  bazel build //... --remote_executor=grpc://{address}\n\n");
    let build = match execution {
        Execution::Here => format!("Or build with it:\n\n{build}"),
        Execution::Elsewhere => format!(
            "Or build with it, once a worker runs beside it:\n\n  \
             lessor worker daemon --server-url http://{address}\n{build}"
        ),
        Execution::Off => String::new(),
    };
    format!(
        r#"
Submit a task, lease it, and report on it:

  curl -s http://{address}/v1/tasks -d '{{"queue":"hello","payload":{{"name":"world"}}}}'
  curl -s http://{address}/v1/leases -d '{{"workerId":"w1","queues":["hello"]}}'
  curl -s http://{address}/v1/leases/LEASE_ID/complete -d '{{"workerId":"w1","result":"done"}}'
  curl -s http://{address}/v1/tasks/TASK_ID

{build}The API: http://{address}/openapi.json. Stop with Ctrl-C.
"#
    )
}

fn count(number: u64, what: &str) -> String {
    match number {
        1 => format!("1 {what}"),
        many => format!("{many} {what}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_to_try_is_what_would_work() {
        let address = SocketAddr::from(([127, 0, 0, 1], 8980));
        for (execution, builds, starts_worker) in [
            (Execution::Here, true, false),
            (Execution::Elsewhere, true, true),
            (Execution::Off, false, false),
        ] {
            let text = what_to_try(address, execution);
            assert_eq!(text.contains("bazel build"), builds, "{text}");
            assert_eq!(text.contains("lessor worker daemon"), starts_worker, "{text}");
            assert!(text.contains("\n\nThe API: "), "{text}");
        }
    }
}
