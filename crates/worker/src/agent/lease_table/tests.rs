//! The agent's side of the contract, message by message.

use prost_types::Timestamp;
use wire::grpc::{Problem, ReportAnswer, TaskStatus, UpdateTaskStatusResponse, Verdict};

use crate::Failure;
use crate::agent::pool::Pool;

use super::*;

const INTERVAL_S: u64 = 20;

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn welcome() -> RegisterWorkerResponse {
    let interval = prost_types::Duration { seconds: INTERVAL_S as i64, nanos: 0 };
    RegisterWorkerResponse { heartbeat_interval: Some(interval), ..RegisterWorkerResponse::default() }
}

/// A task with a lease of 66 seconds.
fn task(lease_id: &str) -> LeasedTask {
    let at = |seconds| Some(Timestamp { seconds, nanos: 0 });
    LeasedTask {
        task_id: format!("task-{lease_id}"),
        lease_id: lease_id.to_owned(),
        granted_at: at(1_000),
        lease_expires_at: at(1_066),
        ..LeasedTask::default()
    }
}

fn tasks(lease_ids: &[&str]) -> WorkResponse {
    WorkResponse { tasks: lease_ids.iter().map(|id| task(id)).collect(), ..WorkResponse::default() }
}

fn answers(answers: Vec<ReportAnswer>) -> WorkResponse {
    WorkResponse { reports: answers, ..WorkResponse::default() }
}

fn verdict(verdict: Verdict) -> ReportAnswer {
    let answer = UpdateTaskStatusResponse { verdict: verdict.into(), ..UpdateTaskStatusResponse::default() };
    ReportAnswer { answer: Some(answer), ..ReportAnswer::default() }
}

fn alive() -> ReportAnswer {
    let answer = UpdateTaskStatusResponse {
        lease_expires_at: Some(Timestamp { seconds: 1_100, nanos: 0 }),
        ..UpdateTaskStatusResponse::default()
    };
    ReportAnswer { answer: Some(answer), ..ReportAnswer::default() }
}

fn undecided() -> ReportAnswer {
    let problem = Problem { code: "overloaded".to_owned(), ..Problem::default() };
    ReportAnswer { problem: Some(problem), ..verdict(Verdict::Unspecified) }
}

fn done() -> Outcome {
    Outcome::Json("1".into())
}

/// A table with a connection, two slots and these leases, whose beginnings were told and answered.
fn table(lease_ids: &[&str]) -> LeaseTable {
    book_with(2, lease_ids)
}

fn config(slots: u32) -> Config {
    let actions = crate::ActionOptions::below("unused");
    Config { max_concurrent_tasks: slots as usize, ..Config::new("http://unused", "w", actions) }
}

fn open(config: &Config) -> LeaseTable {
    LeaseTable::new(config, Pool::new(config).join())
}

fn book_with(slots: u32, lease_ids: &[&str]) -> LeaseTable {
    let mut table = open(&config(slots));
    table.on_connected(&welcome(), Vec::new());
    assert_eq!(table.next_message(seconds(100)).credit, slots);
    assert_eq!(table.on_message(tasks(lease_ids), seconds(100)).len(), lease_ids.len());
    let begun = table.next_message(seconds(100)).reports;
    assert!(begun.iter().all(|report| report.status() == TaskStatus::Executing));
    table.on_message(answers(begun.iter().map(|_| alive()).collect()), seconds(100));
    table
}

fn cancelled(table: &LeaseTable, lease_id: &str) -> bool {
    table.permit_of(lease_id).is_none_or(|permit| permit.cancelled().is_cancelled())
}

#[test]
fn credit_is_given_once_for_each_slot_that_becomes_free() {
    let mut table = table(&["a", "b"]);
    assert!(!table.has_message_due(seconds(101)));
    table.permit_of("a").unwrap().free();
    assert_eq!(table.next_message(seconds(101)).credit, 1);
    assert!(!table.has_message_due(seconds(101)), "it was given");
    table.on_attempt_end("a", done());
    assert_eq!(table.next_message(seconds(101)).credit, 0, "the slot was free before");
}

