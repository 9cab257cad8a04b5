//! Runs the short calls of an HTTP/2 connection in the task of that connection.
//!
//! The library spawns a task for each call. Its answer then wakes two tasks, one after the other, often on two threads.
//! Here the answer of a short call wakes the task of its connection once, which writes it in the same turn. Other calls
//! are spawned: those that may take long must not delay their connection, and many at once may use all cores.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Wake, Waker};

use futures_util::future::BoxFuture;
use futures_util::task::AtomicWaker;
use hyper::rt::Executor;

/// Most calls that run in the task of their connection at one time. Each turn polls all of them.
const MAX_SHORT_CALLS: usize = 4;
/// Most turns before other tasks have theirs. A task whose budget is spent is woken again at once, without end.
const MAX_TURNS: usize = 4;

/// Decides where the calls of one connection run. Clones are the same.
#[derive(Clone, Default)]
pub(super) struct Calls(Arc<Shared>);

#[derive(Default)]
struct Shared {
    /// Whether the call that is executed next is short.
    is_next_short: AtomicBool,
    /// Short calls that have begun and not ended.
    running: AtomicUsize,
    /// Short calls that the task has not taken yet.
    begun: Mutex<Vec<BoxFuture<'static, ()>>>,
}

impl Calls {
    /// Announces the next call. The library executes a call as soon as the service has returned its future, and hides from the
    /// executor what the call is.
    pub(super) fn announce(&self, is_short: bool) {
        self.0.is_next_short.store(is_short, Ordering::Relaxed);
    }

    fn begun(&self) -> MutexGuard<'_, Vec<BoxFuture<'static, ()>>> {
        self.0.begun.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Calls {
    fn execute(&self, call: F) {
        let is_short = self.0.is_next_short.swap(false, Ordering::Relaxed);
        if is_short && self.0.running.load(Ordering::Relaxed) < MAX_SHORT_CALLS {
            self.0.running.fetch_add(1, Ordering::Relaxed);
            self.begun().push(Box::pin(call));
        } else {
            tokio::spawn(call);
        }
    }
}

/// A connection and the short calls on it, which end with it.
pub(super) struct ConnectionTask<'a, C> {
    connection: Pin<&'a mut C>,
    calls: Calls,
    running: Vec<BoxFuture<'static, ()>>,
    task: Arc<Task>,
    connection_signal: Signal,
    calls_signal: Signal,
}

impl<'a, C: Future> ConnectionTask<'a, C> {
    pub(super) fn new(connection: Pin<&'a mut C>, calls: Calls) -> ConnectionTask<'a, C> {
        let task = Arc::new(Task::default());
        let [connection_signal, calls_signal] = [(); 2].map(|()| Signal::new(&task));
        connection_signal.raise();
        ConnectionTask { connection, calls, running: Vec::new(), task, connection_signal, calls_signal }
    }

    /// Changes the connection, which is polled after that.
    pub(super) fn change(&mut self, change: impl FnOnce(Pin<&mut C>)) {
        change(self.connection.as_mut());
        self.connection_signal.raise();
    }

    /// Polls what was woken; what the calls send is written after them.
    fn turn(&mut self) -> Poll<C::Output> {
        if self.calls_signal.lower() {
            let mut context = Context::from_waker(&self.calls_signal.waker);
            let before = self.running.len();
            self.running.retain_mut(|call| call.as_mut().poll(&mut context).is_pending());
            self.calls.0.running.fetch_sub(before - self.running.len(), Ordering::Relaxed);
        }
        if self.connection_signal.lower() {
            let mut context = Context::from_waker(&self.connection_signal.waker);
            let ended = self.connection.as_mut().poll(&mut context);
            let mut begun = self.calls.begun();
            if !begun.is_empty() {
                self.running.append(&mut begun);
                self.calls_signal.raise();
            }
            return ended;
        }
        Poll::Pending
    }
}

impl<C: Future> Future for ConnectionTask<'_, C> {
    type Output = C::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<C::Output> {
        self.task.waker.register(context.waker());
        self.task.is_polled.store(true, Ordering::SeqCst);
        for _ in 0..MAX_TURNS {
            if let Poll::Ready(ended) = self.turn() {
                return Poll::Ready(ended);
            }
            if !self.connection_signal.is_raised() && !self.calls_signal.is_raised() {
                break;
            }
        }
        self.task.is_polled.store(false, Ordering::SeqCst);
        // Raised while nobody would have woken the task, or once more than there are turns.
        if self.connection_signal.is_raised() || self.calls_signal.is_raised() {
            context.waker().wake_by_ref();
        }
        Poll::Pending
    }
}

#[derive(Default)]
struct Task {
    waker: AtomicWaker,
    /// While it is polled it sees a signal by itself.
    is_polled: AtomicBool,
}

/// Says that something must be polled.
struct Signal {
    flag: Arc<Flag>,
    waker: Waker,
}

struct Flag {
    is_raised: AtomicBool,
    task: Arc<Task>,
}

impl Signal {
    fn new(task: &Arc<Task>) -> Signal {
        let flag = Arc::new(Flag { is_raised: AtomicBool::new(false), task: task.clone() });
        Signal { waker: Waker::from(flag.clone()), flag }
    }

