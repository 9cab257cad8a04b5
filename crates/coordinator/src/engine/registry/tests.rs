//! Tests of the registry.

use super::*;

fn scope() -> Scope {
    Scope { tenant: Arc::from("t"), workspace: Arc::from("w") }
}

fn session(name: &str) -> Registration {
    Registration { session: Some(Arc::from(name)), ..Registration::default() }
}

#[test]
fn the_worker_seen_longest_ago_is_evicted() {
    let registry = Registry::default();
    for n in 0..=MAX_WORKERS {
        registry.record_heartbeat(&scope(), &Arc::from(format!("w{n:05}")), Time(n as u64));
    }
    let view = registry.view(&scope(), &State::new(), Time(0));
    assert_eq!(view.len(), MAX_WORKERS);
    assert_eq!(&*view[0].worker, "w00001");
}

/// Lost workers are not looked for until a timeout after the last eviction. A registry that was full of names of long ago
/// evicted one for each new name, so that no worker was ever found lost again.
#[test]
fn s3_38_the_eviction_of_workers_that_are_gone_does_not_hide_a_silence() {
    let (registry, left) = (Registry::default(), Arc::from("left"));
    for n in 1..MAX_WORKERS {
        registry.record_heartbeat(&scope(), &Arc::from(format!("w{n:05}")), Time(n as u64));
    }
    let now = Time(MAX_WORKERS as u64);
    registry.register(&scope(), &left, Registration::default(), now);
    registry.unregister(&scope(), &left, None, now);
    let is_known = |worker: &str| registry.heard_lately(now).iter().any(|(_, known)| **known == *worker);
    registry.record_heartbeat(&scope(), &Arc::from("one more"), now);
    assert!(!is_known("left") && is_known("w00001"), "who has left goes first");
    assert_eq!(registry.evicted_at(), Time(0));
    registry.record_heartbeat(&scope(), &Arc::from("another"), now);
    assert!(!is_known("w00001"));
    assert_eq!(registry.evicted_at(), now, "this one was heard, and could be silent from now on");
    let later = now.plus_ms(HEARTBEAT_TIMEOUT_MS);
    for n in 0..5 {
        registry.record_heartbeat(&scope(), &Arc::from(format!("new{n}")), later);
    }
    assert_eq!(registry.evicted_at(), now, "those were silent for the timeout");
}

#[test]
fn unregistered_workers_evict_no_registered_one() {
    let (registry, w, silent) = (Registry::default(), Arc::from("w"), Arc::from("silent"));
    registry.register(&scope(), &silent, Registration::default(), Time(0));
    registry.register(&scope(), &w, Registration::default(), Time(1));
    for n in 0..=MAX_WORKERS {
        registry.record_heartbeat(
            &scope(),
            &Arc::from(format!("stranger{n}")),
            Time(HEARTBEAT_TIMEOUT_MS + 1),
        );
    }
    assert!(registry.registered(&scope(), &w, Time(HEARTBEAT_TIMEOUT_MS + 1)).is_some());
    let view = registry.view(&scope(), &State::new(), Time(HEARTBEAT_TIMEOUT_MS + 1));
    assert_eq!(view.len(), MAX_WORKERS);
    assert!(view.iter().all(|known| known.worker != silent), "its silence ended its registration");
}

#[test]
fn where_all_are_registered_the_own_tenant_is_evicted_and_unregistered_workers_are_not_recorded() {
    let (registry, first) = (Registry::default(), Arc::from("first"));
    let other = Scope { tenant: Arc::from("other"), ..scope() };
    registry.register(&other, &first, Registration::default(), Time(0));
    for n in 1..=MAX_WORKERS {
        registry.register(&scope(), &Arc::from(format!("w{n:05}")), Registration::default(), Time(n as u64));
    }
    let now = Time(MAX_WORKERS as u64);
    assert_eq!(registry.registered_count(now), MAX_WORKERS);
    assert!(registry.registered(&other, &first, now).is_some(), "it is another tenant's");
    assert!(registry.registered(&scope(), &Arc::from("w00001"), now).is_none());
    registry.record_heartbeat(&scope(), &Arc::from("stranger"), now);
    assert_eq!(registry.registered_count(now), MAX_WORKERS);
}

#[test]
fn s3_38_a_silent_worker_is_registered_no_more_and_one_that_is_heard_of_stays() {
    let (registry, w) = (Registry::default(), Arc::from("w"));
    registry.register(&scope(), &w, Registration::default(), Time(0));
    assert!(registry.registered(&scope(), &w, Time(HEARTBEAT_TIMEOUT_MS)).is_some());
    registry.record_heartbeat(&scope(), &w, Time(HEARTBEAT_TIMEOUT_MS));
    assert!(registry.registered(&scope(), &w, Time(2 * HEARTBEAT_TIMEOUT_MS)).is_some());
    assert!(registry.registered(&scope(), &w, Time(2 * HEARTBEAT_TIMEOUT_MS + 1)).is_none());
    registry.record_heartbeat(&scope(), &w, Time(2 * HEARTBEAT_TIMEOUT_MS + 2));
    assert!(registry.registered(&scope(), &w, Time(2 * HEARTBEAT_TIMEOUT_MS + 2)).is_none(), "it stays so");
}

