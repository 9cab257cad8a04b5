//! The worker's obligations in the worker contract, number by number, as its coordinator sees them: a proxy between the
//! two records every request. The Python SDK has the same tests in sdk/python/tests/test_worker_contract.py.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use lessor_sdk::{Category, Failure, Submit, Task, TaskState};
use serde_json::{Value, json};

use crate::fixture::{End, Ended, Fixture, QUEUE, Working};
use crate::support::proxy::{Action, Exchange, Request};

/// Short enough to be outlived, long enough for a busy machine not to lose it by accident.
const SHORT_LEASE_MS: u64 = 4_000;
/// Often, so that the answer of a heartbeat comes soon.
const INTERVAL_MS: u64 = 50;

fn calls(exchanges: &[Exchange]) -> Vec<String> {
    exchanges.iter().map(|exchange| exchange.request.call().to_owned()).collect()
}

fn reports(exchanges: &[Exchange]) -> Vec<String> {
    exchanges.iter().filter(|e| e.request.is_report()).map(|e| e.request.call().to_owned()).collect()
}

fn bodies(exchanges: &[Exchange], call: &str) -> Vec<Vec<u8>> {
    exchanges.iter().filter(|e| e.request.call() == call).map(|e| e.request.body.clone()).collect()
}

/// Does this to the first requests of one kind and lets all others pass.
fn first(count: usize, call: &'static str, action: Action) -> impl Fn(&Request, usize) -> Action {
    let seen = AtomicUsize::new(0);
    move |request, _| {
        if request.call() == call && seen.fetch_add(1, Ordering::SeqCst) < count {
            action.clone()
        } else {
            Action::Pass
        }
    }
}

fn answer(status: u16) -> Action {
    Action::Answer(status, "retry-after: 0", "{}".to_owned())
}

/// What was logged, line by line.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    /// One for all tests: a log of one thread would miss what another thread was the first to say.
    fn of_this_process() -> Log {
        static LOG: OnceLock<Log> = OnceLock::new();
        let start = || {
            let log = Log::default();
            let writer = log.clone();
            tracing_subscriber::fmt().json().with_writer(move || writer.clone()).init();
            log
        };
        LOG.get_or_init(start).clone()
    }

    fn lines(&self) -> Vec<Value> {
        let log = self.0.lock().unwrap();
        log.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect()
    }
}

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

async fn payload_back(task: Task) -> Result<Value, Failure> {
    task.payload()
}

#[tokio::test]
async fn s0_3_a_worker_leases_runs_reports_and_obeys() {
    let fixture = Fixture::start();
    let id = fixture.submit(json!({"n": 20})).await;
    let working = Working::start(fixture.worker().handler(QUEUE, |task: Task| async move {
        let payload: Value = task.payload()?;
        Ok(payload["n"].as_u64().ok_or_else(|| Failure::data_quality("n"))? + 1)
    }));
    assert_eq!(fixture.result(&id).await, 21);
    assert_eq!(fixture.ended.verdicts(1).await, ["COMMITTED"]);
    working.end().await;
}

#[tokio::test]
async fn s0_8_after_committed_nothing_more_is_said_and_the_place_is_free() {
    let fixture = Fixture::start();
    let ids = [fixture.submit(json!(1)).await, fixture.submit(json!(2)).await];
    let proxy = fixture.witness().await;
    let working = Working::start(fixture.worker().url(&proxy.url).handler(QUEUE, payload_back));
    let ends = fixture.ended.wait(2).await;
    working.end().await;
    for end in ends {
        assert_eq!(end.verdict, "COMMITTED");
        assert_eq!(calls(&proxy.of_lease(end.task.lease_id())), ["complete"]);
    }
    for id in ids {
        assert_eq!(fixture.client.get(&id).await.unwrap().attempt, 1);
    }
}

#[tokio::test]
async fn s0_13_after_cancelled_all_is_dropped_and_nothing_repeated() {
    let fixture = Fixture::start();
    let id = fixture.submit(json!(null)).await;
    let proxy = fixture.witness().await;
    let back = fixture.direct_calls();
    let working = Working::start(fixture.worker().url(&proxy.url).handler(QUEUE, move |task: Task| {
        let back = back.clone();
        async move {
            if task.attempt() == 1 {
                back.send(&task, "release", json!({"workerId": "w"})).await;
            }
            Ok(format!("of attempt {}", task.attempt()))
        }
    }));
    let ends = fixture.ended.wait(2).await;
    working.end().await;
    assert_eq!((ends[0].verdict, ends[1].verdict), ("CANCELLED", "COMMITTED"));
    let lost = &ends[0].task;
    assert!(lost.is_cancelled() && lost.is_lease_lost());
    assert_eq!(calls(&proxy.of_lease(lost.lease_id())), ["complete"]);
    assert_eq!(fixture.result(&id).await, "of attempt 2");
}