#[test]
fn a_report_is_said_until_it_is_answered_and_only_once_on_a_connection() {
    let mut table = table(&["a"]);
    table.on_attempt_end("a", done());
    assert_eq!(table.next_message(seconds(101)).reports.len(), 1);
    assert_eq!(table.next_message(seconds(102)).reports.len(), 0);
    table.on_connected(&welcome(), Vec::new());
    let again = table.next_message(seconds(103));
    assert_eq!((again.reports.len(), again.reports[0].status()), (1, TaskStatus::Completed));
    table.on_message(answers(vec![undecided()]), seconds(103));
    assert!(!table.is_empty() && table.next_message(seconds(103)).reports.is_empty(), "it waits a moment");
    assert_eq!(table.next_message(seconds(105)).reports.len(), 1);
    table.on_message(answers(vec![verdict(Verdict::Committed)]), seconds(105));
    assert!(table.is_empty());
    assert_eq!(table.next_message(seconds(200)).stats.unwrap().total_completed, 1);
}

#[test]
fn a_result_that_is_rejected_becomes_a_failure_which_is_said_once() {
    let mut table = table(&["a"]);
    table.on_attempt_end("a", done());
    table.next_message(seconds(101));
    table.on_message(answers(vec![verdict(Verdict::Rejected)]), seconds(101));
    let state = table.next_message(seconds(101)).reports;
    assert_eq!((state[0].status(), state[0].error_code.as_str()), (TaskStatus::Failed, "result_rejected"));
    table.on_message(answers(vec![verdict(Verdict::Rejected)]), seconds(101));
    assert!(table.is_empty());
}

#[test]
fn answers_belong_to_reports_in_their_order() {
    let mut table = table(&["a", "b"]);
    table.on_attempt_end("a", done());
    table.on_attempt_end("b", Failure::cancelled().into());
    let state = table.next_message(seconds(101)).reports;
    assert_eq!(state.iter().map(|report| report.lease_id.as_str()).collect::<Vec<_>>(), ["a", "b"]);
    table.on_message(answers(vec![verdict(Verdict::Cancelled), verdict(Verdict::Committed)]), seconds(101));
    let stats = table.next_message(seconds(200)).stats.unwrap();
    assert_eq!((stats.total_completed, stats.total_failed, table.is_empty()), (0, 1, true));
}

#[test]
fn a_lease_ends_by_the_workers_own_clock_unless_heartbeats_are_answered() {
    let mut table = table(&["a"]);
    let beat = table.next_message(seconds(120));
    assert_eq!(beat.heartbeats.len(), 1);
    let status = LeaseStatus { lease_id: "a".to_owned(), ..LeaseStatus::default() };
    table.on_message(WorkResponse { leases: vec![status], ..WorkResponse::default() }, seconds(125));
    // From when it was sent: 60 of the 66 seconds are sure.
    assert_eq!(table.next_due(seconds(175)), Some(seconds(180)));
    table.expire(seconds(179));
    assert!(!cancelled(&table, "a"));
    table.expire(seconds(180));
    assert!(cancelled(&table, "a") && table.is_empty(), "nothing is reported");
    table.on_attempt_end("a", done());
    assert!(table.is_empty());
}

#[test]
fn a_lost_lease_stops_its_work_and_a_cancel_lets_it_report() {
    let mut table = table(&["a", "b"]);
    let (a, b) = (table.permit_of("a").unwrap(), table.permit_of("b").unwrap());
    table.next_message(seconds(120));
    let lost = LeaseStatus { lease_id: "a".to_owned(), lost: true, ..LeaseStatus::default() };
    let cancel = LeaseStatus { lease_id: "b".to_owned(), should_cancel: true, ..LeaseStatus::default() };
    table.on_message(WorkResponse { leases: vec![lost, cancel], ..WorkResponse::default() }, seconds(120));
    assert!(a.cancelled().is_cancelled() && b.cancelled().is_cancelled());
    table.on_attempt_end("a", done());
    table.on_attempt_end("b", Failure::cancelled().into());
    let state = table.next_message(seconds(121)).reports;
    assert_eq!((state.len(), state[0].lease_id.as_str()), (1, "b"));
}

#[test]
fn the_slot_of_a_lost_lease_is_taken_until_its_work_has_stopped() {
    let mut table = table(&["a", "b"]);
    let work = table.permit_of("a").unwrap();
    table.lose("a", "it ran out");
    assert_eq!(table.next_message(seconds(101)).credit, 0, "its command may still be dying");
    drop(work);
    assert_eq!(table.next_message(seconds(101)).credit, 1);
}

