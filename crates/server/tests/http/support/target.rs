//! A push target as a user would run one: a real server that is told, dispatch by dispatch, what to answer.

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::Served;
use super::callback::Pushed;

/// A test that waits longer has failed.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Target {
    pub address: SocketAddr,
    arrived: mpsc::UnboundedReceiver<Arrived>,
    serving: JoinHandle<()>,
}

/// A dispatch that waits for its answer. Dropped, it is accepted; kept, it hangs.
pub(crate) struct Arrived {
    pub headers: HeaderMap,
    pub body: Bytes,
    pub pushed: Pushed,
    answer: oneshot::Sender<Response>,
}

impl Target {
    pub(crate) async fn start() -> Target {
        Target::start_at(TcpListener::bind("127.0.0.1:0").await.unwrap())
    }

    pub(crate) fn start_at(listener: TcpListener) -> Target {
        let address = listener.local_addr().unwrap();
        let (send, arrived) = mpsc::unbounded_channel();
        let router = Router::new().fallback(receive).with_state(send);
        let serving = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Target { address, arrived, serving }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/hook?a=b", self.address)
    }

    /// The next dispatch.
    pub(crate) async fn next(&mut self) -> Arrived {
        timeout(PATIENCE, self.arrived.recv()).await.expect("nothing arrived").unwrap()
    }

    /// Whether everything that was sent has been looked at.
    pub(crate) fn is_idle(&self) -> bool {
        self.arrived.is_empty()
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn receive(
    State(send): State<mpsc::UnboundedSender<Arrived>>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let envelope: Value = serde_json::from_slice(&body).unwrap();
    let text = |field: &str| envelope[field].as_str().unwrap().to_owned();
    let pushed = Pushed { task: text("taskId"), token: text("taskToken"), envelope };
    let (answer, answered) = oneshot::channel();
    let _ = send.send(Arrived { headers, body, pushed, answer });
    answered.await.unwrap_or_else(|_| StatusCode::ACCEPTED.into_response())
}

impl Arrived {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers[name].to_str().unwrap()
    }

    pub(crate) fn dispatch_id(&self) -> &str {
        self.pushed.envelope["dispatchId"].as_str().unwrap()
    }

    pub(crate) fn accept(self) -> Pushed {
        self.answer(StatusCode::ACCEPTED)
    }

    pub(crate) fn answer(self, answer: impl IntoResponse) -> Pushed {
        let _ = self.answer.send(answer.into_response());
        self.pushed
    }

    /// Accepts with an answer that never ends.
    pub(crate) fn answer_without_end(self) -> Pushed {
        let endless = tokio_stream::iter(std::iter::repeat_with(|| {
            Ok::<_, std::io::Error>(Bytes::from(vec![0; 8_192]))
        }));
        self.answer(Body::from_stream(endless))
    }
}

impl Served {
    /// Gives a queue a push target, with further settings.
    pub(crate) async fn push_to(&self, queue: &str, target: &Target, mut settings: Value) {
        let mut push = settings["push"].take();
        if push.is_null() {
            push = json!({});
        }
        push["url"] = json!(target.url());
        settings["push"] = push;
        let told = self.put(&format!("/v1/queues/{queue}"), settings).await;
        assert_eq!(told.status, 200, "{told:?}");
    }

    /// Begins a pushed task as a worker does, and ends it well.
    pub(crate) async fn work_off(&self, pushed: &Pushed) {
        assert_eq!(self.call(pushed, "started", pushed.started()).await.status, 200);
        self.call(pushed, "completed", pushed.succeeded(json!(1))).await.is_final("SUCCEEDED");
    }

    /// What the ledger says of a task, by kind.
    pub(crate) async fn kinds(&self, task: &str) -> Vec<String> {
        let told = self.get(&format!("/v1/tasks/{task}/history")).await;
        let events = told.body["events"].as_array().unwrap().iter();
        events.map(|event| event["type"].as_str().unwrap().to_owned()).collect()
    }
}
