//! The limits of every gRPC call: the caller's deadline and ours, no long pauses in the request, and a share of the
//! memory for requests, from the first byte to the answer.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{Request, State};
use axum::http::HeaderMap;
use axum::middleware::Next;
use axum::response::Response;
use hyper::body::{Frame, SizeHint};
use tokio::time::{Instant, Sleep, sleep, timeout};
use tonic::Status;
use wire::grpc::SERVICE_NAMES;
use wire::grpc::codec::{MemoryBudget, within};

use crate::app::App;
use crate::convert::{Code, Problem};
use crate::edge::bodies::BodyMemory;
use crate::edge::limits;
use crate::edge::receiving::MinThroughput;

/// Longest pause between two questions about the services.
const MAX_REFLECTION_PAUSE: Duration = Duration::from_secs(60);
/// The call whose request is a blob of any size.
const BYTE_STREAM_WRITE: &str = "/google.bytestream.ByteStream/Write";
/// The caller's deadline, as gRPC has it: at most eight digits and a unit.
const TIMEOUT_HEADER: &str = "grpc-timeout";
const MAX_TIMEOUT_DIGITS: usize = 8;

/// When the caller stops waiting, if it said so.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline(pub Instant);

pub(crate) async fn guard(State(app): State<App>, mut request: Request, next: Next) -> Response {
    let given = match timeout_of(request.headers()) {
        Ok(given) => given,
        Err(status) => return status.into_http(),
    };
    if let Some(deadline) = given.and_then(|given| Instant::now().checked_add(given)) {
        request.extensions_mut().insert(Deadline(deadline));
    }
    let receiving = app.bodies.receiving;
    let tenant = limits::tenant_of(app.auth, request.extensions(), request.headers());
    let budget = Arc::new(BodyBudget { memory: Mutex::new(app.bodies.memory(&tenant)) });
    let path = request.uri().path();
    let mut max_call = given.unwrap_or(receiving.max_call).min(receiving.max_call);
    let mut throughput = None;
    let max_pause = if path == BYTE_STREAM_WRITE {
        // An upload may be as long as it likes while it goes on; its pieces are gone once they are stored.
        max_call = given.unwrap_or(Duration::MAX);
        throughput = Some(MinThroughput::new(receiving));
        Some(receiving.max_pause)
    } else if path.ends_with("/Work") {
        // A worker may be silent for as long as its registration lasts, which the stream itself watches.
        None
    } else if path.starts_with("/grpc.reflection.") {
        Some(MAX_REFLECTION_PAUSE)
    } else {
        Some(receiving.max_pause)
    };
    request.extensions_mut().insert(budget.clone());
    let charged = budget.clone();
    let request =
        request.map(|body| Body::new(BudgetedBody { body, budget, max_pause, throughput, pause: None }));
    match timeout(max_call, within(charged, next.run(request))).await {
        Ok(response) => response,
        Err(_) => Status::deadline_exceeded("the call took longer than it may").into_http(),
    }
}

/// Whether a request is a call of a worker that waits for the coordinator or computes for a moment, and has a small answer.
pub(super) fn is_short_call<B>(request: &hyper::Request<B>) -> bool {
    let call = request.uri().path().strip_prefix('/').and_then(|path| path.split_once('/'));
    call.is_some_and(|(service, call)| SERVICE_NAMES.contains(&service) && call != "Work")
}

fn timeout_of(headers: &HeaderMap) -> Result<Option<Duration>, Status> {
    let Some(value) = headers.get(TIMEOUT_HEADER) else { return Ok(None) };
    let read = || {
        let (digits, unit) = value.to_str().ok()?.split_at_checked(value.len().checked_sub(1)?)?;
        let well_formed =
            digits.len() <= MAX_TIMEOUT_DIGITS && digits.bytes().all(|digit| digit.is_ascii_digit());
        let count: u64 = digits.parse().ok().filter(|_| well_formed)?;
        match unit {
            "H" => Some(Duration::from_secs(count * 3_600)),
            "M" => Some(Duration::from_secs(count * 60)),
            "S" => Some(Duration::from_secs(count)),
            "m" => Some(Duration::from_millis(count)),
            "u" => Some(Duration::from_micros(count)),
            "n" => Some(Duration::from_nanos(count)),
            _ => None,
        }
    };
    read().map(Some).ok_or_else(|| Status::invalid_argument("grpc-timeout: is not a timeout"))
}

/// The memory that one call's request takes of what there is for all.
pub(crate) struct BodyBudget {
    memory: Mutex<BodyMemory>,
}

impl MemoryBudget for BodyBudget {
    /// Takes memory for a part of the request as it arrives, and for what it becomes: decoded, decompressed.
    fn charge(&self, bytes: usize) -> Result<(), Status> {
        if self.memory().take(bytes) {
            Ok(())
        } else {
            let detail = "too many large requests are being received at once";
            Err(Problem::new(Code::Overloaded, detail).into())
        }
    }
}

impl BodyBudget {
    /// What arrived so far was read and is gone.
    pub(crate) fn give_back(&self) {
        self.memory().give_back();
    }