#[test]
fn a_lease_that_is_over_because_of_its_report_is_not_lost() {
    let mut table = table(&["a"]);
    table.on_attempt_end("a", done());
    table.next_message(seconds(120));
    let lost = LeaseStatus { lease_id: "a".to_owned(), lost: true, ..LeaseStatus::default() };
    let both = WorkResponse { leases: vec![lost], ..answers(vec![undecided()]) };
    table.on_message(both, seconds(120));
    assert!(!table.is_empty());
}

#[test]
fn a_task_that_was_lost_on_its_way_is_given_back_after_a_reconnect() {
    let mut table = table(&["a"]);
    let known = ["a", "stray"].map(|id| LeaseStatus { lease_id: id.to_owned(), ..LeaseStatus::default() });
    table.on_connected(&welcome(), known.to_vec());
    let state = table.next_message(seconds(101));
    assert_eq!((state.heartbeats.len(), state.reports.len()), (1, 1));
    assert!(state.reports[0].release && state.reports[0].lease_id == "stray");
    assert_eq!(state.credit, 1);
    table.on_message(answers(vec![verdict(Verdict::Unspecified)]), seconds(101));
    assert!(!table.releases.contains_key("stray"));
}

#[test]
fn a_draining_worker_takes_nothing_and_gives_back_what_comes() {
    let mut table = table(&["a"]);
    table.drain();
    let state = table.next_message(seconds(101));
    assert_eq!((state.credit, state.state()), (0, WorkerState::Draining));
    assert!(table.on_message(tasks(&["late"]), seconds(101)).is_empty());
    assert!(table.next_message(seconds(101)).reports[0].release);
    let a = table.permit_of("a").unwrap();
    table.release_all();
    assert!(a.cancelled().is_cancelled());
    let state = table.next_message(seconds(102)).reports;
    assert_eq!((state[0].lease_id.as_str(), state[0].release), ("a", true));
    table.on_message(
        answers(vec![verdict(Verdict::Unspecified), verdict(Verdict::Unspecified)]),
        seconds(102),
    );
    assert!(table.is_empty());
}

#[test]
fn large_results_go_out_in_messages_that_the_coordinator_takes() {
    let mut table = book_with(3, &["a", "b", "c"]);
    for lease_id in ["a", "b", "c"] {
        let stdout_raw = vec![0; 1_000_000];
        let result = wire::grpc::ActionResult { stdout_raw, ..Default::default() };
        table.on_attempt_end(lease_id, Outcome::Action(Box::new(result)));
    }
    assert_eq!(table.next_message(seconds(101)).reports.len(), 2);
    assert!(table.has_message_due(seconds(101)));
    assert_eq!(table.next_message(seconds(101)).reports.len(), 1);
    let result = wire::grpc::ActionResult { stdout_raw: vec![0; 5_000_000], ..Default::default() };
    table.on_attempt_end("a", Outcome::Action(Box::new(result)));
    assert_eq!(table.next_message(seconds(101)).reports[0].error_code, "result_rejected");
}

#[test]
fn heartbeats_that_nobody_answers_are_noticed() {
    let mut table = table(&["a"]);
    table.next_message(seconds(120));
    assert!(!table.is_heartbeat_overdue(seconds(149), seconds(30)));
    assert!(table.is_heartbeat_overdue(seconds(150), seconds(30)));
}

fn asking(lease_id: &str, resources: &str) -> WorkResponse {
    let task = LeasedTask { resources_json: resources.to_owned().into(), ..task(lease_id) };
    WorkResponse { tasks: vec![task], ..WorkResponse::default() }
}

fn book_of_four_cores() -> LeaseTable {
    let mut table = open(&Config {
        resources: Resources { cpu_cores: 4.0, memory_bytes: 1_000, disk_bytes: 0 },
        ..config(8)
    });
    table.on_connected(&welcome(), Vec::new());
    assert_eq!(table.next_message(seconds(100)).credit, 8);
    table
}

fn released(request: &WorkRequest) -> Vec<&str> {
    request.reports.iter().filter(|report| report.release).map(|report| report.lease_id.as_str()).collect()
}

