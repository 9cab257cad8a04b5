//! The engine driven by hand: what leaves it when, and who is woken.

#[path = "engine/refused_reports.rs"]
mod refused_reports;
#[path = "engine/registry.rs"]
mod registry;
mod support;

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use authority::command::{
    ConfigureQueue, ExtendAnswer, ExtendLease, Grant, Refusal, ReportCompletion, SubmitAnswer, SubmitTask,
    Verdict,
};
use authority::{Answer, Command, Digest, Outcome, Properties, QueueConfig, State, TaskId, TaskState, Time};
use coordinator::engine::{DiskSpace, Engine, ReplyTo};
use coordinator::{BatchItem, Read, Reply, Request, Unavailable, WaitCondition};
use support::{completion, lease, lease_ref, queue, scope, submit};

/// A caller by number, who may hang up.
#[derive(Clone)]
struct Caller(u32, Rc<Cell<bool>>);

impl ReplyTo for Caller {
    fn is_closed(&self) -> bool {
        self.1.get()
    }
}

fn caller(number: u32) -> Caller {
    Caller(number, Rc::new(Cell::new(false)))
}

fn engine() -> Engine<Caller> {
    Engine::new(State::new(), Time::ZERO)
}

fn submit_request(task: SubmitTask) -> Request {
    Request::decide(Command::SubmitTask(Box::new(task)))
}

fn poll(worker: &str, until: u64) -> Request {
    Request::Poll { lease: lease(worker, "q"), until: Time(until) }
}

fn complete(report: ReportCompletion) -> Request {
    Request::decide(Command::ReportCompletion(report))
}

/// Makes everything decided durable.
fn sync(engine: &mut Engine<Caller>) {
    while let Some(batch) = engine.take_batch() {
        engine.batch_durable(batch);
    }
}

fn answers(engine: &mut Engine<Caller>) -> Vec<(u32, Reply)> {
    engine.take_answers().map(|(caller, reply)| (caller.0, reply)).collect()
}

fn callers(engine: &mut Engine<Caller>) -> Vec<u32> {
    answers(engine).into_iter().map(|(caller, _)| caller).collect()
}

/// The leases in an answer.
fn grants(reply: &Reply) -> Vec<Grant> {
    match reply {
        Reply::Leased(grants) => grants.clone(),
        other => panic!("not leases: {other:?}"),
    }
}

#[test]
fn s4_31_no_answer_leaves_before_its_records_are_durable() {
    let mut engine = engine();
    engine.receive(submit_request(submit(1, "q")), Time(1), caller(1));
    assert_eq!(callers(&mut engine), [0; 0]);
    let batch = engine.take_batch().expect("the submit is in the batch");
    assert_eq!(callers(&mut engine), [0; 0], "a batch on its way is not durable");
    engine.batch_durable(batch);
    assert_eq!(callers(&mut engine), [1]);
}

#[test]
fn g7_a_read_waits_for_the_records_that_it_shows() {
    let mut engine = engine();
    engine.receive(submit_request(submit(1, "q")), Time(1), caller(1));
    let read = Request::Read(Read::Task { scope: scope(), task: TaskId(1) });
    engine.receive(read.clone(), Time(1), caller(2));
    assert_eq!(callers(&mut engine), [0; 0]);
    sync(&mut engine);
    assert_eq!(callers(&mut engine), [1, 2]);
    engine.receive(read, Time(2), caller(3));
    assert_eq!(callers(&mut engine), [3], "what is durable is shown at once");
}

#[test]
fn the_next_batch_forms_while_one_is_on_its_way_and_never_overtakes_it() {
    let mut engine = engine();
    engine.receive(submit_request(submit(1, "q")), Time(1), caller(1));
    let first = engine.take_batch().unwrap();
    engine.receive(submit_request(submit(2, "q")), Time(2), caller(2));
    assert!(engine.take_batch().is_none(), "at most one batch is unsynced");
    engine.batch_durable(first);
    assert_eq!(callers(&mut engine), [1]);
    sync(&mut engine);
    assert_eq!(callers(&mut engine), [2]);
}