    fn raise(&self) {
        self.flag.is_raised.store(true, Ordering::SeqCst);
    }

    fn is_raised(&self) -> bool {
        self.flag.is_raised.load(Ordering::SeqCst)
    }

    fn lower(&self) -> bool {
        self.flag.is_raised.swap(false, Ordering::SeqCst)
    }
}

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.is_raised.store(true, Ordering::SeqCst);
        if !self.task.is_polled.load(Ordering::SeqCst) {
            self.task.waker.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::pin::pin;
    use std::time::Duration;

    use tokio::sync::mpsc;
    use tokio::task::{id, yield_now};
    use tokio::time::timeout;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(60);

    /// Serves a connection that begins these calls, and ends when `done` does.
    async fn serve<F>(calls: Vec<(bool, F)>, done: impl Future<Output = ()>)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let executor = Calls::default();
        let connection = async {
            for (is_short, call) in calls {
                executor.announce(is_short);
                executor.execute(call);
            }
            done.await;
        };
        timeout(PATIENCE, ConnectionTask::new(pin!(connection), executor.clone())).await.unwrap();
    }

    #[tokio::test]
    async fn a_few_short_calls_run_in_the_task_of_their_connection_and_all_others_in_their_own() {
        let served = tokio::spawn(async {
            let (sender, mut receiver) = mpsc::channel(16);
            let call = |name: usize| {
                let sender = sender.clone();
                async move {
                    // Still running when the others begin.
                    yield_now().await;
                    sender.send((name, id())).await.unwrap();
                }
            };
            let mut calls = vec![(false, call(0))];
            calls.extend((1..=MAX_SHORT_CALLS + 1).map(|name| (true, call(name))));
            let expected = calls.len();
            serve(calls, async move {
                for _ in 0..expected {
                    let (name, task) = receiver.recv().await.unwrap();
                    assert_eq!(task == id(), (1..=MAX_SHORT_CALLS).contains(&name), "call {name}");
                }
            })
            .await;
        });
        served.await.unwrap();
    }

    #[tokio::test]
    async fn what_a_short_call_causes_on_its_connection_is_done_in_the_same_turn() {
        let (sender, mut receiver) = mpsc::channel(1);
        let executor = Calls::default();
        let connection = async {
            executor.announce(true);
            executor.execute(async move { sender.send(()).await.unwrap() });
            receiver.recv().await
        };
        let connection = pin!(connection);
        let mut served = pin!(ConnectionTask::new(connection, executor.clone()));
        let first = poll_fn(|context| Poll::Ready(served.as_mut().poll(context))).await;
        assert_eq!(first, Poll::Ready(Some(())));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn no_wake_of_another_thread_is_lost() {
        const MESSAGES: usize = 20_000;
        let served = (0..2).map(|_| {
            tokio::spawn(async {
                let (to_call, mut in_call) = mpsc::channel(1);
                let (to_connection, mut in_connection) = mpsc::channel(1);
                tokio::spawn(async move {
                    for message in 0..MESSAGES {
                        to_call.send(message).await.unwrap();
                    }
                });
                let call = async move {
                    while let Some(message) = in_call.recv().await {
                        to_connection.send(message).await.unwrap();
                    }
                };
                serve(vec![(true, call)], async move {
                    for expected in 0..MESSAGES {
                        assert_eq!(in_connection.recv().await, Some(expected));
                    }
                })
                .await;
            })
        });
        for served in served.collect::<Vec<_>>() {
            served.await.unwrap();
        }
    }

    #[tokio::test]
    async fn a_call_that_never_rests_lets_others_have_their_turn() {
        let (sender, mut receiver) = mpsc::channel(1);
        tokio::spawn(async move { sender.send(()).await.unwrap() });
        let restless = poll_fn(|context| {
            context.waker().wake_by_ref();
            Poll::<()>::Pending
        });
        serve(vec![(true, restless)], async move { receiver.recv().await.unwrap() }).await;
    }
}