#[test]
fn a_worker_heard_of_after_its_silence_has_to_register_again() {
    let (registry, w) = (Registry::default(), Arc::from("w"));
    registry.register(&scope(), &w, Registration::default(), Time(0));
    let status = WorkerStatus { activity: Activity::Busy, ..WorkerStatus::default() };
    assert_eq!(registry.record_status(&scope(), &w, None, status, Time(1)), Liveness::Registered);
    assert_eq!(registry.registered(&scope(), &w, Time(1)).unwrap().status, status);
    assert_eq!(
        registry.record_status(&scope(), &w, None, status, Time(HEARTBEAT_TIMEOUT_MS + 2)),
        Liveness::Unknown
    );
}

#[test]
fn w11_a_session_that_was_replaced_speaks_for_nobody() {
    let (registry, w) = (Registry::default(), Arc::from("w"));
    let (old, new) = (Arc::from("old"), Arc::from("new"));
    registry.register(&scope(), &w, session("new"), Time(0));
    let status = WorkerStatus { activity: Activity::Draining, ..WorkerStatus::default() };
    assert_eq!(registry.record_status(&scope(), &w, Some(&old), status, Time(1)), Liveness::Superseded);
    assert_eq!(registry.registered(&scope(), &w, Time(1)).unwrap().status, WorkerStatus::default());
    // Nor does its being alive keep the other registered.
    let late = Time(HEARTBEAT_TIMEOUT_MS);
    assert_eq!(registry.record_status(&scope(), &w, Some(&old), status, late), Liveness::Superseded);
    assert!(registry.registered(&scope(), &w, Time(HEARTBEAT_TIMEOUT_MS + 1)).is_none());
    registry.register(&scope(), &w, session("new"), late);
    assert_eq!(registry.record_status(&scope(), &w, Some(&new), status, late), Liveness::Registered);
}

#[test]
fn only_the_newest_session_unregisters_a_worker() {
    let (registry, w) = (Registry::default(), Arc::from("w"));
    registry.register(&scope(), &w, session("new"), Time(0));
    registry.unregister(&scope(), &w, Some(&Arc::from("old")), Time(9));
    assert!(registry.registered(&scope(), &w, Time(0)).is_some());
    registry.unregister(&scope(), &w, Some(&Arc::from("new")), Time(9));
    assert!(registry.registered(&scope(), &w, Time(0)).is_none());
}

#[test]
fn registrations_are_watched_and_their_end_by_silence_is_known() {
    let (registry, v, w) = (Registry::default(), Arc::from("v"), Arc::from("w"));
    let mut watch = registry.watch();
    let mut has_changed = || std::mem::replace(&mut watch, registry.watch()).has_changed().unwrap();
    registry.record_heartbeat(&scope(), &w, Time(0));
    assert_eq!((has_changed(), registry.registered_until(Time(0))), (false, None));
    registry.register(&scope(), &v, session("a"), Time(1));
    registry.register(&scope(), &w, session("b"), Time(2));
    assert!(has_changed());
    let until = registry.registered_until(Time(2)).unwrap();
    assert_eq!(until, Time(2 + HEARTBEAT_TIMEOUT_MS));
    assert_eq!(registry.registered_until(until), Some(until));
    assert_eq!(registry.registered_until(until.plus_ms(1)), None);
    registry.unregister(&scope(), &w, Some(&Arc::from("other")), Time(9));
    assert!(!has_changed());
    registry.unregister(&scope(), &w, None, Time(9));
    assert!(has_changed());
}

#[test]
fn a3_workers_of_one_tenant_do_not_push_all_others_out() {
    let registry = Registry::default();
    let (greedy, other) = (scope_of("greedy"), scope_of("other"));
    for n in 0..10 {
        registry.record_heartbeat(&other, &format!("w{n}").into(), Time(1));
    }
    for n in 0..MAX_WORKERS + 20 {
        registry.record_heartbeat(&greedy, &format!("w{n}").into(), Time(2));
    }
    assert_eq!(registry.view(&other, &State::new(), Time(3)).len(), 10);
    assert_eq!(registry.view(&greedy, &State::new(), Time(3)).len(), MAX_WORKERS - 10);
}

fn scope_of(tenant: &str) -> Scope {
    Scope { tenant: tenant.into(), workspace: "w".into() }
}