#[test]
fn a_request_that_is_larger_than_a_batch_is_recorded_in_several() {
    let mut engine = engine();
    let tasks = (1..=16)
        .map(|id| SubmitTask { payload: Arc::from(vec![b'1'; 1 << 20]), ..submit(id, "q") })
        .map(|task| BatchItem::Command(Command::SubmitTask(Box::new(task))))
        .collect();
    engine.receive(submit_request(submit(100, "q")), Time(1), caller(1));
    engine.receive(Request::Decide(tasks), Time(1), caller(2));
    let first = engine.take_batch().unwrap();
    assert!(engine.take_batch().is_none(), "at most one batch is unsynced");
    engine.batch_durable(first);
    assert_eq!(callers(&mut engine), [1], "the request rests on its last record");
    sync(&mut engine);
    assert_eq!(callers(&mut engine), [2]);
    assert!(!engine.is_full());
}

#[test]
fn s4_34_a_waiting_poll_gets_its_lease_in_the_batch_of_the_submit() {
    let mut engine = engine();
    engine.receive(poll("w1", 9_000), Time(1), caller(1));
    engine.receive(poll("w2", 9_000), Time(2), caller(2));
    assert_eq!(callers(&mut engine), [0; 0]);
    engine.receive(submit_request(submit(1, "q")), Time(3), caller(3));
    sync(&mut engine);
    assert_eq!(callers(&mut engine), [3, 1], "first come, first served");
    engine.receive(submit_request(submit(2, "q")), Time(4), caller(4));
    sync(&mut engine);
    assert_eq!(callers(&mut engine), [4, 2]);
}

#[test]
fn a_crowd_of_polls_is_served_batch_by_batch() {
    const POLLS: u32 = 300;
    let mut engine = engine();
    let worker = "w".repeat(500);
    for number in 0..POLLS {
        let mut many = lease(&worker, "q");
        many.max_tasks = 100;
        engine.receive(Request::Poll { lease: many, until: Time(9_000) }, Time(1), caller(number));
    }
    for id in 0..u128::from(POLLS) * 100 {
        let task = SubmitTask { delay_ms: 1_000, ..submit(id + 1, "q") };
        engine.receive(submit_request(task), Time(1), caller(POLLS));
    }
    sync(&mut engine);
    answers(&mut engine);
    engine.tick(Time(1_001));
    let mut batches = 0;
    while let Some(batch) = engine.take_batch() {
        assert!(batch.body_bytes() < 3 << 20, "{} bytes", batch.body_bytes());
        engine.batch_durable(batch);
        batches += 1;
    }
    assert!(batches > 1);
    assert_eq!(callers(&mut engine), (0..POLLS).collect::<Vec<_>>());
}

#[test]
fn a_poll_that_nothing_fits_does_not_hold_up_the_others() {
    let mut engine = engine();
    engine.receive(poll("plain", 9_000), Time(1), caller(1));
    let linux = Arc::new(Properties::new([(Arc::from("os"), Arc::from("linux"))]));
    let mut fitting = lease("linux", "q");
    fitting.properties = linux.clone();
    engine.receive(Request::Poll { lease: fitting, until: Time(9_000) }, Time(2), caller(2));
    let task = SubmitTask { properties: linux, ..submit(1, "q") };
    engine.receive(submit_request(task), Time(3), caller(3));
    sync(&mut engine);
    assert_eq!(callers(&mut engine), [3, 2]);
}

#[test]
fn a_poll_ends_empty_when_its_time_is_over() {
    let mut engine = engine();
    engine.receive(poll("w", 500), Time(1), caller(1));
    assert!(engine.next_due() <= Time(500));
    engine.tick(Time(499));
    assert_eq!(callers(&mut engine), [0; 0]);
    engine.tick(Time(500));
    let (_, reply) = answers(&mut engine).remove(0);
    assert_eq!(grants(&reply), []);
}