#[tokio::test]
async fn s0_15_rejected_is_logged_surfaced_and_not_repeated() {
    let fixture = Fixture::start();
    let log = Log::of_this_process();
    let id = fixture.submit(json!(null)).await;
    let proxy = fixture.witness().await;
    let back = fixture.direct_calls();
    let working = Working::start(fixture.worker().url(&proxy.url).handler(QUEUE, move |task: Task| {
        let back = back.clone();
        async move {
            back.send(&task, "complete", json!({"workerId": "w", "result": "another story"})).await;
            Ok("this story")
        }
    }));
    let End { verdict, code, .. } = fixture.ended.wait(1).await.remove(0);
    working.end().await;
    assert_eq!((verdict, code.as_deref()), ("REJECTED", Some("conflicting_report")));
    assert_eq!(reports(&proxy.exchanges()), ["complete"]);
    assert_eq!(fixture.result(&id).await, "another story");
    let lines = log.lines();
    let line = lines.iter().find(|line| line["span"]["id"] == id && line["level"] == "ERROR").unwrap();
    assert!(line["fields"]["message"].as_str().unwrap().starts_with("rejected"), "{line}");
    assert_eq!(line["span"]["attempt"], 1);
}

#[tokio::test]
async fn s0_16_a_handler_that_ignores_a_lost_lease_has_its_result_discarded() {
    let fixture = Fixture::start();
    fixture.configure(json!({"heartbeatIntervalMs": INTERVAL_MS})).await;
    fixture.submit(json!(null)).await;
    let proxy = fixture.witness().await;
    let back = fixture.direct_calls();
    let working = Working::start(fixture.worker().url(&proxy.url).handler(QUEUE, move |task: Task| {
        let back = back.clone();
        async move {
            if task.attempt() == 1 {
                back.send(&task, "release", json!({"workerId": "w"})).await;
                // The answer of a heartbeat says that the lease is gone.
                task.cancelled().await;
                assert!(task.is_lease_lost() && task.checkpoint().is_err());
                let reason = task.cancel_reason();
                assert_eq!(reason.as_deref(), Some("the coordinator says that the lease is over"));
            }
            Ok("ignored")
        }
    }));
    let ends = fixture.ended.wait(2).await;
    working.end().await;
    assert_eq!((ends[0].verdict, ends[1].verdict), ("LOST", "COMMITTED"));
    assert_eq!(reports(&proxy.of_lease(ends[0].task.lease_id())), [""; 0]);
}

#[tokio::test]
async fn s0_16_when_its_own_clock_runs_out_a_worker_stops_unasked() {
    let fixture = Fixture::start();
    fixture.configure(json!({"leaseMs": SHORT_LEASE_MS})).await;
    let id = fixture.submit(json!(null)).await;
    let is_cut_off = Arc::new(AtomicBool::new(true));
    let seen = is_cut_off.clone();
    let rule = move |request: &Request, _| {
        if request.call() == "heartbeat" && seen.load(Ordering::SeqCst) {
            Action::Refuse
        } else {
            Action::Pass
        }
    };
    let proxy = fixture.proxy(rule).await;
    let working = Working::start(fixture.worker().url(&proxy.url).handler(QUEUE, move |task: Task| {
        let is_cut_off = is_cut_off.clone();
        async move {
            if task.attempt() == 1 {
                task.cancelled().await;
                is_cut_off.store(false, Ordering::SeqCst);
            }
            Ok("late")
        }
    }));
    let ends = fixture.ended.wait(2).await;
    working.end().await;
    assert_eq!((ends[0].verdict, ends[1].verdict), ("LOST", "COMMITTED"));
    assert_eq!(reports(&proxy.of_lease(ends[0].task.lease_id())), [""; 0]);
    let kinds = ["TaskCreated", "LeaseGranted", "LeaseExpired", "LeaseGranted", "TaskCompleted"];
    assert_eq!(fixture.kinds(&id).await, kinds);
}

