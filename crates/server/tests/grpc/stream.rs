//! Work: leases by credit, reports in batches, and every way in which the stream can end.

use std::time::Duration;

use bytes::Bytes;
use coordinator::Registration;
use serde_json::json;
use server::Scheduler;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Request, Status, Streaming};
use wire::grpc::{
    LeaseHeartbeat, LeasedTask, RegisterWorkerRequest, SubmitTask, SubmitTasksRequest, TaskStatus,
    UpdateTaskStatusRequest, Verdict, WorkHello, WorkRequest, WorkResponse, WorkerState,
};

use crate::support::{
    Served, ask, completed, in_time, is_refused, lease, registration, scope, submit, task, update,
};

/// A worker at its end of the stream.
struct Worker {
    to: Option<mpsc::Sender<WorkRequest>>,
    from: Streaming<WorkResponse>,
}

fn hello(worker: RegisterWorkerRequest, credit: u32) -> WorkRequest {
    let hello = WorkHello { worker: Some(worker), queues: vec!["q".to_owned()] };
    WorkRequest { hello: Some(hello), credit, ..WorkRequest::default() }
}

fn reports(reports: Vec<UpdateTaskStatusRequest>, credit: u32) -> WorkRequest {
    WorkRequest { reports, credit, ..WorkRequest::default() }
}

impl Worker {
    async fn open(served: &Served, first: WorkRequest) -> Worker {
        Worker::open_with(served, first, None).await
    }

    async fn open_with(served: &Served, first: WorkRequest, deadline: Option<Duration>) -> Worker {
        let (to, receiver) = mpsc::channel(8);
        to.send(first).await.unwrap();
        let mut request = Request::new(ReceiverStream::new(receiver));
        if let Some(deadline) = deadline {
            request.set_timeout(deadline);
        }
        let from = served.client().await.work(request).await.unwrap().into_inner();
        Worker { to: Some(to), from }
    }

    /// A worker `w` that was welcomed.
    async fn welcomed(served: &Served, credit: u32) -> Worker {
        let mut worker = Worker::open(served, hello(registration("w"), credit)).await;
        assert!(worker.next().await.welcome.is_some());
        worker
    }

    async fn say(&self, message: WorkRequest) {
        self.to.as_ref().unwrap().send(message).await.unwrap();
    }

    async fn hear(&mut self) -> Result<Option<WorkResponse>, Status> {
        in_time(self.from.message()).await
    }

    async fn next(&mut self) -> WorkResponse {
        self.hear().await.unwrap().expect("the stream goes on")
    }

    /// Tasks, until there are as many.
    async fn tasks(&mut self, wanted: usize) -> Vec<LeasedTask> {
        let mut tasks = Vec::new();
        while tasks.len() < wanted {
            tasks.extend(self.next().await.tasks);
        }
        tasks
    }
}

async fn submit_many(served: &Served, count: usize) {
    let tasks = SubmitTasksRequest { tasks: vec![task("q"); count] };
    served.client().await.submit_tasks(tasks).await.unwrap();
}

#[tokio::test]
async fn a_worker_gets_as_many_tasks_as_it_gave_credit_for_and_an_answer_to_each_report() {
    work_by_credit().await;
}

#[tokio::test]
async fn a_worker_holds_its_stream_at_a_node_that_does_not_own_the_ledger() {
    crate::support::nodes::through_an_edge(work_by_credit()).await;
}