#[test]
fn a_delayed_task_wakes_a_poll_when_its_time_has_come() {
    let mut engine = engine();
    engine.receive(submit_request(SubmitTask { delay_ms: 100, ..submit(1, "q") }), Time(1_000), caller(1));
    engine.receive(poll("w", 9_000), Time(1_000), caller(2));
    sync(&mut engine);
    assert_eq!(callers(&mut engine), [1]);
    engine.tick(Time(1_099));
    sync(&mut engine);
    assert_eq!(callers(&mut engine), [0; 0]);
    assert!(engine.next_due() <= Time(1_100));
    engine.tick(Time(1_100));
    sync(&mut engine);
    assert_eq!(callers(&mut engine), [2]);
}

#[test]
fn a_delayed_task_is_never_leased_by_a_record_from_before_its_time() {
    let mut engine = engine();
    engine.receive(submit_request(SubmitTask { delay_ms: 50, ..submit(1, "q") }), Time(1_000), caller(1));
    // A read that came later lets the task become ready, and then a poll is decided that was received earlier.
    engine.receive(Request::Read(Read::Status), Time(1_060), caller(2));
    engine.receive(poll("w", 9_000), Time(1_040), caller(3));
    sync(&mut engine);
    let granted = answers(&mut engine).into_iter().find_map(|(_, reply)| match reply {
        Reply::Leased(grants) => grants.first().map(|grant| grant.granted_at),
        _ => None,
    });
    assert!(granted.is_some_and(|granted| granted >= Time(1_050)), "{granted:?}");
}

#[test]
fn an_answered_wait_wakes_a_poll_whose_task_has_become_ready_meanwhile() {
    let mut engine = engine();
    engine.receive(submit_request(SubmitTask { delay_ms: 50, ..submit(1, "q") }), Time(1_000), caller(1));
    engine.receive(poll("w", 9_000), Time(1_010), caller(2));
    sync(&mut engine);
    callers(&mut engine);
    let (condition, until) = (WaitCondition::Final, Time(1_060));
    let wait = Request::Wait { scope: scope(), task: TaskId(99), condition, until };
    engine.receive(wait, Time(1_060), caller(3));
    sync(&mut engine);
    assert_eq!(callers(&mut engine), [3, 2]);
}

#[test]
fn a_task_with_a_short_delay_wakes_a_poll_although_its_submit_was_stamped_before_the_last_tick() {
    let mut engine = engine();
    engine.receive(poll("w", 9_000), Time(1), caller(1));
    engine.tick(Time(1_000));
    engine.receive(submit_request(SubmitTask { delay_ms: 2, ..submit(1, "q") }), Time(995), caller(2));
    engine.tick(Time(1_010));
    sync(&mut engine);
    assert_eq!(callers(&mut engine), [2, 1]);
}

#[test]
fn an_expired_lease_wakes_a_poll() {
    let mut engine = engine();
    engine.receive(submit_request(submit(1, "q")), Time(0), caller(1));
    engine.receive(poll("lost", 0), Time(0), caller(2));
    engine.receive(poll("next", 100_000), Time(1), caller(3));
    sync(&mut engine);
    assert_eq!(callers(&mut engine), [1, 2]);
    engine.tick(Time(66_001));
    sync(&mut engine);
    let (who, reply) = answers(&mut engine).remove(0);
    assert_eq!((who, grants(&reply)[0].attempt), (3, 2));
}

#[test]
fn a_poll_that_hung_up_is_passed_over() {
    let mut engine = engine();
    let gone = caller(1);
    engine.receive(poll("gone", 9_000), Time(1), gone.clone());
    gone.1.set(true);
    engine.receive(poll("here", 9_000), Time(2), caller(2));
    engine.receive(submit_request(submit(1, "q")), Time(3), caller(3));
    sync(&mut engine);
    assert_eq!(callers(&mut engine), [3, 2]);
}