#[tokio::test]
async fn s0_17_heartbeats_are_sent_while_executing_and_at_no_other_time() {
    let fixture = Fixture::start();
    fixture.configure(json!({"leaseMs": SHORT_LEASE_MS, "heartbeatIntervalMs": INTERVAL_MS})).await;
    let proxy = fixture.witness().await;
    let beats = (2 * SHORT_LEASE_MS / INTERVAL_MS) as usize;
    let seen = proxy.clone();
    let worker = fixture.worker().url(&proxy.url).wait(Duration::from_millis(5 * INTERVAL_MS));
    let working = Working::start(worker.handler(QUEUE, move |task: Task| {
        let seen = seen.clone();
        async move {
            seen.until("heartbeat", beats).await;
            Ok(task.attempt())
        }
    }));
    let id = fixture.submit(json!(null)).await;
    // The lease would have run out meanwhile.
    assert_eq!(fixture.result(&id).await, 1);
    fixture.ended.wait(1).await;
    // A poll begins, waits its time and ends: longer than a heartbeat interval, and none is sent.
    let polls = proxy.count("leases");
    proxy.until("leases", polls + 2).await;
    working.end().await;
    let calls: Vec<String> = calls(&proxy.exchanges()).into_iter().filter(|call| call != "leases").collect();
    let (last, before) = calls.split_last().unwrap();
    assert_eq!(last, "complete");
    assert!(before.len() >= beats && before.iter().all(|call| call == "heartbeat"), "{before:?}");
}

#[tokio::test]
async fn s0_21_a_heartbeat_that_fails_decides_nothing() {
    let fixture = Fixture::start();
    fixture.configure(json!({"heartbeatIntervalMs": INTERVAL_MS})).await;
    let foreign = [(404, "<html>"), (200, "<html>"), (200, "[]")];
    let foreign = foreign.map(|(status, body)| Action::Answer(status, "x: y", body.to_owned()));
    for action in [Action::Lose, Action::Refuse, answer(503)].into_iter().chain(foreign) {
        let id = fixture.submit(json!(null)).await;
        let proxy = fixture.proxy(first(2, "heartbeat", action.clone())).await;
        let seen = proxy.clone();
        let working = Working::start(fixture.worker().url(&proxy.url).handler(QUEUE, move |task: Task| {
            let seen = seen.clone();
            async move {
                seen.until("heartbeat", 3).await;
                Ok(task.is_cancelled())
            }
        }));
        assert_eq!(fixture.result(&id).await, false, "{action:?}");
        working.end().await;
    }
}

#[tokio::test]
async fn s0_22_a_report_that_got_lost_on_the_way_is_sent_again() {
    let mut fixture = Fixture::start();
    let undecided = [408, 424, 429, 500, 502, 503, 504].map(answer);
    for action in [Action::Lose, Action::Refuse].into_iter().chain(undecided) {
        fixture.ended = Ended::default();
        let id = fixture.submit(json!(null)).await;
        let proxy = fixture.proxy(first(2, "complete", action.clone())).await;
        let working = Working::start(fixture.worker().url(&proxy.url).handler(QUEUE, payload_back));
        assert_eq!(fixture.ended.verdicts(1).await, ["COMMITTED"], "{action:?}");
        working.end().await;
        let reports = bodies(&proxy.exchanges(), "complete");
        assert_eq!(reports.len(), 3, "{action:?}");
        assert!(reports.iter().all(|report| *report == reports[0]), "S0-23: the same words each time");
        assert_eq!(fixture.kinds(&id).await, ["TaskCreated", "LeaseGranted", "TaskCompleted"]);
    }
}

#[tokio::test]
async fn s0_22_a_poll_whose_answer_got_lost_gets_the_same_lease() {
    let fixture = Fixture::start();
    let id = fixture.submit(json!(null)).await;
    let proxy = fixture.proxy(first(1, "leases", Action::Lose)).await;
    let handler = |task: Task| async move { Ok(task.attempt()) };
    let working = Working::start(fixture.worker().url(&proxy.url).handler(QUEUE, handler));
    assert_eq!(fixture.result(&id).await, 1);
    working.end().await;
    let polls = bodies(&proxy.exchanges(), "leases");
    assert_eq!(polls[0], polls[1]);
}

