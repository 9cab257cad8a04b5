//! Both SDKs through TLS, with a client certificate and an API key.

use std::process::Command;
use std::time::Duration;

use lessor_sdk::protocol::Address;
use lessor_sdk::{ApiKey, Client, Credentials, Error, Submit, Task, TaskState, Worker};
use serde_json::{Value, json};

use crate::python;
use crate::support::Server;
use crate::support::certificates::Authority;
use crate::support::protected::Protected;

/// A server that admits clients with a certificate and a key, and the credentials of one.
fn start() -> (Protected, Credentials) {
    let protected = Protected::start(&["--no-worker"]);
    Authority::new("another").write(protected.files.path(), "other.pem");
    let key = protected.key(&["worker", "submitter"]);
    let credentials = Credentials {
        ca_file: Some(protected.ca_file.clone()),
        client_certificate: Some(protected.client.certificate.clone()),
        client_key: Some(protected.client.key.clone()),
        api_key: ApiKey::new(&key),
        ..Credentials::default()
    };
    (protected, credentials)
}

fn client(server: &Server, credentials: Credentials) -> Client {
    let address = Address { url: Some(server.url()), credentials, ..Address::default() };
    Client::with(&address).unwrap()
}

#[tokio::test]
async fn x21_the_rust_sdk_works_through_tls() {
    let (protected, credentials) = start();
    let server = &protected.server;
    let worker = Worker::new().url(server.url()).credentials(credentials.clone()).without_signals();
    let stopper = worker.stopper();
    let worker = worker.handler("q", |task: Task| async move { task.payload::<Value>() });
    let working = tokio::spawn(worker.run());
    let good = client(server, credentials.clone());
    let task = good.submit(Submit::new("q", &json!({"n": 1})).unwrap()).await.unwrap();
    let ended = good.wait(&task.task_id, Duration::from_secs(60)).await.unwrap();
    assert_eq!(ended.state, TaskState::Completed);
    stopper.stop();
    working.await.unwrap().unwrap();

    let keyless = client(server, Credentials { api_key: None, ..credentials.clone() });
    let error = keyless.get(&task.task_id).await.unwrap_err();
    assert!(error.to_string().contains("needs an API key"), "{error}");
    let other = Some(protected.files.path().join("other.pem"));
    for (bad, expected) in [
        (Credentials { ca_file: other, ..credentials.clone() }, "UnknownIssuer"),
        (Credentials { client_certificate: None, client_key: None, ..credentials }, "CertificateRequired"),
    ] {
        let bad = client(server, bad).retry_for(Duration::from_secs(1));
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
try:
    lessor.Client(credentials=lessor.Credentials(api_key='lsk_0')).get(task.task_id)
    raise SystemExit('it was let in')
except lessor.LessorError as error:
    print(error)
print('done')
";

#[test]
fn x21_the_python_sdk_works_through_tls() {
    let (protected, credentials) = start();
    let other = protected.file("other.pem");
    let key_file = protected.files.path().join("api.key");
    std::fs::write(&key_file, protected.key(&["submitter", "worker"])).unwrap();
    let mut command: Command = python::source();
    command
        .args(["-c", &PYTHON.replace("OTHER", &other)])
        .env("LESSOR_API_KEY_FILE", key_file)
        .env("LESSOR_URL", protected.server.url().replace("https://", "grpcs://"))
        .env("LESSOR_CA_FILE", credentials.ca_file.unwrap())
        .env("LESSOR_CLIENT_CERTIFICATE", credentials.client_certificate.unwrap())
        .env("LESSOR_CLIENT_KEY", credentials.client_key.unwrap());
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.ends_with("done\n"), "{text} {output:?}");
    assert!(text.contains("NoAnswer") && text.contains("certificate verify failed"), "{text}");
    assert!(text.contains("the API key is not valid"), "{text}");
}