    fn memory(&self) -> MutexGuard<'_, BodyMemory> {
        self.memory.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// A request's body that is budgeted and must not pause for too long.
struct BudgetedBody {
    body: Body,
    budget: Arc<BodyBudget>,
    max_pause: Option<Duration>,
    /// Of a request that may take as long as it likes while it goes on.
    throughput: Option<MinThroughput>,
    pause: Option<(Instant, Pin<Box<Sleep>>)>,
}

impl HttpBody for BudgetedBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        match Pin::new(&mut self.body).poll_frame(context) {
            Poll::Ready(Some(Ok(frame))) => {
                let waited = self.pause.take().map_or(Duration::ZERO, |(since, _)| since.elapsed());
                if let (Some(throughput), Some(data)) = (&mut self.throughput, frame.data_ref()) {
                    throughput.received(data.len(), waited);
                }
                let charged = frame.data_ref().map_or(Ok(()), |data| self.budget.charge(data.len()));
                Poll::Ready(Some(charged.map(|()| frame)))
            }
            Poll::Ready(Some(Err(error))) => {
                Poll::Ready(Some(Err(Status::cancelled(format!("the request broke off: {error}")))))
            }
            Poll::Ready(None) => Poll::Ready(None),
            Poll::Pending => {
                let Some(max_pause) = self.max_pause else { return Poll::Pending };
                let patience = self.throughput.as_ref().map_or(max_pause, MinThroughput::next_timeout);
                let (_, pause) =
                    self.pause.get_or_insert_with(|| (Instant::now(), Box::pin(sleep(patience))));
                match pause.as_mut().poll(context) {
                    Poll::Ready(()) => {
                        Poll::Ready(Some(Err(Status::deadline_exceeded("the request came too slowly"))))
                    }
                    Poll::Pending => Poll::Pending,
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;
    use http_body_util::BodyExt;

    use super::*;
    use crate::edge::receiving::Receiving;

    /// A body that says nothing, or one thing and then nothing.
    struct Silent(Option<Bytes>);

    impl HttpBody for Silent {
        type Data = Bytes;
        type Error = std::convert::Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, std::convert::Infallible>>> {
            match self.0.take() {
                Some(bytes) => Poll::Ready(Some(Ok(Frame::data(bytes)))),
                None => Poll::Pending,
            }
        }
    }

    fn budgeted(body: Silent) -> (App, BudgetedBody) {
        let storage = ledger::memory::MemoryStorage::default().open();
        let running = coordinator::start(storage, coordinator::Options::default()).unwrap();
        let app = App::new(running.handle, [7; 32]);
        let budget = Arc::new(BodyBudget { memory: Mutex::new(app.bodies.memory(&Arc::from("t"))) });
        (
            app,
            BudgetedBody {
                body: Body::new(body),
                budget,
                max_pause: Some(Receiving::default().max_pause),
                throughput: None,
                pause: None,
            },
        )
    }

    #[tokio::test(start_paused = true)]
    async fn a5_a_request_that_pauses_too_long_is_cut() {
        let (_, mut body) = budgeted(Silent(Some(Bytes::from_static(b"x"))));
        assert!(body.frame().await.unwrap().is_ok());
        let began = Instant::now();
        let status = body.frame().await.unwrap().unwrap_err();
        assert_eq!(status.code(), tonic::Code::DeadlineExceeded);
        assert!(began.elapsed() <= Receiving::default().max_pause + Duration::from_secs(1));
    }

    #[tokio::test]
    async fn all_requests_together_are_bounded_and_give_their_room_back() {
        let (app, mut body) = budgeted(Silent(Some(Bytes::from_static(&[b'x'; 3_000]))));
        let all_but_three = (256 * 1_024 - 3) * 1_024;
        let mut others = app.bodies.memory(&Arc::from("others"));
        assert!(others.take(all_but_three), "this much is there for all");
        assert!(body.frame().await.unwrap().is_ok());
        let more = |piece: &'static [u8]| BudgetedBody {
            body: Body::new(Silent(Some(Bytes::from_static(piece)))),
            budget: body.budget.clone(),
            max_pause: None,
            throughput: None,
            pause: None,
        };
        for _ in 3_000..3 * 1_024 {
            assert!(more(b"y").frame().await.unwrap().is_ok(), "tiny pieces take no more than their bytes");
        }
        let status = more(b"y").frame().await.unwrap().unwrap_err();
        assert_eq!(status.code(), tonic::Code::ResourceExhausted);
        drop(body);
        assert!(app.bodies.memory(&Arc::from("t")).take(3 * 1_024), "the room is given back");
    }

    #[test]
    fn calls_of_workers_are_short_and_their_streams_and_blobs_are_not() {
        let is_short = |path: &str| is_short_call(&hyper::Request::builder().uri(path).body(()).unwrap());
        for service in SERVICE_NAMES {
            assert!(is_short(&format!("http://localhost/{service}/LeaseTask")));
            assert!(!is_short(&format!("http://localhost/{service}/Work")));
        }
        for other in [BYTE_STREAM_WRITE, "/v1/leases", "/", "*", "/grpc.health.v1.Health/Watch"] {
            assert!(!is_short(other), "{other}");
        }
    }

    #[test]
    fn a_deadline_has_at_most_eight_digits_and_a_unit() {
        let read = |value: &'static str| {
            timeout_of(&HeaderMap::from_iter([(
                TIMEOUT_HEADER.parse().unwrap(),
                HeaderValue::from_static(value),
            )]))
        };
        assert_eq!(timeout_of(&HeaderMap::new()).unwrap(), None);
        assert_eq!(read("5S").unwrap(), Some(Duration::from_secs(5)));
        assert_eq!(read("99999999H").unwrap(), Some(Duration::from_secs(99_999_999 * 3_600)));
        assert_eq!(read("250m").unwrap(), Some(Duration::from_millis(250)));
        for bad in ["", "S", "5", "5s", "-5S", "+5S", "123456789S", "5 S"] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}