#[tokio::test]
async fn s0_23_repeats_end_with_the_lease() {
    let fixture = Fixture::start();
    fixture.configure(json!({"leaseMs": SHORT_LEASE_MS})).await;
    let id = fixture.submit(json!(null)).await;
    let is_given_up = Arc::new(AtomicBool::new(false));
    let seen = is_given_up.clone();
    let rule = move |request: &Request, _| {
        if request.is_report() && !seen.load(Ordering::SeqCst) { Action::Refuse } else { Action::Pass }
    };
    let proxy = fixture.proxy(rule).await;
    let ended = fixture.ended.clone();
    let worker = fixture.worker().url(&proxy.url).on_outcome(move |task, outcome| {
        if matches!(outcome, lessor_sdk::Outcome::Unknown(_)) {
            assert!(!task.is_lease_lost(), "it gave up while the lease still lived");
            is_given_up.store(true, Ordering::SeqCst);
        }
        ended.record(task, outcome);
    });
    let working = Working::start(worker.handler(QUEUE, |task: Task| async move { Ok(task.attempt()) }));
    let ends = fixture.ended.wait(2).await;
    assert_eq!(fixture.result(&id).await, 2);
    working.end().await;
    assert_eq!((ends[0].verdict, ends[1].verdict), ("UNKNOWN", "COMMITTED"));
    let tries = bodies(&proxy.of_lease(ends[0].task.lease_id()), "complete");
    assert!((2..20).contains(&tries.len()), "{}", tries.len());
    assert!(tries.iter().all(|report| *report == tries[0]));
}

/// Each verdict, also when it comes with a status that asks for a repeat elsewhere; and what is none at all, because
/// somebody else answered.
#[tokio::test]
async fn s0_24_no_verdict_is_a_reason_to_report_again() {
    let mut fixture = Fixture::start();
    let decided = [(409, "CANCELLED"), (400, "REJECTED"), (503, "REJECTED"), (429, "CANCELLED")];
    for (status, verdict) in decided.into_iter().chain([(200, "UNKNOWN"), (404, "UNKNOWN")]) {
        fixture.ended = Ended::default();
        fixture.submit(json!(null)).await;
        let problem = json!({
            "type": "x", "title": "x", "status": status, "detail": "x", "code": "x", "verdict": verdict,
        });
        let body = if verdict == "UNKNOWN" { "<html>".to_owned() } else { problem.to_string() };
        let told = Action::Answer(status, "retry-after: 0", body);
        let rule = move |request: &Request, _: usize| match request.call() {
            "complete" => told.clone(),
            _ => Action::Pass,
        };
        let proxy = fixture.proxy(rule).await;
        let working = Working::start(fixture.worker().url(&proxy.url).handler(QUEUE, payload_back));
        assert_eq!(fixture.ended.verdicts(1).await, [verdict]);
        working.end().await;
        assert_eq!(reports(&proxy.exchanges()), ["complete"], "{status} {verdict}");
    }
}

/// How a handler fails, and the category, the message and the number of attempts that come of it.
type Row = (fn() -> Failure, Category, &'static str, u32);

#[tokio::test]
async fn s0_25_a_local_failure_is_reported_and_the_coordinator_decides() {
    let fixture = Fixture::start();
    fixture.configure(json!({"backoff": {"initialMs": 1, "factor": 1, "jitter": 0}})).await;
    #[rustfmt::skip]
    let table: [Row; 10] = [
        (|| "x".parse::<u32>().unwrap_err().into(), Category::UserCode, "invalid digit found in string", 2),
        (|| panic!("out of {}", "luck"), Category::UserCode, "the handler panicked: out of luck", 2),
        (|| Failure::user_code("u"), Category::UserCode, "u", 2),
        (|| Failure::user_code("u").retryable(false), Category::UserCode, "u", 1),
        (|| Failure::infrastructure("i"), Category::Infrastructure, "i", 2),
        (|| Failure::timeout("t"), Category::Timeout, "t", 2),
        (|| Failure::data_quality("d"), Category::DataQuality, "d", 1),
        (|| Failure::data_quality("d").retryable(true), Category::DataQuality, "d", 2),
        (|| Failure::configuration("c").code("no_key"), Category::Configuration, "c", 1),
        (|| Failure::cancelled("x"), Category::Cancelled, "x", 1),
    ];
    let handler = move |task: Task| async move {
        let row: usize = task.payload()?;
        Err::<(), Failure>(table[row].0())
    };
    let working = Working::start(fixture.worker().concurrency(4).handler(QUEUE, handler));
    for (row, (_, category, message, attempts)) in table.into_iter().enumerate() {
        let submit = Submit::new(QUEUE, &row).unwrap().max_attempts(2);
        let id = fixture.client.submit(submit).await.unwrap().task_id;
        let task = fixture.final_task(&id).await;
        let error = task.error.unwrap();
        assert_eq!(
            (task.state, error.category, error.message.as_str()),
            (TaskState::Failed, category, message)
        );
        assert_eq!(task.attempt, attempts, "{message}");
        assert_eq!(error.code.is_some(), category == Category::Configuration);
    }
    working.end().await;
}
