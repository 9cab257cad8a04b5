//! The registry of workers: what it knows, and that it decides nothing.

use super::*;

#[test]
fn s4_14_the_registry_knows_who_was_heard_of_and_what_they_hold() {
    let mut engine = engine();
    engine.receive(submit_request(submit(1, "q")), Time(5), caller(1));
    engine.receive(poll("w", 0), Time(7), caller(2));
    sync(&mut engine);
    answers(&mut engine);
    engine.receive(Request::Read(Read::Workers(scope())), Time(8), caller(3));
    let Reply::Workers(workers) = answers(&mut engine).remove(0).1 else { panic!("not workers") };
    assert_eq!((&*workers[0].worker, workers[0].last_heartbeat, workers[0].active_leases), ("w", Time(7), 1));
}

#[test]
fn s4_16_after_a_restart_the_registry_is_empty_and_leases_are_not() {
    let mut engine = engine();
    engine.receive(submit_request(submit(1, "q")), Time(1), caller(1));
    engine.receive(poll("w", 0), Time(1), caller(2));
    let mut state = State::new();
    let batch = engine.take_batch().unwrap();
    for (_, bytes) in batch.records() {
        let record = ledger::record::decode(bytes).unwrap();
        state.apply(record.at, &record.event).unwrap();
    }
    let mut restarted: Engine<Caller> = Engine::new(state, Time::ZERO);
    restarted.receive(Request::Read(Read::Workers(scope())), Time(2), caller(3));
    assert!(matches!(&answers(&mut restarted)[0].1, Reply::Workers(workers) if workers.is_empty()));
    assert_eq!(restarted.state().task(TaskId(1)).unwrap().state(), TaskState::Leased);
}

/// The registry may steer who is offered what. What a task is, only records say: neither a worker that is heard of nor one
/// that disappears with a lease changes anything, until its lease ends by a record.
#[test]
fn s4_15_a_worker_that_comes_or_disappears_changes_no_task() {
    let mut engine = engine();
    engine.receive(submit_request(submit(1, "q")), Time(1), caller(1));
    let waiting = engine.state().view(TaskId(1));
    engine.receive(Request::Poll { lease: lease("w", "other"), until: Time(0) }, Time(2), caller(2));
    assert_eq!(engine.state().view(TaskId(1)), waiting, "it was heard of");

    engine.receive(poll("w", 0), Time(3), caller(3));
    sync(&mut engine);
    let leased = engine.state().view(TaskId(1));
    let (end, position) =
        (leased.as_ref().unwrap().task.lease().unwrap().expires_at, engine.state().position());
    for now in [end.0 / 4, end.0 / 2, end.0] {
        engine.tick(Time(now));
        assert_eq!(engine.state().view(TaskId(1)), leased, "it is silent, and its lease lives");
    }
    assert_eq!(engine.state().position(), position, "nothing was recorded");
    engine.tick(Time(end.0 + 1));
    assert_eq!(engine.state().task(TaskId(1)).unwrap().state(), TaskState::Waiting);
    assert_eq!(engine.state().position(), position.next(), "one record: the expiry");
}

/// Nobody looks every half of an interval: the next look is exactly when the earliest lease is over.
#[test]
fn s1_40_a_silent_worker_is_noticed_at_the_moment_its_lease_is_over() {
    let mut engine = engine();
    for id in 1..=3 {
        engine.receive(submit_request(submit(id, "q")), Time(id as u64 * 1_000), caller(1));
        engine.receive(poll("w", 0), Time(id as u64 * 1_000), caller(2));
    }
    sync(&mut engine);
    for id in 1..=3 {
        let end = engine.state().task(TaskId(id)).unwrap().lease().unwrap().expires_at;
        engine.tick(end);
        assert_eq!(engine.state().task(TaskId(id)).unwrap().state(), TaskState::Leased, "it is not over yet");
        let due = engine.next_due();
        assert!(due <= Time(end.0 + 1), "the next look is at {due:?}, and the lease is over after {end:?}");
        engine.tick(Time(end.0 + 1));
        assert_eq!(engine.state().task(TaskId(id)).unwrap().state(), TaskState::Waiting);
    }
}
