//! The banner that a start prints: what was found in the data directory and, the first time, what to try next.

use std::io::Write;

use coordinator::StartReport;

use crate::client::show::text::counted;
use crate::data_dir::DataDir;
use crate::serving::Address;

/// Where remote executions run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Execution {
    /// In this process.
    Embedded,
    /// In worker processes, which somebody has to start.
    External,
    /// Nowhere: this server is a cache.
    Disabled,
}

/// Prints the banner to standard output and logs the same fields. A closed pipe is not an error.
pub(crate) fn print(
    data: &DataDir,
    address: &Address,
    (report, notices): (&StartReport, &[String]),
    execution: Execution,
) {
    let took_ms = report.took.as_millis() as u64;
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        address = %address.listening,
        tls = address.is_tls,
        data = %data.path().display(),
        tasks = report.tasks,
        replayed = report.replayed,
        epoch = report.epoch,
        took_ms,
        "serving"
    );
    let _ =
        std::io::stdout().lock().write_all(render(data, address, (report, notices), execution).as_bytes());
}

fn render(
    data: &DataDir,
    address: &Address,
    (report, notices): (&StartReport, &[String]),
    execution: Execution,
) -> String {
    let (directory, version, ms) =
        (data.path().display(), env!("CARGO_PKG_VERSION"), report.took.as_millis());
    let found = if report.epoch == 0 {
        format!("joined the cluster, {}", counted(report.tasks, "task"))
    } else if data.is_new {
        format!("created {directory}")
    } else {
        let (tasks, records) = (counted(report.tasks, "task"), counted(report.replayed as usize, "record"));
        format!("{tasks} from {directory}, {records} replayed")
    };
    let url = address.url();
    let mut text = format!("Lessor {version} serves {url} ({found}, {ms} ms)\n");
    for notice in notices {
        text += &format!("{notice}\n");
    }
    if data.is_new {
        text += &next_steps(address, execution);
    }
    text
}

fn next_steps(address: &Address, execution: Execution) -> String {
    let url = address.url();
    let (curl, bazel, worker) = if address.is_tls {
        (" --cacert CA", " --tls_certificate=CA", " --ca-file CA")
    } else {
        ("", "", "")
    };
    let grpc = if address.is_tls { "grpcs" } else { "grpc" };
    let build = format!("  bazel build //... --remote_executor={grpc}://{}{bazel}\n\n", address.listening);
    let build = match execution {
        Execution::Embedded => format!("Or build with it:\n\n{build}"),
        Execution::External => format!(
            "Or build with it, once a worker runs beside it:\n\n  \
             lessor worker daemon --server-url {url}{worker}\n{build}"
        ),
        Execution::Disabled => String::new(),
    };
    let note = if address.is_tls { "CA is the file of the CA that signed the certificate. " } else { "" };
    format!(
        r#"
Submit a task, lease it, and report on it:

  curl -s{curl} {url}/v1/tasks -d '{{"queue":"hello","payload":{{"name":"world"}}}}'
  curl -s{curl} {url}/v1/leases -d '{{"workerId":"w1","queues":["hello"]}}'
  curl -s{curl} {url}/v1/leases/LEASE_ID/complete -d '{{"workerId":"w1","result":"done"}}'
  curl -s{curl} {url}/v1/tasks/TASK_ID

{build}{note}The API: {url}/openapi.json. Stop with Ctrl-C.
"#
    )
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;

    #[test]
    fn the_next_steps_fit_where_executions_run() {
        let listening = SocketAddr::from(([127, 0, 0, 1], 8980));
        let address = &Address { listening, is_tls: false };
        for (execution, builds, starts_worker) in [
            (Execution::Embedded, true, false),
            (Execution::External, true, true),
            (Execution::Disabled, false, false),
        ] {
            let text = next_steps(address, execution);
            assert_eq!(text.contains("bazel build"), builds, "{text}");
            assert_eq!(text.contains("lessor worker daemon"), starts_worker, "{text}");
            assert!(text.contains("\n\nThe API: "), "{text}");
            let tls = next_steps(&Address { listening, is_tls: true }, execution);
            assert!(!tls.contains("http://") && !tls.contains("grpc://"), "{tls}");
            assert!(tls.contains("curl -s --cacert CA https://127.0.0.1:8980/v1/tasks"), "{tls}");
        }
    }
}