#[test]
fn a1_polls_that_hung_up_give_way_when_there_is_no_place() {
    let mut engine = engine();
    let gone = caller(1);
    // One tenant may have seven eighths of 20,000.
    for _ in 0..17_500 {
        engine.receive(poll("gone", 60_000), Time(1), gone.clone());
    }
    engine.receive(poll("refused", 60_000), Time(200), caller(2));
    assert!(matches!(answers(&mut engine)[0], (2, Reply::Unavailable(Unavailable::Overloaded))));
    let Request::Poll { mut lease, until } = poll("another tenant's", 60_000) else { unreachable!() };
    lease.scope.tenant = Arc::from("another");
    engine.receive(Request::Poll { lease, until }, Time(200), caller(5));
    assert_eq!(callers(&mut engine), [0; 0], "another tenant's poll waits");
    gone.1.set(true);
    engine.receive(poll("here", 60_000), Time(400), caller(3));
    engine.receive(submit_request(submit(1, "q")), Time(401), caller(4));
    sync(&mut engine);
    assert_eq!(callers(&mut engine), [4, 3]);
}

#[test]
fn a1_a_queue_takes_only_so_many_kinds_of_waiting_workers() {
    let mut engine = engine();
    let kind = |number: u32| {
        let mut lease = lease("w", "q");
        lease.properties = Arc::new(Properties::new([(Arc::from("n"), Arc::from(number.to_string()))]));
        Request::Poll { lease, until: Time(60_000) }
    };
    for number in 0..1_024 {
        engine.receive(kind(number), Time(1), caller(number));
    }
    assert_eq!(callers(&mut engine), [0; 0]);
    engine.receive(kind(0), Time(1), caller(5_000));
    engine.receive(kind(1_024), Time(1), caller(6_000));
    assert_eq!(callers(&mut engine), [6_000], "another of a known kind waits, one of a new kind is refused");
}

#[test]
fn an_undelivered_lease_is_given_back_at_no_cost() {
    let mut engine = engine();
    engine.receive(submit_request(submit(1, "q")), Time(1), caller(1));
    engine.receive(poll("gone", 0), Time(1), caller(2));
    sync(&mut engine);
    let (_, reply) = answers(&mut engine).remove(1);
    engine.undelivered(&reply, Time(2));
    let task = engine.state().task(TaskId(1)).unwrap();
    assert_eq!((task.state(), task.attempt, task.used_attempts()), (TaskState::Waiting, 1, 0));
}

#[test]
fn an_undelivered_lease_that_can_be_asked_for_again_is_kept() {
    let mut engine = engine();
    engine.receive(submit_request(submit(1, "q")), Time(1), caller(1));
    let mut asked = lease("w", "q");
    asked.request = Some(Digest([3; 16]));
    engine.receive(Request::Poll { lease: asked.clone(), until: Time(0) }, Time(1), caller(2));
    sync(&mut engine);
    let (_, first) = answers(&mut engine).remove(1);
    engine.undelivered(&first, Time(2));
    engine.receive(Request::Poll { lease: asked, until: Time(0) }, Time(3), caller(3));
    let (_, again) = answers(&mut engine).remove(0);
    let (first, again) = (grants(&first).remove(0), grants(&again).remove(0));
    // What made the task wait is no part of a lease, so only the first telling says it.
    assert_eq!((first.since.is_some(), again.since), (true, None));
    assert_eq!(again, Grant { since: None, ..first });
}

