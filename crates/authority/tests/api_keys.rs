//! API keys: which are accepted, and how many live.

use std::sync::Arc;

use authority::command::CreateKey;
use authority::command::CreateKeyAnswer::{self, Created, Invalid, NameTaken, TooMany};
use authority::event::{KeyCreated, KeyRevoked};
use authority::limits::MAX_KEYS;
use authority::{Answer, ApiKey, Command, Event, Role, State, Time};

use crate::support::commands::api_key;

fn decide(state: &State, key: ApiKey) -> CreateKeyAnswer {
    let command = Command::CreateKey(CreateKey { key: Arc::new(key), by: None });
    match state.decide(&command, Time(1_000)).answer {
        Answer::KeyCreated(answer) => answer,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_key_has_a_role_a_tenant_and_an_end_that_is_to_come() {
    let state = State::new();
    let good = || api_key("k", "ci");
    let many = || (0..17).map(|n| Arc::from(format!("t{n}"))).collect::<Vec<_>>();
    assert_eq!(decide(&state, good()), Created);
    assert_eq!(decide(&state, ApiKey { tenants: Vec::new(), roles: vec![Role::Admin], ..good() }), Created);
    for (key, field) in [
        (ApiKey { name: "".into(), ..good() }, "name"),
        (ApiKey { roles: Vec::new(), ..good() }, "roles"),
        (ApiKey { roles: vec![Role::Reader, Role::Reader], ..good() }, "roles"),
        (ApiKey { roles: vec![Role::Admin], ..good() }, "tenants"),
        (ApiKey { tenants: Vec::new(), ..good() }, "tenants"),
        (ApiKey { tenants: many(), ..good() }, "tenants"),
        (ApiKey { queues: many(), ..good() }, "queues"),
        (ApiKey { worker_prefix: Some("".into()), ..good() }, "workerPrefix"),
        (ApiKey { expires_at: Some(Time(1_000)), ..good() }, "expiresAt"),
        (ApiKey { properties: vec!["os".into()], ..good() }, "properties"),
        (ApiKey { properties: vec!["=linux".into()], ..good() }, "properties"),
        (ApiKey { properties: vec!["os=linux".into(); 65], ..good() }, "properties"),
    ] {
        let Invalid(fault) = decide(&state, key) else { panic!("{field} was accepted") };
        assert!(fault.starts_with(field), "{fault}");
    }
}

#[test]
fn ten_thousand_keys_live_and_no_more() {
    let mut state = State::new();
    for n in 0..MAX_KEYS {
        let name = format!("key-{n}");
        let created = KeyCreated { key: Arc::new(api_key(&name, &name)), by: None };
        state.apply(Time(1), &Event::KeyCreated(created)).unwrap();
    }
    assert_eq!(decide(&state, api_key("one", "more")), TooMany);
    let revoked = KeyRevoked { key_id: "key-7".into(), revoked_by: "root".into(), by: None };
    state.apply(Time(2), &Event::KeyRevoked(revoked.clone())).unwrap();
    assert_eq!(decide(&state, api_key("one", "more")), Created);
    assert!(state.apply(Time(2), &Event::KeyRevoked(revoked)).is_err(), "it is over");
}

#[test]
fn a_key_that_has_expired_gives_up_its_name_and_makes_room() {
    let mut state = State::new();
    let key =
        |n: usize, expires_at| ApiKey { expires_at, ..api_key(&format!("id-{n}"), &format!("key-{n}")) };
    for n in 0..MAX_KEYS {
        // The last ones have expired, one after the other.
        let expires_at = (n >= MAX_KEYS - 3).then(|| Time(900 - n as u64 % 100));
        let created = KeyCreated { key: Arc::new(key(n, expires_at)), by: None };
        state.apply(Time(1), &Event::KeyCreated(created)).unwrap();
    }
    let ended = |new: ApiKey| {
        let command = Command::CreateKey(CreateKey { key: Arc::new(new), by: None });
        let decision = state.decide(&command, Time(1_000));
        assert_eq!(decision.answer, Answer::KeyCreated(Created));
        match &decision.events[..] {
            [Event::KeyRevoked(revoked), Event::KeyCreated(_)] if &*revoked.revoked_by == "expired" => {
                revoked.key_id.to_string()
            }
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(ended(api_key("new", "new")), "id-9999", "the first that expired");
    assert_eq!(ended(api_key("new", "key-9997")), "id-9997", "the one of the same name");
    assert_eq!(decide(&state, api_key("new", "key-7")), NameTaken);
}

#[test]
fn neither_a_record_as_text_nor_its_fields_have_the_hash_of_the_secret() {
    let created = Event::KeyCreated(KeyCreated { key: Arc::new(api_key("k", "ci")), by: None });
    assert!(format!("{created:?}").contains("secret_hash: ***"), "{created:?}");
    assert!(created.fields().iter().all(|(name, _)| *name != "secretHash"));
}
