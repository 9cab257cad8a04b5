//! Both SDKs through TLS, with a client certificate.

use std::process::Command;
use std::time::Duration;

use lessor_sdk::protocol::Address;
use lessor_sdk::{Client, Credentials, Error, Submit, Task, TaskState, Worker};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::python;
use crate::support::Server;
use crate::support::certificates::Authority;

/// A server that lets in clients with a certificate, and the credentials of one.
fn start(dir: &TempDir) -> (Server, Credentials) {
    let ca = Authority::new("ours");
    let server = ca.issue(dir.path(), "server");
    let client = ca.issue(dir.path(), "client");
    let ca_file = ca.write(dir.path(), "ca.pem");
    Authority::new("another").write(dir.path(), "other.pem");
    let [certificate, key, ca] =
        [&server.certificate, &server.key, &ca_file].map(|path| path.to_str().unwrap().to_owned());
    let server = Server::start_with(&[
        "--no-worker",
        "--tls-certificate",
        &certificate,
        "--tls-key",
        &key,
        "--tls-client-ca",
        &ca,
        "--tls-client-certificates",
        "required",
    ]);
    let credentials = Credentials {
        ca_file: Some(ca_file),
        client_certificate: Some(client.certificate),
        client_key: Some(client.key),
        ..Credentials::default()
    };
    (server, credentials)
}

fn client(server: &Server, credentials: Credentials) -> Client {
    let address = Address { url: Some(server.url()), credentials, ..Address::default() };
    Client::with(&address).unwrap()
}

#[tokio::test]
async fn x21_the_rust_sdk_works_through_tls() {
    let dir = tempfile::tempdir().unwrap();
    let (server, credentials) = start(&dir);
    let worker = Worker::new().url(server.url()).credentials(credentials.clone()).without_signals();
    let stopper = worker.stopper();
    let worker = worker.handler("q", |task: Task| async move { task.payload::<Value>() });
    let working = tokio::spawn(worker.run());
    let good = client(&server, credentials.clone());
    let task = good.submit(Submit::new("q", &json!({"n": 1})).unwrap()).await.unwrap();
    let ended = good.wait(&task.task_id, Duration::from_secs(60)).await.unwrap();
    assert_eq!(ended.state, TaskState::Completed);
    stopper.stop();
    working.await.unwrap().unwrap();

    let other = Some(dir.path().join("other.pem"));
    for (bad, expected) in [
        (Credentials { ca_file: other, ..credentials.clone() }, "UnknownIssuer"),
        (Credentials { client_certificate: None, client_key: None, ..credentials }, "CertificateRequired"),
    ] {
        let bad = client(&server, bad).retry_for(Duration::from_secs(1));
        let error = bad.get(&task.task_id).await.unwrap_err();
        assert!(matches!(&error, Error::NoAnswer { why, .. } if why.contains(expected)), "{error}");
    }
}

/// Submits, works and looks, as the environment says.
const PYTHON: &str = "
import dataclasses, threading
import lessor
worker = lessor.Worker()
worker.handler('q')(lambda task: task.payload)
client = lessor.Client()
task = client.submit('q', {'n': 1})
def wait():
    assert client.wait(task.task_id).state is lessor.TaskState.COMPLETED
    worker.stop()
threading.Thread(target=wait, daemon=True).start()
worker.run()
for bad in (lessor.Credentials(ca_file='OTHER'), lessor.Credentials(client_certificate='OTHER')):
    try:
        lessor.Client(credentials=bad, retry_for_s=0.5).get(task.task_id)
        raise SystemExit('it was let in')
    except (lessor.NoAnswer, OSError) as error:
        print(type(error).__name__, error)
print('done')
";

#[test]
fn x21_the_python_sdk_works_through_tls() {
    let dir = tempfile::tempdir().unwrap();
    let (server, credentials) = start(&dir);
    let other = dir.path().join("other.pem");
    let mut command: Command = python::source();
    command
        .args(["-c", &PYTHON.replace("OTHER", other.to_str().unwrap())])
        .env("LESSOR_URL", server.url().replace("https://", "grpcs://"))
        .env("LESSOR_CA_FILE", credentials.ca_file.unwrap())
        .env("LESSOR_CLIENT_CERTIFICATE", credentials.client_certificate.unwrap())
        .env("LESSOR_CLIENT_KEY", credentials.client_key.unwrap());
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.ends_with("done\n"), "{text} {output:?}");
    assert!(text.contains("NoAnswer") && text.contains("certificate verify failed"), "{text}");
}