#[test]
fn d21_a_heartbeat_received_in_time_counts_although_it_is_decided_late() {
    let mut engine = engine();
    engine.receive(submit_request(submit(1, "q")), Time(0), caller(1));
    engine.receive(poll("w", 0), Time(0), caller(2));
    sync(&mut engine);
    let grant = grants(&answers(&mut engine)[1].1).remove(0);
    // The disk stalled for half a minute past the lease; the heartbeat was received before its end.
    let extend = ExtendLease { lease: lease_ref("w", &grant) };
    engine.receive(Request::heartbeat(extend, None), Time(65_900), caller(3));
    engine.tick(Time(96_000));
    sync(&mut engine);
    let (_, reply) = answers(&mut engine).remove(0);
    assert!(matches!(reply.answer(), Some(Answer::Extended(ExtendAnswer::Extended { .. }))));
    assert_eq!(engine.state().task(TaskId(1)).unwrap().state(), TaskState::Leased);
}

#[test]
fn d4_on_a_full_disk_the_running_finish_and_nothing_new_begins() {
    let mut engine = engine();
    engine.receive(submit_request(submit(1, "q")), Time(0), caller(1));
    engine.receive(submit_request(submit(2, "q")), Time(0), caller(2));
    engine.receive(poll("w", 0), Time(0), caller(3));
    sync(&mut engine);
    let grant = grants(&answers(&mut engine)[2].1).remove(0);
    engine.set_disk_space(DiskSpace::FinishOnly);
    engine.receive(submit_request(submit(3, "q")), Time(1), caller(4));
    engine.receive(poll("w", 9_000), Time(1), caller(5));
    engine.receive(complete(completion("w", &grant)), Time(2), caller(6));
    sync(&mut engine);
    let told = answers(&mut engine);
    assert_eq!(told.len(), 2, "the poll waits");
    let answer = |n: usize| (told[n].0, told[n].1.answer().cloned());
    let refused = Answer::Submitted(SubmitAnswer::Refused(Refusal::NoSpace));
    assert_eq!(answer(0), (4, Some(refused)));
    assert_eq!(answer(1), (6, Some(Answer::Reported(Verdict::Committed(Outcome::Completed)))));
    engine.set_disk_space(DiskSpace::Nothing);
    engine.receive(complete(completion("w", &grant)), Time(3), caller(7));
    assert!(matches!(answers(&mut engine)[0], (7, Reply::Unavailable(Unavailable::NoSpace))));
    engine.set_disk_space(DiskSpace::Plenty);
    engine.tick(Time(4));
    sync(&mut engine);
    assert_eq!(callers(&mut engine), [5], "the poll is served as soon as there is room");
}

#[test]
fn progress_is_shown_while_the_lease_lives_and_forgotten_after() {
    let mut engine = engine();
    engine.receive(submit_request(submit(1, "q")), Time(0), caller(1));
    engine.receive(poll("w", 0), Time(0), caller(2));
    sync(&mut engine);
    let grant = grants(&answers(&mut engine)[1].1).remove(0);
    let progress = coordinator::Progress { percent: Some(45.0), message: None, at: Time::ZERO };
    let extend = ExtendLease { lease: lease_ref("w", &grant) };
    engine.receive(Request::heartbeat(extend, Some(progress)), Time(10), caller(3));
    let read = Request::Read(Read::Task { scope: scope(), task: TaskId(1) });
    engine.receive(read.clone(), Time(11), caller(4));
    engine.receive(complete(completion("w", &grant)), Time(12), caller(5));
    engine.receive(read, Time(13), caller(6));
    sync(&mut engine);
    let shown: Vec<_> = answers(&mut engine)
        .into_iter()
        .filter_map(|(_, reply)| match reply {
            Reply::Task(detail) => Some(detail.unwrap().progress.and_then(|progress| progress.percent)),
            _ => None,
        })
        .collect();
    assert_eq!(shown, [Some(45.0), None]);
}