#[test]
fn a_task_for_which_there_is_no_room_is_given_back_and_waited_for() {
    let mut table = book_of_four_cores();
    assert_eq!(table.on_message(asking("a", r#"{"cpuCores":3,"memoryBytes":10}"#), seconds(100)).len(), 1);
    assert_eq!(table.on_message(asking("b", r#"{"cpuCores":2}"#), seconds(100)).len(), 0);
    let state = table.next_message(seconds(100));
    assert_eq!((released(&state), state.credit), (vec!["b"], 0), "nothing is asked for until b has room");
    assert_eq!(
        table.on_message(asking("c", r#"{"cpuCores":1}"#), seconds(100)).len(),
        1,
        "it was on its way"
    );
    table.permit_of("a").unwrap().free();
    assert_eq!(table.next_message(seconds(101)).credit, 2, "cores are free once the command has ended");
    assert_eq!(table.on_message(asking("b", r#"{"cpuCores":2}"#), seconds(101)).len(), 1);
}

#[test]
fn disk_space_is_taken_until_the_attempt_is_over() {
    let mut table =
        open(&Config { resources: Resources { disk_bytes: 100, ..Resources::default() }, ..config(8) });
    table.on_connected(&welcome(), Vec::new());
    table.next_message(seconds(100));
    assert_eq!(table.on_message(asking("a", r#"{"diskBytes":60}"#), seconds(100)).len(), 1);
    table.permit_of("a").unwrap().free();
    assert_eq!(table.on_message(asking("b", r#"{"diskBytes":60}"#), seconds(100)).len(), 0);
    assert_eq!(released(&table.next_message(seconds(100))), ["b"]);
}

#[test]
fn a_task_that_asks_for_more_than_there_is_fails_and_says_so() {
    let mut table = book_of_four_cores();
    for (lease_id, resources, code, retryable) in [
        ("a", r#"{"cpuCores":5}"#, Failure::NOT_ENOUGH_RESOURCES, true),
        ("b", r#"{"memoryBytes":1001}"#, Failure::NOT_ENOUGH_RESOURCES, true),
        ("c", r#"{"cpuCores":"many"}"#, Failure::INVALID_PAYLOAD, false),
    ] {
        assert_eq!(table.on_message(asking(lease_id, resources), seconds(100)).len(), 0);
        let state = table.next_message(seconds(100));
        let report = &state.reports[0];
        assert_eq!((report.lease_id.as_str(), report.status()), (lease_id, TaskStatus::Failed));
        assert_eq!((report.error_code.as_str(), report.retryable), (code, Some(retryable)));
        table.on_message(answers(vec![verdict(Verdict::Committed)]), seconds(100));
    }
    assert!(table.is_empty());
}

#[test]
fn w16_a_worker_that_is_not_fit_asks_for_nothing_and_gives_back_what_comes() {
    let mut table = table(&["a"]);
    table.pool.set_fitness(Err("the disk is full".to_owned()));
    table.on_attempt_end("a", done());
    let state = table.next_message(seconds(101));
    assert_eq!((state.credit, state.reports.len()), (0, 1), "what ran is reported all the same");
    assert_eq!(state.state(), WorkerState::Draining, "credit that is out already is not to be used");
    table.on_message(answers(vec![verdict(Verdict::Committed)]), seconds(101));
    assert_eq!(table.on_message(tasks(&["b"]), seconds(101)).len(), 0);
    assert_eq!(released(&table.next_message(seconds(101))), ["b"]);
    table.pool.set_fitness(Ok(()));
    assert!(table.has_message_due(seconds(102)));
    let state = table.next_message(seconds(102));
    assert!(state.credit > 0 && state.state() == WorkerState::Idle);
}

#[test]
fn s3_67_heartbeats_are_as_often_as_the_operator_and_the_coordinator_ask() {
    let due = |configured_s, told: &RegisterWorkerResponse| {
        let mut table = open(&Config { heartbeat_interval: seconds(configured_s), ..config(1) });
        table.on_connected(told, Vec::new());
        table.next_message(seconds(100));
        table.next_due(seconds(100)).unwrap() - seconds(100)
    };
    assert_eq!(due(30, &welcome()), seconds(INTERVAL_S));
    assert_eq!(due(5, &welcome()), seconds(5));
    assert_eq!(due(30, &RegisterWorkerResponse::default()), seconds(30));
}