async fn work_by_credit() {
    let served = Served::start().await;
    submit_many(&served, 5).await;
    let mut worker = Worker::welcomed(&served, 2).await;
    let first = worker.tasks(2).await;
    assert_eq!(first.len(), 2);
    let told = reports(first.iter().map(|task| completed("", task, r#"{"n":1}"#)).collect(), 2);
    worker.say(told).await;
    let (mut answers, mut second) = (Vec::new(), Vec::new());
    while answers.len() < 2 || second.len() < 2 {
        let message = worker.next().await;
        answers.extend(message.reports);
        second.extend(message.tasks);
    }
    assert_eq!((answers.len(), second.len()), (2, 2));
    for (answer, task) in answers.iter().zip(&first) {
        assert_eq!(answer.lease_id, task.lease_id, "answers come in the order of the reports");
        assert_eq!(answer.answer.as_ref().unwrap().verdict(), Verdict::Committed);
        assert_eq!(served.task(&task.task_id).await["state"], "COMPLETED");
    }
    let queue = served.get("/v1/queues/q").await;
    assert_eq!(queue["counts"]["waiting"], 1, "nothing beyond the credit is leased: {queue}");
}

#[tokio::test]
async fn each_report_of_a_batch_is_judged_on_its_own() {
    let served = Served::start().await;
    submit_many(&served, 2).await;
    let mut worker = Worker::welcomed(&served, 2).await;
    let held = worker.tasks(2).await;
    let forged = UpdateTaskStatusRequest { lease_id: "x".repeat(60), ..completed("w", &held[0], "1") };
    let release = UpdateTaskStatusRequest { release: true, ..update("", &held[1], TaskStatus::Unknown) };
    let batch = vec![
        update("w", &held[0], TaskStatus::Executing),
        forged,
        completed("w", &held[0], "{"),
        completed("w", &held[0], "1"),
        completed("w", &held[0], "1"),
        completed("w", &held[0], "2"),
        completed("v", &held[0], "1"),
        release,
        completed("w", &held[1], "1"),
    ];
    worker.say(reports(batch, 0)).await;
    let answers = worker.next().await.reports;
    let told: Vec<_> = answers
        .iter()
        .map(|answer| {
            let problem = answer.problem.as_ref().map(|problem| problem.code.as_str());
            (answer.answer.as_ref().unwrap().verdict(), problem)
        })
        .collect();
    let expected = [
        (Verdict::Unspecified, None),
        (Verdict::Rejected, Some("bad_lease_id")),
        (Verdict::Rejected, Some("invalid_field")),
        (Verdict::Committed, None),
        (Verdict::Committed, None),
        (Verdict::Rejected, Some("conflicting_report")),
        (Verdict::Rejected, Some("bad_lease_id")),
        (Verdict::Unspecified, None),
        (Verdict::Cancelled, None),
    ];
    assert_eq!(told, expected);
}

#[tokio::test]
async fn heartbeats_extend_leases_and_tell_of_cancels() {
    let served = Served::start().await;
    submit_many(&served, 1).await;
    let mut worker = Worker::welcomed(&served, 1).await;
    let held = worker.tasks(1).await.remove(0);
    served.send("POST", &format!("/v1/tasks/{}/cancel", held.task_id), json!({"reason": "enough"})).await;
    let beat = |lease_id: &str| LeaseHeartbeat { lease_id: lease_id.to_owned(), ..LeaseHeartbeat::default() };
    let heartbeats = vec![beat(&held.lease_id), beat("x")];
    worker.say(WorkRequest { heartbeats, state: WorkerState::Busy.into(), ..WorkRequest::default() }).await;
    let leases = worker.next().await.leases;
    assert_eq!((leases[0].should_cancel, leases[0].cancel_reason.as_str()), (true, "enough"));
    assert!(leases[1].lost && leases[1].problem.is_some());
    assert_eq!(served.known("w").await["registration"]["state"], "BUSY");
}

#[tokio::test]
async fn a_stream_begins_with_its_hello_and_has_but_one() {
    let served = Served::start().await;
    let mut nameless = Worker::open(&served, WorkRequest::default()).await;
    is_refused(nameless.hear().await, Code::InvalidArgument, "invalid_field");
    let mut bad = Worker::open(&served, hello(registration(""), 1)).await;
    is_refused(bad.hear().await, Code::InvalidArgument, "invalid_field");
    let mut twice = Worker::welcomed(&served, 0).await;
    twice.say(hello(registration("w"), 0)).await;
    is_refused(twice.hear().await, Code::InvalidArgument, "invalid_field");
}

#[tokio::test]
async fn a_message_with_too_much_in_it_ends_the_stream_and_nothing_of_it_is_done() {
    let served = Served::start().await;
    submit_many(&served, 1).await;
    let mut worker = Worker::welcomed(&served, 1).await;
    let held = worker.tasks(1).await.remove(0);
    worker.say(reports(vec![completed("w", &held, "1"); 1_001], 0)).await;
    is_refused(worker.hear().await, Code::InvalidArgument, "invalid_field");
    assert_eq!(served.task(&held.task_id).await["state"], "LEASED");
    let mut worker = Worker::welcomed(&served, 0).await;
    let large = Bytes::from(format!("\"{}\"", "x".repeat(5 << 20)));
    worker
        .say(reports(vec![UpdateTaskStatusRequest { result_json: large, ..completed("w", &held, "") }], 0))
        .await;
    assert_eq!(worker.hear().await.unwrap_err().code(), Code::OutOfRange, "a message is at most 4 MiB");
}

#[tokio::test]
async fn a_half_closed_stream_is_answered_to_its_end() {
    let served = Served::start().await;
    submit_many(&served, 1).await;
    let mut worker = Worker::welcomed(&served, 5).await;
    let held = worker.tasks(1).await.remove(0);
    worker.say(reports(vec![completed("w", &held, "1")], 0)).await;
    worker.to = None;
    let mut verdicts = Vec::new();
    while let Some(message) = worker.hear().await.unwrap() {
        verdicts.extend(message.reports.into_iter().map(|answer| answer.answer.unwrap().verdict()));
    }
    assert_eq!(verdicts, [Verdict::Committed]);
    let task_id = served.submit("q").await;
    let mut other = served.worker("v").await;
    assert_eq!(lease(&mut other, "v", "q").await.task_id, task_id, "its credit went with it");
}

#[tokio::test]
async fn a_worker_that_hangs_up_loses_no_task() {
    let served = Served::start().await;
    let worker = Worker::welcomed(&served, 5).await;
    served.polls(1).await;
    drop(worker);
    let task_id = served.submit("q").await;
    let mut other = served.worker("v").await;
    let leased = in_time(async {
        loop {
            let leased = other.lease_task(ask("v", "q")).await.unwrap().into_inner().tasks;
            if let Some(task) = leased.into_iter().next() {
                return task;
            }
        }
    })
    .await;
    assert_eq!(leased.task_id, task_id);
}

#[tokio::test]
async fn a_stop_ends_streams_and_their_leases_live_on() {
    let mut served = Served::start().await;
    submit_many(&served, 1).await;
    let mut worker = Worker::welcomed(&served, 5).await;
    let held = worker.tasks(1).await.remove(0);
    served.begin_stop();
    assert_eq!(worker.hear().await.unwrap_err().code(), Code::Unavailable);
    drop(worker);
    let served = served.restart().await;
    let mut worker = Worker::welcomed(&served, 0).await;
    worker.say(reports(vec![completed("w", &held, "1")], 0)).await;
    assert_eq!(worker.next().await.reports[0].answer.as_ref().unwrap().verdict(), Verdict::Committed);
}

#[tokio::test]
async fn a_session_that_was_replaced_is_told_to_stop() {
    let served = Served::start().await;
    let session =
        |session: &str| RegisterWorkerRequest { session_id: session.to_owned(), ..registration("w") };
    let mut old = Worker::open(&served, hello(session("old"), 5)).await;
    assert!(old.next().await.welcome.is_some());
    served.polls(1).await;
    let mut new = Worker::open(&served, hello(session("new"), 0)).await;
    assert!(new.next().await.welcome.is_some());
    let task_id = served.submit("q").await;
    assert!(old.next().await.should_shutdown);
    is_refused(old.hear().await, Code::FailedPrecondition, "superseded");
    new.say(reports(Vec::new(), 1)).await;
    assert_eq!(new.tasks(1).await[0].task_id, task_id, "the new session gets the task");
}

/// Only another session says that this one should stop; who is merely forgotten comes back and goes on.
#[tokio::test]
async fn a_worker_that_was_pushed_out_of_the_registry_is_told_to_register_and_not_to_stop() {
    let served = Served::start().await;
    let session = RegisterWorkerRequest { session_id: "s".to_owned(), ..registration("w") };
    let mut worker = Worker::open(&served, hello(session.clone(), 5)).await;
    assert!(worker.next().await.welcome.is_some());
    served.polls(1).await;
    let (handle, scope) = (&served.running.handle, scope());
    for n in 0..10_000 {
        let other = Registration { registered_at: handle.now(), ..Registration::default() };
        handle.local_registry().unwrap().register(
            &scope,
            &format!("other-{n}").into(),
            other,
            handle.now().plus_ms(1),
        );
    }
    let task_id = served.submit("q").await;
    is_refused(worker.hear().await, Code::FailedPrecondition, "not_registered");
    let mut worker = Worker::open(&served, hello(session, 5)).await;
    assert!(worker.next().await.welcome.is_some());
    assert_eq!(worker.tasks(1).await[0].task_id, task_id, "what it could not be given was given back");
}

#[tokio::test]
async fn s3_38_a_silent_stream_ends() {
    let scheduler = Scheduler { heartbeat_timeout: Duration::from_millis(50), ..Scheduler::default() };
    let served = Served::start_with(scheduler).await;
    let mut worker = Worker::welcomed(&served, 5).await;
    is_refused(worker.hear().await, Code::FailedPrecondition, "not_registered");
    served.submit("q").await;
    let queue = served.get("/v1/queues/q").await;
    assert_eq!(queue["counts"]["waiting"], 1, "{queue}");
}

#[tokio::test]
async fn a_stream_ends_at_its_callers_deadline() {
    let served = Served::start().await;
    let deadline = Some(Duration::from_secs(5));
    let mut worker = Worker::open_with(&served, hello(registration("w"), 1), deadline).await;
    assert!(worker.next().await.welcome.is_some());
    let code = worker.hear().await.unwrap_err().code();
    assert!(matches!(code, Code::DeadlineExceeded | Code::Cancelled), "{code:?}");
}

#[tokio::test]
async fn a_draining_worker_gets_nothing_more_and_reports_what_it_has() {
    let served = Served::start().await;
    submit_many(&served, 2).await;
    let mut worker = Worker::welcomed(&served, 1).await;
    let held = worker.tasks(1).await.remove(0);
    let draining =
        WorkRequest { state: WorkerState::Draining.into(), ..reports(vec![completed("w", &held, "1")], 5) };
    worker.say(draining).await;
    let message = worker.next().await;
    assert_eq!((message.reports.len(), message.tasks.len()), (1, 0));
    assert_eq!(served.get("/v1/queues/q").await["counts"]["waiting"], 1);
}

#[tokio::test]
async fn large_tasks_come_in_messages_that_clients_can_read() {
    let served = Served::start().await;
    let mut client = served.client().await;
    let large = Bytes::from(format!("\"{}\"", "x".repeat(1_000_000)));
    for _ in 0..6 {
        submit(&mut client, SubmitTask { payload: large.clone(), ..task("q") }).await;
    }
    let mut worker = Worker::welcomed(&served, 100).await;
    assert_eq!(worker.tasks(6).await.len(), 6);
}

/// The stream of a session that was replaced: its words are not the new one's, its reports are answered, and it ends.
#[tokio::test]
async fn w11_a_stream_that_was_replaced_speaks_for_nobody_and_ends() {
    let served = Served::start().await;
    let old = RegisterWorkerRequest { session_id: "old".to_owned(), ..registration("w") };
    let mut stream = Worker::open(&served, hello(old, 1)).await;
    assert!(stream.next().await.welcome.is_some());
    let task_id = submit(&mut served.client().await, task("q")).await;
    let held = stream.tasks(1).await.pop().unwrap();
    let new = RegisterWorkerRequest { session_id: "new".to_owned(), ..registration("w") };
    served.client().await.register_worker(new).await.unwrap();
    let last = WorkRequest {
        state: WorkerState::Draining.into(),
        reports: vec![completed("w", &held, "1")],
        ..WorkRequest::default()
    };
    stream.say(last).await;
    let answer = stream.next().await;
    let verdict = answer.reports.first().and_then(|answer| answer.answer.as_ref()).unwrap().verdict();
    assert_eq!(verdict, Verdict::Cancelled, "its lease was given back");
    is_refused(stream.hear().await, Code::FailedPrecondition, "superseded");
    assert_eq!(served.known("w").await["registration"]["state"], "IDLE");
    let mut client = served.client().await;
    assert_eq!(lease(&mut client, "w", "q").await.task_id, task_id);
}