#[test]
fn final_tasks_are_purged_after_their_retention_and_not_before() {
    let mut engine = engine();
    let config = QueueConfig { retention_ms: Some(5_000), ..QueueConfig::default() };
    let configure = Command::ConfigureQueue(ConfigureQueue { queue: queue("q"), config, by: None });
    engine.receive(Request::decide(configure), Time(0), caller(0));
    engine.receive(submit_request(submit(1, "q")), Time(0), caller(1));
    engine.receive(poll("w", 0), Time(0), caller(2));
    sync(&mut engine);
    let grant = grants(&answers(&mut engine)[2].1).remove(0);
    engine.receive(complete(completion("w", &grant)), Time(100), caller(3));
    engine.tick(Time(100));
    engine.tick(Time(5_099));
    assert!(engine.state().task(TaskId(1)).is_some());
    while engine.state().task(TaskId(1)).is_some() {
        let due = engine.next_due();
        assert!(due <= Time(70_000), "purging comes soon after the retention");
        engine.tick(due);
    }
}

#[test]
fn t4_after_an_implausible_jump_nothing_is_purged_for_its_age_at_first() {
    let mut engine: Engine<Caller> = Engine::new(State::new(), Time(1_000_000_000));
    engine.receive(submit_request(submit(1, "q")), Time(0), caller(1));
    engine.receive(poll("w", 0), Time(0), caller(2));
    sync(&mut engine);
    let grant = grants(&answers(&mut engine)[1].1).remove(0);
    engine.receive(complete(completion("w", &grant)), Time(1), caller(3));
    engine.tick(Time(999_999_999));
    assert!(engine.state().task(TaskId(1)).is_some());
    engine.tick(Time(1_000_100_000));
    assert!(engine.state().task(TaskId(1)).is_none());
}

#[test]
fn at_the_end_nobody_is_left_waiting() {
    let mut engine = engine();
    engine.receive(poll("w", 9_000), Time(1), caller(1));
    engine.receive(submit_request(submit(1, "other")), Time(2), caller(2));
    let mut told: Vec<_> =
        engine.take_all_waiting().into_iter().map(|(caller, reply)| (caller.0, reply)).collect();
    told.sort_by_key(|(caller, _)| *caller);
    assert!(matches!(&told[0], (1, Reply::Leased(grants)) if grants.is_empty()));
    assert!(matches!(told[1], (2, Reply::Unavailable(Unavailable::OutcomeUnknown))));
}

/// Another node may have taken over unnoticed, and have recorded something else.
#[test]
fn with_other_writers_a_read_waits_for_a_confirmation_that_was_begun_after_it() {
    let mut engine = engine();
    engine.confirm_answers();
    let read = Request::Read(Read::Task { scope: scope(), task: TaskId(1) });
    assert!(!engine.begin_confirmation(), "nobody waits for one");
    engine.receive(read.clone(), Time(1), caller(1));
    assert_eq!(callers(&mut engine), [0_u32; 0]);
    assert!(engine.begin_confirmation());
    engine.receive(read.clone(), Time(1), caller(2));
    engine.confirmed();
    assert_eq!(callers(&mut engine), [1], "the second came after the confirmation was begun");
    assert!(engine.begin_confirmation());
    engine.confirmed();
    assert_eq!(callers(&mut engine), [2]);
}

#[test]
fn with_other_writers_the_append_of_a_later_batch_confirms_a_read() {
    let mut engine = engine();
    engine.confirm_answers();
    engine.receive(submit_request(submit(1, "q")), Time(1), caller(1));
    let batch = engine.take_batch().unwrap();
    let read = Request::Read(Read::Task { scope: scope(), task: TaskId(1) });
    engine.receive(read, Time(1), caller(2));
    engine.batch_durable(batch);
    assert_eq!(callers(&mut engine), [1], "the append of this batch was begun before the read came");
    engine.receive(submit_request(submit(2, "q")), Time(2), caller(3));
    assert!(!engine.begin_confirmation(), "the next batch does as well");
    sync(&mut engine);
    assert_eq!(callers(&mut engine), [2, 3]);
}
